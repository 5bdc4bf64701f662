/* ripcord pause: freezes sandboxes. */
#include "cli/cli.h"
#include "cli/many.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    static const struct many m = {.method = "POST", .suffix = "/pause", .done = "paused"};

    return many_run(cli, args, &m, err);
}

const struct cli_command cmd_pause = {
    .name = "pause",
    .summary = "pause sandboxes",
    .usage = "pause NAME...",
    .details =
        "Freezes all processes of the sandboxes. Their memory is kept. Several sandboxes are "
        "paused in parallel, and each has its own result.",
    .examples = "ripcord pause a b c\tpause several sandboxes",
    .complete = "sandbox+",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = run,
};
