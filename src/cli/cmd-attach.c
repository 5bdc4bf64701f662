/* ripcord attach: follows a running exec. */
#include <unistd.h>

#include "cli/cli.h"
#include "cli/follow.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *exec = NULL;
    _cleanup_stream_ struct client_stream s = {.fd = -1};
    struct follow_options o = {
        .rejoin = true, .json = cli->json, .mode = cli->json ? RENDER_JSON : RENDER_RAW};
    struct client *c;
    int r;

    r = exec_lookup(cli, args->words[0], args->words[1], &exec, err);
    if (r < 0)
        return r;
    o.tty = json_is_true(json_object_get(exec, "tty"));
    o.input = (o.tty && isatty(STDIN_FILENO)) || args_has(args, "interactive");
    if ((r = cli_client(cli, &c, err)) < 0 ||
        (r = stream_attach(&s, c, args->words[0], json_text_of(exec, "id"), 0, 0, err)) < 0)
        return r;
    return follow(&s, &o, err);
}

static const struct cli_option options[] = {
    {"interactive", 'i', NULL, "send standard input to the command, even without a terminal", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_attach = {
    .name = "attach",
    .summary = "attach to a running exec",
    .usage = "attach NAME EXEC",
    .details =
        "Prints the output of EXEC from the beginning and then follows it, as 'ripcord exec' "
        "does. The exit status is the command's. EXEC is an id or 'last'. If the exec has a "
        "terminal, your keyboard is connected to it; Ctrl-P Ctrl-Q detaches and leaves the "
        "command running.",
    .examples = "ripcord attach box last\tattach to the newest exec",
    .groups = groups,
    .complete = "sandbox exec",
    .min_args = 2,
    .max_args = 2,
    .stop_after = -1,
    .flags = CLI_RUNS_COMMAND,
    .run = run,
};
