/* ripcord version: prints our version. It does not use the daemon. */
#include "cli/cli.h"
#include "cli/output.h"
#include "version.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    (void)args;
    (void)err;
    if (cli->json)
        puts("{\"version\":\"" RIPCORD_VERSION "\"}");
    else
        puts("ripcord " RIPCORD_VERSION);
    return 0;
}

const struct cli_command cmd_version = {
    .name = "version",
    .summary = "show the version",
    .usage = "version",
    .stop_after = -1,
    .run = run,
};
