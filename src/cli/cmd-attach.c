/* ripcord attach: join a running exec again. */
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
    _cleanup_stream_ struct stream s = {.fd = -1};
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
    {"interactive", 'i', NULL, "pass standard input on, also without a terminal", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_attach = {
    .name = "attach",
    .summary = "join a running exec again",
    .usage = "attach NAME EXEC",
    .details = "Shows the output of EXEC from its beginning and goes on with it as 'ripcord exec' "
               "would; the exit status is the command's. EXEC may be 'last'. An exec with a "
               "terminal takes the keyboard; Ctrl-P Ctrl-Q leaves it running.",
    .examples = "ripcord attach box last\tthe newest exec",
    .groups = groups,
    .complete = "sandbox exec",
    .min_args = 2,
    .max_args = 2,
    .stop_after = -1,
    .flags = CLI_RUNS_COMMAND,
    .run = run,
};
