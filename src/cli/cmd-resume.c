/* ripcord resume: resumes paused sandboxes. */
#include "cli/cli.h"
#include "cli/many.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    static const struct many m = {.method = "POST", .suffix = "/resume", .done = "resumed"};

    return many_run(cli, args, &m, err);
}

const struct cli_command cmd_resume = {
    .name = "resume",
    .summary = "resume paused sandboxes",
    .usage = "resume NAME...",
    .details =
        "Undoes 'ripcord pause'. Several sandboxes are resumed in parallel, and each has its own "
        "result.",
    .examples = "ripcord resume a b c\tresume several sandboxes",
    .complete = "sandbox+",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = run,
};
