/* ripcord daemon: the daemon in the foreground. */
#include <string.h>
#include <unistd.h>

#include "base/strv.h"
#include "base/xalloc.h"
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/options.h"
#include "client/start.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_free_ char *program = NULL;
    _cleanup_strv_ char **argv = NULL;
    int r;

    if (args->n_words && (STREQ(args->words[0], "--help") || STREQ(args->words[0], "-h"))) {
        help_command(&cmd_daemon);
        return 0;
    }
    r = start_find_daemon(&program, err);
    if (r < 0)
        return r;
    strv_add(&argv, program);
    if (cli->root) {
        strv_add(&argv, "--root");
        strv_add(&argv, cli->root);
    }
    for (int i = 0; i < args->n_words; i++)
        strv_add(&argv, args->words[i]);
    execv(program, argv);
    return err_sys(err, errno, "run '%s'", program);
}

const struct cli_command cmd_daemon = {
    .name = "daemon",
    .summary = "run the daemon in the foreground",
    .usage = "daemon [options of ripcordd]",
    .details =
        "Runs ripcordd in this terminal, with the options given. There is no need to: the "
        "first command that wants the daemon starts it. 'ripcordd --help' lists its options.",
    .examples = "ripcord daemon --log-level debug\twatch it work",
    .max_args = CLI_ANY,
    .stop_after = -1,
    .flags = CLI_PASS_THROUGH,
    .run = run,
};
