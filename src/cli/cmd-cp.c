/*
 * ripcord cp: copies files between this machine and sandboxes as a tar stream. lib/base/tree.h
 * reads and writes the local files; it trusts neither the archive nor the tree. A stream between
 * two sandboxes, from stdin or to stdout is forwarded without parsing.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/sender.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"

enum { CP_PIECE = 256 << 10 };

enum side_kind { SIDE_LOCAL, SIDE_SANDBOX, SIDE_TAR };

struct cp_side {
    enum side_kind kind;
    char *name; /* owned; the sandbox of SIDE_SANDBOX, else NULL */
    char *path; /* owned */
};

/* The state of one copy. */
struct cp {
    struct cli *cli;
    const struct cli_args *args;
    struct client *client; /* connection for the sandbox, or for the source of two */
    struct progress progress;
    struct tree_stats stats; /* of one source */
    struct tree_stats total;
    struct err failure; /* the error of a stream function, which can return only an errno */
};

/* ---- the two sides ---- */

static void side_done(struct cp_side *s)
{
    free(s->name);
    free(s->path);
}
#define _cleanup_side_ __attribute__((cleanup(side_done)))

/* "NAME:PATH" is a path in a sandbox if no slash precedes the colon. A relative PATH starts in the
 * home folder. */
static int side_parse(struct cp_side *ret, const char *arg, struct err *err)
{
    const char *colon = strchr(arg, ':'), *slash = strchr(arg, '/');
    int r;

    *ret = (struct cp_side){.kind = STREQ(arg, "-") ? SIDE_TAR : SIDE_LOCAL};
    if (!colon || (slash && slash < colon)) {
        ret->path = xstrdup(arg);
        return *arg ? 0 : err_set(err, ERR_INVALID, "the path must not be empty");
    }
    ret->kind = SIDE_SANDBOX;
    ret->name = xstrndup(arg, (size_t)(colon - arg));
    r = parse_name("sandbox name", ret->name, err);
    if (r < 0)
        return err_hint(err, "For a local file with a colon in its name, write './%s'.", arg);
    ret->path = colon[1] == '/' ? xstrdup(colon + 1)
                : colon[1] != 0 ? xasprintf("/home/agent/%s", colon + 1)
                                : xstrdup("/home/agent");
    return 0;
}

static const struct cli_option rule_options[] = {
    {"user", 'u', "USER",
     "read and write in the sandbox as this user: name, UID or UID:GID "
     "(default: the sandbox's user)",
     NULL},
    {"owner", 0, "USER", "owner of the written files (another user than --user needs --user 0)",
     NULL},
    {"mode", 0, "MODE", "set this mode (octal) on each file written", NULL},
    {"parents", 'p', NULL, "create the missing folders of DST", NULL},
    {"atomic", 0, NULL, "replace each file as a whole instead of writing into it", NULL},
    {NULL, 0, NULL, NULL, NULL},
};

static const struct cli_group rule_group = {"Files in a sandbox", rule_options};
static const struct cli_group *const groups[] = {&rule_group, NULL};

/* Without a sandbox as DST only --user has a meaning. */
static int check_options(const struct cli_args *args, bool into, struct err *err)
{
    const char *owner = args_get(args, "owner"), *user = args_get(args, "user");
    const char *mode = args_get(args, "mode");
    uint64_t unused;

    for (const struct cli_option *o = rule_options + 1; o->name && !into; o++)
        if (args_has(args, o->name))
            return err_set(err, ERR_INVALID, "--%s: DST is not in a sandbox", o->name);
    if (user && parse_user(user, err) < 0)
        return err_wrap(err, "--user");
    if (owner && parse_user(owner, err) < 0)
        return err_wrap(err, "--owner");
    if (mode && parse_mode(mode, &unused, err) < 0)
        return err_wrap(err, "--mode");
    return 0;
}

/* The options are named as the query parameters are. */
static char *side_target(const struct cp *cp, const struct cp_side *s, bool into)
{
    _cleanup_free_ char *path = client_escape(s->path);
    char *target = xasprintf("/v1/sandboxes/%s/files?path=%s", s->name, path);

    for (const struct cli_option *o = rule_options; o->name; o++) {
        _cleanup_free_ char *value = NULL, *before = NULL;

        if (!args_has(cp->args, o->name) || (!into && !STREQ(o->name, "user")))
            continue;
        before = target;
        value = client_escape(o->arg ? args_get(cp->args, o->name) : "1");
        target = xasprintf("%s&%s=%s", before, o->name, value);
    }
    return target;
}

/* ---- out of a sandbox ---- */

static ssize_t read_piece(void *arg, void *data, size_t len)
{
    struct cp *cp = arg;
    ssize_t n = client_read(cp->client, data, len, &cp->failure);

    if (n > 0)
        progress_add(&cp->progress, (uint64_t)n);
    return n < 0 ? -EIO : n;
}

/* The daemon cuts the stream when the copy fails on its side after the start of the response. */
static int cut_off(struct cp *cp, struct err *err)
{
    err_done(err);
    err_move(err, &cp->failure);
    err_wrap(err, "the copy ended early");
    return err_hint(err,
                    "A file may be unreadable, or it changed during the copy. See the daemon's log "
                    "for its name.");
}

static int to_local(struct cp *cp, const struct cp_side *dst, struct err *err)
{
    char scrap[4096];
    ssize_t n;
    int r = tree_from_tar(dst->path, NULL, read_piece, cp, &cp->stats, err);

    if (cp->failure.code)
        return cut_off(cp, err);
    if (r < 0)
        return r;
    /* Bytes may follow the archive. Only the regular end of the stream proves that the copy is
     * complete. */
    do
        n = read_piece(cp, scrap, sizeof(scrap));
    while (n > 0);
    return n < 0 ? cut_off(cp, err) : 0;
}

static int to_stdout(struct cp *cp, struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(CP_PIECE);
    ssize_t n;
    int r;

    while ((n = read_piece(cp, piece, CP_PIECE)) > 0) {
        r = fd_write_all(STDOUT_FILENO, piece, (size_t)n);
        if (r < 0)
            return err_sys(err, -r, "write to standard output");
    }
    return n < 0 ? cut_off(cp, err) : 0;
}

/* ---- into a sandbox ---- */

static int send_side(struct cp *cp, struct sender *s, const struct cp_side *src, struct err *err)
{
    struct tree_stats sent = {0};
    int r;

    if (src->kind == SIDE_LOCAL)
        return tree_to_tar(src->path, sender_write, s, &sent, err);
    if (src->kind == SIDE_TAR)
        return sender_pass_fd(s, STDIN_FILENO, "standard input", err);
    r = sender_pass(s, read_piece, cp);
    return r < 0 && cp->failure.code ? cut_off(cp, err) : r;
}

static int upload(struct cp *cp, struct client *to, const struct cp_side *src,
                  const struct cp_side *dst, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    struct sender s;
    int r;

    cp->progress.on = false; /* the sender shows the progress */
    sender_init(&s, to, "PUT", side_target(cp, dst, true), cp->cli->json);
    r = sender_end(&s, send_side(cp, &s, src, err), err);
    sender_done(&s);
    if (r < 0)
        return r;
    r = client_receive(to, &doc, err);
    if (r < 0)
        return r;
    cp->stats.entries = json_number_of(doc, "entries");
    cp->stats.bytes = json_number_of(doc, "bytes");
    cp->stats.skipped = json_number_of(doc, "skipped");
    return 0;
}

/* A copy between two sandboxes needs two connections. */
static int upload_from(struct cp *cp, const struct cp_side *src, const struct cp_side *dst,
                       struct err *err)
{
    struct client second = {.http.fd = -1};
    int r;

    if (src->kind != SIDE_SANDBOX)
        return upload(cp, cp->client, src, dst, err);
    client_init_like(&second, cp->client);
    r = upload(cp, &second, src, dst, err);
    client_done(&second);
    return r;
}

/* ---- the command ---- */

static int check_sides(const struct cli *cli, const struct cp_side *src, const struct cp_side *dst,
                       struct err *err)
{
    if (src->kind != SIDE_SANDBOX && dst->kind != SIDE_SANDBOX) {
        err_set(err, ERR_INVALID, "neither SRC nor DST is in a sandbox");
        return err_hint(err, "Write a path in a sandbox as NAME:PATH.");
    }
    if (dst->kind == SIDE_TAR && cli->json)
        return err_set(err, ERR_INVALID,
                       "--json cannot be combined with a tar archive on standard output");
    if (dst->kind == SIDE_TAR && isatty(STDOUT_FILENO))
        return err_set(err, ERR_INVALID,
                       "standard output is a terminal; refusing to write a tar archive to it");
    if (src->kind == SIDE_TAR && isatty(STDIN_FILENO))
        return err_set(err, ERR_INVALID, "standard input is a terminal; expected a tar archive");
    return 0;
}

static int copy(struct cp *cp, const struct cp_side *src, const struct cp_side *dst,
                struct err *err)
{
    _cleanup_free_ char *target = NULL;
    int r = 0;

    if (src->kind == SIDE_SANDBOX) {
        target = side_target(cp, src, false);
        r = client_ask(cp->client, "GET", target, NULL, err);
    }
    if (r < 0)
        return r;
    if (dst->kind == SIDE_SANDBOX)
        return upload_from(cp, src, dst, err);
    return dst->kind == SIDE_TAR ? to_stdout(cp, err) : to_local(cp, dst, err);
}

static void print_copied(const struct cp *cp, const struct cp_side *dst)
{
    _cleanup_json_ json_t *doc = NULL;

    if (cp->cli->json) {
        doc = json_pack("{s:I, s:I, s:I}", "entries", (json_int_t)cp->total.entries, "bytes",
                        (json_int_t)cp->total.bytes, "skipped", (json_int_t)cp->total.skipped);
        output_json(doc);
    } else if (cp->total.skipped && dst->kind != SIDE_TAR) {
        output_note(false, "skipped %llu sockets, pipes or devices",
                    (unsigned long long)cp->total.skipped);
    }
}

static int copy_one(struct cp *cp, const struct cp_side *src, const struct cp_side *dst,
                    struct err *err)
{
    int r;

    cp->stats = (struct tree_stats){0};
    progress_init(&cp->progress, cp->cli->json);
    r = copy(cp, src, dst, err);
    progress_done(&cp->progress);
    err_done(&cp->failure);
    if (r < 0)
        client_disconnect(cp->client); /* the rest of a response may be on its way */
    cp->total.entries += cp->stats.entries;
    cp->total.bytes += cp->stats.bytes;
    cp->total.skipped += cp->stats.skipped;
    return r;
}

/* As cp(1), continues after a failure. The last failure is the caller's to report. */
static int copy_all(struct cp *cp, const struct cp_side *sources, size_t n,
                    const struct cp_side *dst, struct err *err)
{
    int r, worst = 0;

    for (size_t i = 0; i < n; i++) {
        if (err->code) {
            output_error(err, cp->cli->json);
            err_done(err);
        }
        r = copy_one(cp, &sources[i], dst, err);
        worst = r < 0 ? r : worst;
    }
    if (worst < 0 && !err->code)
        return err_code_exit((enum err_code) - worst);
    return worst;
}

/* Several sources go into a folder: a slash at the end of DST says so to tree_from_tar(). */
static int want_folder(const struct cp_side *sources, size_t n, struct cp_side *dst,
                       struct err *err)
{
    char *path;

    for (size_t i = 0; i < n; i++)
        if (sources[i].kind == SIDE_TAR)
            return err_set(err, ERR_INVALID, "'-' cannot be combined with other sources");
    if (dst->kind == SIDE_TAR) {
        err_set(err, ERR_INVALID, "'-' as DST takes one SRC");
        return err_hint(err, "Copy a folder that has all of them.");
    }
    path = xasprintf("%s/", dst->path);
    free(dst->path);
    dst->path = path;
    return 0;
}

static int parse_sides(struct cli *cli, const struct cli_args *args, struct cp_side *sources,
                       size_t n, struct cp_side *dst, struct err *err)
{
    int r = side_parse(dst, args->words[n], err);

    for (size_t i = 0; i < n && r >= 0; i++) {
        r = side_parse(&sources[i], args->words[i], err);
        if (r >= 0)
            r = check_sides(cli, &sources[i], dst, err);
    }
    return r >= 0 && n > 1 ? want_folder(sources, n, dst, err) : r;
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    size_t n = (size_t)args->n_words - 1;
    _cleanup_free_ struct cp_side *sources = xcalloc(n, sizeof(*sources));
    _cleanup_side_ struct cp_side dst = {0};
    struct cp cp = {.cli = cli, .args = args};
    int r;

    if ((r = parse_sides(cli, args, sources, n, &dst, err)) >= 0 &&
        (r = check_options(args, dst.kind == SIDE_SANDBOX, err)) >= 0 &&
        (r = cli_client(cli, &cp.client, err)) >= 0)
        r = copy_all(&cp, sources, n, &dst, err);
    if (r == 0)
        print_copied(&cp, &dst);
    for (size_t i = 0; i < n; i++)
        side_done(&sources[i]);
    return r;
}

const struct cli_command cmd_cp = {
    .name = "cp",
    .summary = "copy files into, out of and between sandboxes",
    .usage = "cp SRC... DST [options]",
    .details =
        "SRC or DST, or both, has the form NAME:PATH. A relative PATH starts in the home folder "
        "of the sandbox. As with 'cp -r', folders are copied with their contents and symbolic "
        "links are copied as links. If DST is an existing folder, SRC is copied into it; "
        "otherwise DST is the new name. With several SRC, DST must be an existing folder; one that "
        "fails does not stop the others. Modes and times are kept, except set-user-id and "
        "set-group-id. In the sandbox, files are read and written as a program of --user would: "
        "an existing file is written into and keeps its owner, mode and hard links, a link at its "
        "place is followed, and a file that this user may not write is refused. --atomic replaces "
        "files and links instead; then a copy that fails leaves the old file.\n\n"
        "'-' as SRC reads a tar archive from standard input; '-' as DST writes one to standard "
        "output. A stopped sandbox is started. Files from a sandbox are written only below DST, "
        "even if their names or links point elsewhere. A link in the place of DST is not followed; "
        "DST/. copies into the folder that it points to.",
    .examples = "ripcord cp ./project box:\tcopy to /home/agent/project\n"
                "ripcord cp Makefile src tests box:project\tcopy several into a folder\n"
                "ripcord cp box:out/report.pdf .\tcopy a file from the home folder\n"
                "ripcord cp box:data other:data\tcopy between sandboxes\n"
                "tar c src | ripcord cp - box:\tunpack an archive from standard input\n"
                "ripcord cp box:/etc - | tar t\tlist the files of a folder",
    .groups = groups,
    .complete = "path path+",
    .min_args = 2,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = run,
};
