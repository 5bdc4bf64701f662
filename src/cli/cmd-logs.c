/* ripcord logs: shows the output of an exec. */
#include <unistd.h>

#include "cli/cli.h"
#include "cli/follow.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/stamps.h"
#include "cli/tail.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { LOGS_TEXT_MAX = 32 << 20 };

/*
 * Output of a sandbox may contain terminal escapes, so it is escaped on a terminal. Files and pipes
 * get the raw bytes. --raw turns the escaping off.
 */
static enum render_mode mode_of(const struct cli *cli, const struct cli_args *args)
{
    if (cli->json)
        return RENDER_JSON;
    if (args_has(args, "raw"))
        return RENDER_RAW;
    return isatty(STDOUT_FILENO) || isatty(STDERR_FILENO) ? RENDER_ESCAPED : RENDER_RAW;
}

struct dump {
    const char *stream; /* "stdout" */
    int fd;
    uint64_t offset;
    enum render_mode mode;
    struct render_state state;
    struct stamps *stamps; /* or NULL */
};

static int write_out(int fd, const char *data, size_t len, struct err *err)
{
    int r = fd_write_all(fd, data, len);

    return r < 0 ? err_sys(err, -r, "write the output") : 0;
}

static int show_piece(struct dump *d, const char *data, size_t len, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(LOGS_TEXT_MAX);
    int r;

    if (d->mode == RENDER_RAW)
        return write_out(d->fd, data, len, err);
    r = d->mode == RENDER_ESCAPED ? render_escaped(&d->state, data, len, &b)
                                  : render_json(d->stream, d->offset, data, len, &b);
    if (r < 0)
        return err_set(err, ERR_LIMIT, "a piece of output is too large to display");
    return write_out(d->mode == RENDER_JSON ? STDOUT_FILENO : d->fd, buf_data(&b), b.len, err);
}

static int on_piece(void *userdata, const char *data, size_t len, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(LOGS_TEXT_MAX);
    struct dump *d = userdata;
    int r;

    if (d->stamps && stamps_add(d->stamps, d->fd - STDOUT_FILENO, d->offset, data, len, &b) < 0)
        return err_set(err, ERR_LIMIT, "a piece of output is too large to display");
    r = d->stamps ? show_piece(d, buf_data(&b), b.len, err) : show_piece(d, data, len, err);
    d->offset += len;
    return r;
}

/* Without -f, prints the output of a running exec so far, one stream after the other. */
static int dump(struct client *c, const char *sandbox, const char *exec, struct dump *d,
                struct err *err)
{
    _cleanup_free_ char *target = xasprintf("/v1/sandboxes/%s/execs/%s/%s?offset=%llu", sandbox,
                                            exec, d->stream, (unsigned long long)d->offset);
    _cleanup_buf_ struct buf rest = BUF_INIT(LOGS_TEXT_MAX);
    int r = client_download(c, target, on_piece, d, err);

    if (r < 0 || d->mode != RENDER_ESCAPED || render_finish(&d->state, &rest) < 0)
        return r;
    return write_out(d->fd, buf_data(&rest), rest.len, err);
}

/* Raises the offset as --since and --tail say. */
static int skip_to_start(struct client *c, const struct cli_args *args, const json_t *exec,
                         const struct stamps *stamps, struct dump *d, struct err *err)
{
    uint64_t lines = 0, at = 0, since = 0;
    int r = args_u64(args, "tail", 0, TAIL_MAX, &lines, err);

    if (r >= 0 && args_has(args, "tail"))
        r = tail_offset(c, args->words[0], exec, d->stream, lines, &at, err);
    if (r >= 0 && args_has(args, "since")) {
        r = stamps_parse(args_get(args, "since"), &since, err);
        at = MAX(at, stamps_offset(stamps, d->fd - STDOUT_FILENO, since));
    }
    d->offset = MAX(d->offset, at);
    return r;
}

/* Mistakes are reported before the daemon is asked. */
static int check_options(struct cli *cli, const struct cli_args *args, struct dump *out,
                         struct dump *errors, struct err *err)
{
    uint64_t unused;
    int r;

    if ((r = args_u64(args, "tail", 0, TAIL_MAX, &unused, err)) < 0 ||
        (r = args_u64(args, "stdout-offset", 0, INT64_MAX, &out->offset, err)) < 0 ||
        (r = args_u64(args, "stderr-offset", 0, INT64_MAX, &errors->offset, err)) < 0)
        return r;
    if (args_has(args, "since") && stamps_parse(args_get(args, "since"), &unused, err) < 0)
        return err_wrap(err, "--since");
    if (args_has(args, "timestamps") && cli->json)
        return err_set(err, ERR_INVALID, "--timestamps cannot be combined with --json");
    return 0;
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *exec = NULL;
    _cleanup_stream_ struct client_stream s = {.fd = -1};
    _cleanup_stamps_ struct stamps stamps = {0};
    bool timed = args_has(args, "timestamps");
    struct follow_options o = {.reading = true,
                               .json = cli->json,
                               .mode = mode_of(cli, args),
                               .stamps = timed ? &stamps : NULL};
    struct dump out = {.stream = "stdout", .fd = STDOUT_FILENO, .mode = o.mode, .stamps = o.stamps};
    struct dump errors = {
        .stream = "stderr", .fd = STDERR_FILENO, .mode = o.mode, .stamps = o.stamps};
    const char *name = args->words[0], *id, *state;
    struct client *c;
    int r;

    if ((r = check_options(cli, args, &out, &errors, err)) < 0 ||
        (r = cli_client(cli, &c, err)) < 0 ||
        (r = exec_lookup(cli, name, args->n_words > 1 ? args->words[1] : NULL, &exec, err)) < 0 ||
        ((timed || args_has(args, "since")) &&
         (r = stamps_load(cli, name, exec, &stamps, err)) < 0) ||
        (r = skip_to_start(c, args, exec, &stamps, &out, err)) < 0 ||
        (r = skip_to_start(c, args, exec, &stamps, &errors, err)) < 0)
        return r;
    id = json_text_of(exec, "id");
    state = json_text_of(exec, "state");
    if (!args_has(args, "follow") && !(state && STREQ(state, "ended"))) {
        r = dump(c, name, id, &out, err);
        return r < 0 ? r : dump(c, name, id, &errors, err);
    }
    r = stream_attach(&s, c, name, id, out.offset, errors.offset, err);
    return r < 0 ? r : follow(&s, &o, err);
}

static const struct cli_option options[] = {
    {"follow", 'f', NULL, "follow the output until the exec ends", NULL},
    {"tail", 'n', "N", "start with the last N lines of standard output and of standard error",
     NULL},
    {"since", 0, "TIME",
     "only output since this time: a duration, e.g. 10m, or a time, e.g. 2026-11-19T10:00:00Z",
     NULL},
    {"timestamps", 't', NULL, "put the time of its writing before each line", NULL},
    {"stdout-offset", 0, "N", "start at this byte of standard output", NULL},
    {"stderr-offset", 0, "N", "start at this byte of standard error", NULL},
    {"raw", 0, NULL, "do not escape control characters on a terminal", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_logs = {
    .name = "logs",
    .summary = "show the output of an exec",
    .usage = "logs NAME [EXEC] [options]",
    .details =
        "Writes the standard output of EXEC to standard output and its standard error to "
        "standard error. The default EXEC is the newest one. On a terminal, control characters "
        "are escaped.\n\n"
        "The times of --since and --timestamps are stored with the output, to 50 ms; for a command "
        "that writes for hours without a pause, to some seconds. With -f, new output gets the time "
        "of its arrival here.",
    .examples = "ripcord logs box\tshow the output of the newest exec\n"
                "ripcord logs box --tail 20 -f\tshow the last lines, and follow\n"
                "ripcord logs box --since 10m -t\tthe output of the last ten minutes, with times\n"
                "ripcord logs box -f\tfollow it until the exec ends\n"
                "ripcord logs box last --stdout-offset 4096\tresume at an offset",
    .groups = groups,
    .complete = "sandbox exec",
    .min_args = 1,
    .max_args = 2,
    .stop_after = -1,
    .run = run,
};
