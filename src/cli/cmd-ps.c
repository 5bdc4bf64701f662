/* ripcord ps: lists the execs of one or all sandboxes and their resource usage. */
#include "cli/cli.h"
#include "cli/exec-table.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

/* --json prints the same execs as the table: running ones or all. */
static void print_json(const json_t *doc, bool all)
{
    _cleanup_json_ json_t *kept = json_array();
    _cleanup_json_ json_t *out = json_pack("{s:O}", "execs", kept);
    json_t *x;
    size_t i;

    json_array_foreach (json_object_get(doc, "execs"), i, x) {
        const char *state = json_text_of(x, "state");

        if (all || !state || !STREQ(state, "ended"))
            json_array_append(kept, x);
    }
    json_object_set(out, "totals", json_object_get(doc, "totals"));
    output_json(out);
}

static void print_ids(const json_t *list, bool all)
{
    const json_t *x;
    size_t i;

    json_array_foreach (list, i, x)
        if (all || !STREQ(json_text_of(x, "state") ?: "", "ended"))
            puts(json_text_of(x, "id") ?: "");
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    const char *name = args->n_words ? args->words[0] : NULL;
    bool totals = args_has(args, "totals"), all = args_has(args, "all") || totals;
    _cleanup_free_ char *target = NULL;
    _cleanup_json_ json_t *doc = NULL;
    int r = name ? parse_name("sandbox name", name, err) : 0;

    if (r < 0)
        return r;
    target = name ? xasprintf("/v1/sandboxes/%s/execs", name)
                  : xasprintf("/v1/execs?all=%d", all && (!totals || cli->json));
    r = cli_call(cli, "GET", target, NULL, &doc, err);
    if (r < 0)
        return r;
    if (cli->json)
        print_json(doc, all);
    else if (args_has(args, "quiet"))
        print_ids(json_object_get(doc, "execs"), all);
    else if (totals)
        exec_totals(json_object_get(doc, "totals"));
    else
        exec_table(json_object_get(doc, "execs"), all, !name);
    return 0;
}

static const struct cli_option options[] = {
    {"all", 'a', NULL, "include ended execs and their resource usage", NULL},
    {"quiet", 'q', NULL, "print only the ids", NULL},
    {"totals", 0, NULL, "print the total usage of each sandbox and label", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_ps = {
    .name = "ps",
    .summary = "list execs and their resource usage",
    .usage = "ps [NAME] [options]",
    .details =
        "Lists the running execs of one sandbox or of all sandboxes, newest first. With --all it "
        "includes ended execs, how they ended, and their usage: processor time, peak memory, "
        "bytes read from and written to disk, and bytes of output. --json includes the totals.\n\n"
        "Totals count all ended execs of a sandbox or of a label, including those of throw-away "
        "and removed sandboxes. The total of a sandbox is removed with the sandbox.",
    .examples = "ripcord ps box --all\tlist every exec of a sandbox\n"
                "ripcord ps --totals\tprint the total usage",
    .groups = groups,
    .complete = "sandbox",
    .min_args = 0,
    .max_args = 1,
    .stop_after = -1,
    .run = run,
};
