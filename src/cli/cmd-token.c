/* ripcord token: what opens the daemon to those who come over TCP; asks no daemon. */
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/path.h"
#include "lib/base/strv.h"
#include "lib/base/token.h"
#include "lib/base/xalloc.h"

static int check(const struct cli *cli, const struct cli_args *args, struct err *err)
{
    if (args->n_words && !STREQ(args->words[0], "show")) {
        err_set(err, ERR_INVALID, "unknown word '%s'", args->words[0]);
        return err_hint(err, "'ripcord token' and 'ripcord token show' print it, "
                             "'ripcord token --rotate' makes a new one.");
    }
    if (cli->host) {
        err_set(err, ERR_UNSUPPORTED, "the token of '%s' is told on its own machine only",
                cli->host);
        return err_hint(err, "Run 'ripcord token' there.");
    }
    return 0;
}

static void print(const struct cli *cli, const struct token *t, const char *state, bool rotated)
{
    _cleanup_free_ char *file = xasprintf("%s/token", state);
    _cleanup_json_ json_t *doc = NULL;

    if (!cli->json) {
        puts(t->text);
        return;
    }
    doc = json_pack("{s:s, s:s, s:b}", "token", t->text, "file", file, "rotated", rotated);
    output_json(doc);
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_path_roots_ struct path_roots paths = PATH_ROOTS_INIT;
    _cleanup_token_ struct token t = {0};
    bool rotate = args_has(args, "rotate");
    int r;

    r = check(cli, args, err);
    if (r >= 0)
        r = path_roots_init(&paths, cli->root, err);
    if (r >= 0)
        r = path_roots_make(&paths, err);
    if (r >= 0)
        r = rotate ? token_rotate(paths.state, &t, err) : token_ensure(paths.state, &t, err);
    if (r < 0)
        return r;
    print(cli, &t, paths.state, rotate);
    return 0;
}

static const struct cli_option options[] = {
    {"rotate", 0, NULL, "make a new one: the old one opens nothing any more", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_token = {
    .name = "token",
    .summary = "print what opens the daemon over TCP",
    .usage = "token [--rotate] [show]",
    .details =
        "Prints the token that a daemon with an address to listen on ('ripcord daemon --listen', "
        "or http.listen in ripcord.yaml) asks of everybody who comes over TCP; the unix socket "
        "needs none. It is made when there is none yet. Whoever has it can do what you can do "
        "with ripcord: treat it like a password.\n\n"
        "With --rotate a new one takes its place. A daemon that runs takes it up at once, and "
        "ends the connections that were opened with the old one.",
    .examples = "ripcord token\tprint it\n"
                "RIPCORD_TOKEN=$(ssh box ripcord token) ripcord --host 127.0.0.1:7070 ls\t"
                "ask another machine's daemon, through 'ssh -L 7070:127.0.0.1:7070 box'",
    .groups = groups,
    .words = "show",
    .max_args = 1,
    .stop_after = -1,
    .run = run,
};
