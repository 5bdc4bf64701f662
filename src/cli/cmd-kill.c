/* ripcord kill: sends a signal to an exec. */
#include <signal.h>

#include "cli/cli.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    const char *given = args_get(args, "signal");
    _cleanup_free_ char *target = NULL;
    _cleanup_json_ json_t *doc = NULL, *body = NULL;
    int sig = SIGKILL, r;

    if (given && parse_signal(given, &sig, err) < 0)
        return err_wrap(err, "--signal");
    if ((r = parse_name("sandbox name", args->words[0], err)) < 0 ||
        (r = exec_parse(args->words[1], err)) < 0)
        return r;
    /* KILL ends all processes of the exec; other signals go to its main process. */
    target = xasprintf("/v1/sandboxes/%s/execs/%s/%s", args->words[0], args->words[1],
                       sig == SIGKILL ? "kill" : "signal");
    body = json_pack("{s:s}", "signal", signal_name(sig));
    if (!body)
        return err_set(err, ERR_INVALID, "--signal: invalid signal %d", sig);
    r = cli_call(cli, "POST", target, body, &doc, err);
    if (r < 0)
        return r;
    if (cli->json)
        output_json(doc);
    return 0;
}

static const struct cli_option options[] = {
    {"signal", 's', "SIGNAL", "name or number of the signal (default: KILL)",
     "KILL TERM INT HUP QUIT USR1 USR2 STOP CONT"},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_kill = {
    .name = "kill",
    .summary = "kill an exec or send it a signal",
    .usage = "kill NAME EXEC [options]",
    .details =
        "Without --signal, the command and all processes that it started are killed. Another "
        "signal is sent to the command only. EXEC is an id or 'last'.",
    .examples = "ripcord kill box last\tkill the newest exec\n"
                "ripcord kill box x1 --signal TERM\task the command to end",
    .groups = groups,
    .complete = "sandbox exec",
    .min_args = 2,
    .max_args = 2,
    .stop_after = -1,
    .run = run,
};
