/* ripcord rm: removes sandboxes and their files. */
#include "cli/cli.h"
#include "cli/many.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    struct many m = {
        .method = "DELETE", .suffix = args_has(args, "force") ? "?force=1" : "", .done = "removed"};

    return many_run(cli, args, &m, err);
}

static const struct cli_option options[] = {
    {"force", 'f', NULL, "also remove sandboxes with running execs", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_rm = {
    .name = "rm",
    .summary = "remove sandboxes and all their files",
    .usage = "rm [options] NAME...",
    .details =
        "Removes the sandboxes, including /home/agent and all stored output. A sandbox with "
        "running execs is not removed unless --force is given. Several sandboxes are removed in "
        "parallel, and each has its own result; the exit status is the highest of them.",
    .examples = "ripcord rm box\tremove one sandbox\n"
                "ripcord rm -f $(ripcord ls -q)\tremove all sandboxes",
    .groups = groups,
    .complete = "sandbox+",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = run,
};
