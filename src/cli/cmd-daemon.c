/* ripcord daemon: runs the daemon in the foreground. */
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
    if (cli->json)
        strv_add(&argv, "--log-json");
    for (int i = 0; i < args->n_words; i++)
        strv_add(&argv, STREQ(args->words[i], "--json") ? "--log-json" : args->words[i]);
    execv(program, argv);
    return err_sys(err, errno, "run '%s'", program);
}

/* Only for help and completion: the daemon parses its options itself (daemon/main/options.c). */
static const struct cli_option options[] = {
    {"listen", 0, "ADDR",
     "also listen on this TCP address, e.g. 127.0.0.1:7070; clients need the API token", NULL},
    {"allow-remote", 0, NULL,
     "allow an ADDR that other machines can reach; the connection is not encrypted", NULL},
    {"log-level", 0, "LEVEL", "log messages of this level and above", "error warn info debug"},
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
        "Runs ripcordd in this terminal with the given options. You rarely need this: the first "
        "command that needs the daemon starts it. 'ripcordd --help' lists all options. With --json "
        "it logs JSON lines.\n\n"
        "With --listen (or http.listen in ripcord.yaml) the daemon also serves the API over TCP. "
        "Clients must send the token that 'ripcord token' prints: use 'ripcord --host ADDR' with "
        "RIPCORD_TOKEN, or an Authorization header. The connection is not encrypted. An address "
        "that other machines can reach is therefore refused unless --allow-remote is given; 'ssh "
        "-L' is safer.",
    .examples = "ripcord daemon --log-level debug\tsee all log messages\n"
                "ripcord daemon --listen 127.0.0.1:7070\tserve HTTP clients over TCP",
    .groups = groups,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .flags = CLI_PASS_THROUGH,
    .run = run,
};
