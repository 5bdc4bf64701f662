/* ripcord token: prints or replaces the API token. It does not use the daemon. */
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
        err_set(err, ERR_INVALID, "unknown action '%s'; supported: show", args->words[0]);
        return err_hint(err,
                        "Use 'ripcord token' to print the token, or 'ripcord token --rotate' to "
                        "replace it.");
    }
    if (cli->host) {
        err_set(err, ERR_UNSUPPORTED, "the token of '%s' can only be read on that machine",
                cli->host);
        return err_hint(err, "Run 'ripcord token' on that machine.");
    }
    return 0;
}

static void print(const struct cli *cli, const struct api_token *t, const char *state, bool rotated)
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
    _cleanup_token_ struct api_token t = {0};
    bool rotate = args_has(args, "rotate");
    int r;

    r = check(cli, args, err);
    if (r < 0)
        return r;
    r = path_roots_init(&paths, cli->root, err);
    if (r < 0)
        return r;
    r = path_roots_make(&paths, err);
    if (r < 0)
        return r;
    r = rotate ? token_rotate(paths.state, &t, err) : token_ensure(paths.state, &t, err);
    if (r < 0)
        return r;
    print(cli, &t, paths.state, rotate);
    return 0;
}

static const struct cli_option options[] = {
    {"rotate", 0, NULL, "replace the token; the old one becomes invalid", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_token = {
    .name = "token",
    .summary = "print the API token",
    .usage = "token [--rotate] [show]",
    .details =
        "Prints the token that clients need to connect over TCP to a daemon that listens "
        "there ('ripcord daemon --listen', or http.listen in ripcord.yaml). The unix socket "
        "needs no token. The token is created if it does not exist. It gives full access to "
        "ripcord: treat it like a password.\n\n"
        "With --rotate, a new token replaces the old one. A running daemon uses it at once and "
        "closes the connections that were opened with the old token.",
    .examples =
        "ripcord token\tprint the token\n"
        "RIPCORD_TOKEN=$(ssh box ripcord token) ripcord --host 127.0.0.1:7070 ls\tuse a daemon "
        "on another machine through 'ssh -L 7070:127.0.0.1:7070 box'",
    .groups = groups,
    .words = "show",
    .max_args = 1,
    .stop_after = -1,
    .run = run,
};
