/* ripcord config: shows the configuration in effect. */
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"

/* Adds a row with a key, its value and the source of the value. */
static void add_row(struct table *t, const char *key, const json_t *entry)
{
    const json_t *value = json_object_get(entry, "value");
    _cleanup_free_ char *text = NULL;

    if (!value)
        value = entry;
    text = json_is_string(value) ? NULL : json_to_text(value, false);
    table_add(t, key);
    table_add(t, text ? text : json_string_value(value));
    table_add(t, json_text_of(entry, "source"));
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    static const char *const titles[] = {"KEY", "VALUE", "FROM"};
    _cleanup_json_ json_t *doc = NULL;
    json_t *config, *entry;
    const char *key;
    struct table *t;
    int r;

    (void)args;
    r = cli_call(cli, "GET", "/v1/config", NULL, &doc, err);
    if (r < 0)
        return r;
    if (cli->json) {
        output_json(doc);
        return 0;
    }
    config = json_object_get(doc, "config");
    t = table_new(titles, ARRAY_SIZE(titles));
    json_object_foreach (config ? config : doc, key, entry)
        add_row(t, key, entry);
    table_shorten(t, 1); /* VALUE */
    table_print(t);
    table_free(t);
    return 0;
}

const struct cli_command cmd_config = {
    .name = "config",
    .summary = "show the configuration in effect",
    .usage = "config",
    .details = "Prints every configuration key with its value and the source of the value. "
               "ripcord.yaml(5) describes the keys.",
    .stop_after = -1,
    .run = run,
};
