/* ripcord daemon: runs the daemon in the foreground, or shows and ends the one that runs. */
#include <string.h>
#include <unistd.h>

#include "cli/aliases.h"
#include "cli/cli.h"
#include "cli/daemon-actions.h"
#include "cli/help.h"
#include "cli/options.h"
#include "client/start.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static int unknown_action(const char *word, struct err *err)
{
    static const char *const actions[] = {"status", "stop", "restart"};
    const char *near = alias_nearest(word, actions, ARRAY_SIZE(actions));

    err_set(err, ERR_INVALID, "unknown action '%s'; supported: status, stop, restart", word);
    if (near)
        return err_hint(err, "Did you mean 'ripcord daemon %s'?", near);
    return err_hint(err, "Run 'ripcord daemon' without an action to run it in this terminal.");
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_free_ char *program = NULL;
    _cleanup_strv_ char **argv = NULL;
    int r;

    if (args->n_words && (STREQ(args->words[0], "--help") || STREQ(args->words[0], "-h"))) {
        help_command(&cmd_daemon);
        return 0;
    }
    if (args->n_words && daemon_is_action(args->words[0]))
        return daemon_action(cli, args->n_words, args->words, err);
    if (args->n_words && args->words[0][0] != '-')
        return unknown_action(args->words[0], err);
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
    .summary = "run the daemon in the foreground, or show, stop and restart it",
    .usage = "daemon [--listen ADDR] [options of ripcordd] | status | stop | restart",
    .details =
        "Runs ripcordd in this terminal with the given options. You rarely need this: the first "
        "command that needs the daemon starts it. 'ripcordd --help' lists all options. With --json "
        "it logs JSON lines.\n\n"
        "status shows whether the daemon runs, and as which process; the exit status is 3 if it "
        "does not. stop ends it and restart replaces it; neither ends a sandbox or a command. "
        "After stop, the next command that needs the daemon starts it again. Where the systemd "
        "unit ripcord.service is installed, stop and restart run systemctl, and after stop "
        "commands fail until `systemctl start ripcord`. restart refuses a daemon that was started "
        "with options of its own, such as --listen.\n\n"
        "With --listen (or http.listen in ripcord.yaml) the daemon also serves the API over TCP. "
        "Clients must send the token that 'ripcord token' prints: use 'ripcord --host ADDR' with "
        "RIPCORD_TOKEN, or an Authorization header. The connection is not encrypted. An address "
        "that other machines can reach is therefore refused unless --allow-remote is given; 'ssh "
        "-L' is safer.",
    .examples = "ripcord daemon --log-level debug\tsee all log messages\n"
                "ripcord daemon --listen 127.0.0.1:7070\tserve HTTP clients over TCP\n"
                "ripcord daemon restart\tuse a new version or a changed configuration",
    .groups = groups,
    .words = "status stop restart",
    .complete = "word",
    .max_args = CLI_ANY,
    .stop_after = -1,
    .flags = CLI_PASS_THROUGH,
    .run = run,
};
