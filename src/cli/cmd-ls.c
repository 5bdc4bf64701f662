/* ripcord ls: lists the sandboxes. */
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/state.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

static void print_table(const json_t *list)
{
    static const char *const titles[] = {"NAME",  "STATE",   "FOR",       "EXECS", "ENGINE",
                                         "IMAGE", "NETWORK", "ISOLATION", "REASON"};
    struct table *t = table_new(titles, ARRAY_SIZE(titles));
    char age[AGE_MAX], execs[24];
    const json_t *sb;
    size_t i;

    json_array_foreach (list, i, sb) {
        const char *state = json_text_of(sb, "state");

        table_add(t, json_text_of(sb, "name"));
        table_add(t, state);
        table_color(t, state_color(state));
        table_add(t, output_age(json_text_of(sb, "since"), age));
        snprintf(execs, sizeof(execs), "%llu",
                 (unsigned long long)json_number_of(sb, "execs_live"));
        table_add(t, execs);
        table_add(t, json_text_of(sb, "engine"));
        table_add(t, json_text_of(sb, "image"));
        table_add(t, json_text_of(sb, "network"));
        table_add(t, json_text_of(sb, "isolation"));
        table_add(t, json_text_of(sb, "reason"));
    }
    table_shorten(t, ARRAY_SIZE(titles) - 1); /* REASON */
    table_print(t);
    table_free(t);
}

static void print_names(const json_t *list)
{
    const json_t *sb;
    size_t i;

    json_array_foreach (list, i, sb) {
        output_text(stdout, json_text_of(sb, "name"));
        putchar('\n');
    }
}

/* The filters are the daemon's, and their options have the names of its query parameters. */
static char *ls_target(const struct cli_args *args)
{
    static const char *const filters[] = {"label", "state", "engine", "prefix"};
    char *target = xstrdup("/v1/sandboxes"), separator = '?';
    const char *value;

    for (size_t k = 0; k < ARRAY_SIZE(filters); k++)
        for (size_t i = 0; (value = args_next(args, filters[k], &i));) {
            _cleanup_free_ char *before = target, *escaped = client_escape(value);

            target = xasprintf("%s%c%s=%s", before, separator, filters[k], escaped);
            separator = '&';
        }
    return target;
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    static const char *const states[] = {"creating", "running",  "paused", "stopping",
                                         "stopped",  "removing", "failed", "reconciling"};
    static const char *const engines[] = {"native", "docker"};
    _cleanup_free_ char *target = ls_target(args);
    _cleanup_json_ json_t *doc = NULL;
    const json_t *list;
    int r;

    if ((r = args_check_words(args, "state", states, ARRAY_SIZE(states), err)) < 0 ||
        (r = args_check_words(args, "engine", engines, ARRAY_SIZE(engines), err)) < 0 ||
        (r = cli_call(cli, "GET", target, NULL, &doc, err)) < 0)
        return r;
    list = json_object_get(doc, "sandboxes");
    if (cli->json)
        output_json(doc);
    else if (args_has(args, "quiet"))
        print_names(list);
    else
        print_table(list);
    return 0;
}

static const struct cli_option options[] = {
    {"quiet", 'q', NULL, "print only the names", NULL},
    {"label", 0, "KEY[=VALUE]", "only sandboxes with this label; may be repeated: with all of them",
     NULL},
    {"state", 0, "STATE", "only sandboxes in this state; may be repeated: in any of them",
     "creating running paused stopping stopped removing failed reconciling"},
    {"engine", 0, "NAME", "only sandboxes of this engine", "native docker"},
    {"prefix", 0, "TEXT", "only sandboxes whose names begin so", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_ls = {
    .name = "ls",
    .summary = "list the sandboxes",
    .usage = "ls [options]",
    .examples = "ripcord ls --json | jq '.sandboxes[].name'\tprint the names for programs\n"
                "ripcord rm $(ripcord ls -q --label task=42)\tremove the sandboxes of a task",
    .groups = groups,
    .max_args = 0,
    .stop_after = -1,
    .run = run,
};
