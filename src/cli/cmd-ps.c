/* ripcord ps: the execs of a sandbox. */
#include <string.h>

#include "base/parse.h"
#include "base/strv.h"
#include "base/xalloc.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/state.h"

enum { PS_COMMAND_MAX = 60 };

static char *command_of(const json_t *exec)
{
    _cleanup_strv_ char **words = NULL;
    const json_t *arg;
    _cleanup_free_ char *line = NULL;
    size_t i;

    json_array_foreach (json_object_get(exec, "argv"), i, arg)
        strv_add(&words, json_string_value(arg) ? json_string_value(arg) : "?");
    line = strv_join(words, " ");
    if (strlen(line) <= PS_COMMAND_MAX)
        return TAKE_PTR(line);
    i = PS_COMMAND_MAX - 1;
    while (i && ((unsigned char)line[i] & 0xc0) == 0x80)
        i--; /* never inside a character */
    return xasprintf("%.*s…", (int)i, line);
}

static void print_table(const json_t *list, bool all)
{
    static const char *const titles[] = {"EXEC", "STATE", "STARTED", "TIME", "COMMAND"};
    struct table *t = table_new(titles, ARRAY_SIZE(titles));
    const json_t *x;
    size_t i;

    json_array_foreach (list, i, x) {
        _cleanup_free_ char *command = command_of(x);
        char end[STATE_END_MAX], age[AGE_MAX], time[FORMAT_MAX];
        const char *state = json_text_of(x, "state");

        if (!all && state && STREQ(state, "ended"))
            continue;
        table_add(t, json_text_of(x, "id"));
        table_add(t, state_end(x, end));
        table_color(t, state_color(state));
        table_add(t, output_age(json_text_of(x, "started_at"), age));
        table_add(t, state_duration(x, time));
        table_add(t, command);
    }
    table_print(t);
    table_free(t);
}

/* --json shows what the table shows: live ones, or all. */
static void print_json(const json_t *list, bool all)
{
    _cleanup_json_ json_t *kept = json_array();
    _cleanup_json_ json_t *doc = json_pack("{s:O}", "execs", kept);
    json_t *x;
    size_t i;

    json_array_foreach (list, i, x) {
        const char *state = json_text_of(x, "state");

        if (all || !state || !STREQ(state, "ended"))
            json_array_append(kept, x);
    }
    output_json(doc);
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_free_ char *target = NULL;
    _cleanup_json_ json_t *doc = NULL;
    bool all = args_has(args, "all");
    int r;

    r = parse_name("sandbox name", args->words[0], err);
    if (r < 0)
        return r;
    target = xasprintf("/v1/sandboxes/%s/execs", args->words[0]);
    r = cli_call(cli, "GET", target, NULL, &doc, err);
    if (r < 0)
        return r;
    if (cli->json)
        print_json(json_object_get(doc, "execs"), all);
    else
        print_table(json_object_get(doc, "execs"), all);
    return 0;
}

static const struct cli_option options[] = {
    {"all", 'a', NULL, "ended ones too", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_ps = {
    .name = "ps",
    .summary = "list the execs of a sandbox",
    .usage = "ps NAME [options]",
    .details =
        "Lists the running execs of the sandbox, newest first; with --all the ended ones too, "
        "with how they ended.",
    .examples = "ripcord ps box --all\teverything that was run",
    .groups = groups,
    .complete = "sandbox",
    .min_args = 1,
    .max_args = 1,
    .stop_after = -1,
    .run = run,
};
