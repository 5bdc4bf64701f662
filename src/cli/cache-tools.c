#include "cli/cache-tools.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"

enum { FILE_MAX = 16 << 20 };

/* ---- warm ---- */

/* Reads the file of an option and stores its text in body[key]. */
static int cache_tools_add_file(json_t *body, const struct cli_args *args, const char *option,
                                const char *key, struct err *err)
{
    const char *path = args_get(args, option);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r;

    if (!path)
        return 0;
    r = file_read(AT_FDCWD, path, FILE_MAX, &text, &len, err);
    if (r < 0)
        return r;
    if (json_object_set_new(body, key, json_stringn(text, len)) < 0)
        return err_set(err, ERR_INVALID, "'%s': not UTF-8 text", path);
    return 0;
}

static void cache_tools_add_text(json_t *body, const struct cli_args *args, const char *name)
{
    if (args_get(args, name))
        json_object_set_new(body, name, json_string(args_get(args, name)));
}

static int cache_tools_make_body(const struct cli_args *args, json_t *body, struct err *err)
{
    json_t *packages = json_array();
    int r;

    json_object_set_new(body, "packages", packages);
    for (int i = 1; i < args->n_words; i++)
        json_array_append_new(packages, json_string(args->words[i]));
    cache_tools_add_text(body, args, "tool");
    cache_tools_add_text(body, args, "engine");
    cache_tools_add_text(body, args, "image");
    r = cache_tools_add_file(body, args, "requirements", "requirements", err);
    return r < 0 ? r : cache_tools_add_file(body, args, "package-lock", "package_lock", err);
}

int cache_tools_warm(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *body = json_object(), *doc = NULL;
    char bytes[FORMAT_MAX];
    int r;

    if (!args_get(args, "tool")) {
        err_set(err, ERR_INVALID, "--tool is missing");
        return err_hint(
            err, "Name the tool, for example: ripcord cache warm --tool pip requests==2.32.3");
    }
    r = cache_tools_make_body(args, body, err);
    if (r < 0)
        return r;
    if (!cli->json && isatty(STDERR_FILENO))
        fputs("downloading packages…\n", stderr);
    r = cli_call(cli, "POST", "/v1/caches/tools/warm", body, &doc, err);
    if (r < 0)
        return r;
    if (cli->json) {
        output_json(doc);
        return 0;
    }
    printf("shared base of '%s' on engine '%s': %s in %llu files and folders\n",
           json_text_of(doc, "tool"), json_text_of(doc, "engine"),
           format_size(json_number_of(doc, "bytes"), bytes),
           (unsigned long long)json_number_of(doc, "files"));
    return 0;
}

/* ---- list, prune ---- */

int cache_tools_list(struct cli *cli, json_t **ret, struct err *err)
{
    return cli_call(cli, "GET", "/v1/caches/tools", NULL, ret, err);
}

static void cache_tools_print_errors(const json_t *doc)
{
    const json_t *e;
    size_t i;

    json_array_foreach (json_object_get(doc, "errors"), i, e) {
        fprintf(stderr, "ripcord: engine '%s': ", json_text_of(e, "engine"));
        output_text(stderr, json_text_of(e, "message"));
        fputc('\n', stderr);
    }
}

void cache_tools_print(const json_t *doc)
{
    static const char *const titles[] = {"TOOL", "KIND", "OWNER", "ENGINE", "SIZE", "CHANGED"};
    const json_t *list = json_object_get(doc, "caches"), *c;
    struct table *t;
    size_t i;

    cache_tools_print_errors(doc);
    if (json_array_size(list) == 0)
        return;
    t = table_new(titles, ARRAY_SIZE(titles));
    json_array_foreach (list, i, c) {
        const char *tool = json_text_of(c, "tool"), *at = json_text_of(c, "changed_at");
        char size[FORMAT_MAX], age[AGE_MAX];

        table_add(t, tool && *tool ? tool : "all");
        table_add(t, json_text_of(c, "kind"));
        table_add(t, json_text_of(c, "owner"));
        table_add(t, json_text_of(c, "engine"));
        table_add(t, json_is_null(json_object_get(c, "bytes"))
                         ? NULL
                         : format_size(json_number_of(c, "bytes"), size));
        table_add(t, at ? output_age(at, age) : NULL);
    }
    table_print(t);
    table_free(t);
}

int cache_tools_prune(struct cli *cli, const char *tool, struct err *err)
{
    _cleanup_json_ json_t *body = json_pack("{s:s}", "tool", tool), *doc = NULL;
    int r = cli_call(cli, "POST", "/v1/caches/tools/prune", body, &doc, err);
    bool failed;

    if (r < 0)
        return r;
    failed = json_array_size(json_object_get(doc, "errors")) > 0;
    if (cli->json)
        output_json(doc);
    else
        cache_tools_print_errors(doc);
    if (!cli->json && !failed)
        puts("removed; running sandboxes keep their copy until they stop");
    return failed ? 1 : 0;
}
