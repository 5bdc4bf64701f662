/* ripcord rm: sandboxes and their files, gone. */
#include "cli/cli.h"
#include "cli/many.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    struct many m = {
        .method = "DELETE", .suffix = args_has(args, "force") ? "?force=1" : "", .done = "removed"};

    return many_run(cli, args, &m, err);
}

static const struct cli_option options[] = {
    {"force", 'f', NULL, "also with commands running in it", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_rm = {
    .name = "rm",
    .summary = "remove sandboxes with all their files",
    .usage = "rm [options] NAME...",
    .details = "Removes the sandboxes, /home/agent and all output included. One with running execs "
               "is left alone unless --force is given. Several are done in parallel, each with its "
               "own result; the exit status is that of the worst.",
    .examples = "ripcord rm box\tone\n"
                "ripcord rm -f $(ripcord ls -q)\tall",
    .groups = groups,
    .complete = "sandbox+",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = run,
};
