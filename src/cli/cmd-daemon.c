/* ripcord daemon: the daemon in the foreground. */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/help.h"
#include "cli/options.h"
#include "client/start.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

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

/* The daemon parses them itself (daemon/main/options.c): these are for help and completion. */
static const struct cli_option options[] = {
    {"listen", 0, "ADDR", "answer on this address too, 127.0.0.1:7070, to those who have the token",
     NULL},
    {"allow-remote", 0, NULL, "ADDR may be one that other machines reach: there is no encryption",
     NULL},
    {"log-level", 0, "LEVEL", "how much it tells", "error warn info debug"},
    {"log-json", 0, NULL, "log as JSON lines", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_daemon = {
    .name = "daemon",
    .summary = "run the daemon in the foreground",
    .usage = "daemon [--listen ADDR] [options of ripcordd]",
    .details =
        "Runs ripcordd in this terminal, with the options given. There is no need to: the "
        "first command that wants the daemon starts it. 'ripcordd --help' lists all of its "
        "options.\n\n"
        "With --listen (or http.listen in ripcord.yaml, which also holds for a daemon that was "
        "started by a command) the API is there over TCP as well, for whoever sends the token "
        "that 'ripcord token' prints: 'ripcord --host ADDR', or an Authorization field. It is "
        "not encrypted, so an address that other machines can reach is refused unless "
        "--allow-remote says that the network is safe; 'ssh -L' is the better way.",
    .examples = "ripcord daemon --log-level debug\twatch it work\n"
                "ripcord daemon --listen 127.0.0.1:7070\tfor programs that speak HTTP over TCP",
    .groups = groups,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .flags = CLI_PASS_THROUGH,
    .run = run,
};
