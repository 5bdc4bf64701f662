#include "fake-engine/exec.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { FAKE_CHUNK = 64 << 10 };
#define FAKE_FLOOD_MAX (UINT64_C(1) << 30)

static const struct deadline never = {DEADLINE_NEVER};

void fake_exec_free(struct fake_exec *x)
{
    if (!x)
        return;
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        journal_writer_done(&x->streams[i]);
    fd_close(x->stdin_fd);
    fd_close(x->stdin_out);
    fd_close(x->dirfd);
    free(x);
}

static void put(struct fake_exec *x, enum journal_stream stream, const void *data, size_t len)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (journal_writer_append(&x->streams[stream], data, len, &err) < 0)
        log_debug("fake exec %s: %s", x->id, err.msg);
    journal_writer_trim(&x->streams[stream], x->streams[stream].end);
    if (x->idle_timeout)
        x->idle_at = deadline_in(x->idle_timeout);
}

void fake_exec_end(struct fake_exec *x, enum end_cause cause, int exit_code, int sig)
{
    _cleanup_err_ struct err err = ERR_INIT;
    const struct journal_writer *out = &x->streams[JOURNAL_STDOUT],
                                *e = &x->streams[JOURNAL_STDERR];

    if (x->ended)
        return;
    x->ended = true;
    x->stdin_fd = fd_close(x->stdin_fd);
    x->rec.cause = cause;
    x->rec.exit_code = exit_code;
    x->rec.signal = sig;
    x->rec.ended_wall = time_wall();
    x->rec.wall_usec = time_mono() - x->started_mono;
    x->rec.drained = true;
    x->rec.stdout_bytes = out->end;
    x->rec.stderr_bytes = e->end;
    x->rec.stdout_dropped = out->start;
    x->rec.stderr_dropped = e->start;
    if (end_record_write(x->dirfd, &x->rec, &err) < 0)
        log_debug("fake exec %s: %s", x->id, err.msg);
}

static void run_words(struct fake_exec *x, char **argv, enum journal_stream stream)
{
    _cleanup_free_ char *text = strv_join(argv + 1, " ");

    put(x, stream, text, strlen(text));
    put(x, stream, "\n", 1);
    fake_exec_end(x, END_EXITED, 0, 0);
}

static int run_flood(struct fake_exec *x, const char *count, struct err *err)
{
    _cleanup_free_ char *chunk = xmalloc(FAKE_CHUNK);
    uint64_t left;
    int r;

    r = parse_u64(count, 0, FAKE_FLOOD_MAX, &left, err);
    if (r < 0)
        return r;
    memset(chunk, 'x', FAKE_CHUNK);
    while (left) {
        size_t n = MIN(left, (uint64_t)FAKE_CHUNK);

        put(x, JOURNAL_STDOUT, chunk, n);
        left -= n;
    }
    fake_exec_end(x, END_EXITED, 0, 0);
    return 0;
}

static int run_exit(struct fake_exec *x, const char *status, struct err *err)
{
    uint32_t n;
    int r;

    r = parse_u32(status, 0, 255, &n, err);
    if (r < 0)
        return r;
    fake_exec_end(x, END_EXITED, (int)n, 0);
    return 0;
}

static int run_sleep(struct fake_exec *x, const char *ms, struct err *err)
{
    uint32_t n;
    int r;

    r = parse_u32(ms, 0, 3600 * 1000, &n, err);
    if (r < 0)
        return r;
    x->end_at = deadline_in(n * USEC_PER_MSEC);
    return 0;
}

static int run(struct fake_exec *x, char **argv, struct err *err)
{
    const char *cmd = argv && argv[0] ? argv[0] : "";
    const char *arg = *cmd && argv[1] ? argv[1] : "";

    if (STREQ(cmd, "echo")) {
        run_words(x, argv, JOURNAL_STDOUT);
        return 0;
    }
    if (STREQ(cmd, "err")) {
        run_words(x, argv, JOURNAL_STDERR);
        return 0;
    }
    if (STREQ(cmd, "exit"))
        return run_exit(x, arg, err);
    if (STREQ(cmd, "true"))
        return run_exit(x, "0", err);
    if (STREQ(cmd, "sleep"))
        return run_sleep(x, arg, err);
    if (STREQ(cmd, "flood"))
        return run_flood(x, arg, err);
    if (STREQ(cmd, "cat")) {
        if (x->stdin_fd < 0)
            fake_exec_end(x, END_EXITED, 0, 0); /* /dev/null */
        return 0;
    }
    if (STREQ(cmd, "fail"))
        return err_set(err, ERR_SYSTEM, "start '%s': the fake engine was told to fail", cmd);
    return err_set(err, ERR_NOT_FOUND, "start '%s': no such command", cmd);
}

static int open_folder(struct fake_exec *x, int exec_dirfd, struct err *err)
{
    if (mkdirat(exec_dirfd, x->id, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "make folder of exec '%s'", x->id);
    return dir_open(exec_dirfd, x->id, &x->dirfd, err);
}

static int open_stdin(struct fake_exec *x, struct err *err)
{
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make stdin of exec '%s'", x->id);
    x->stdin_fd = p[0];
    x->stdin_out = p[1];
    return 0;
}

static int begin(struct fake_exec *x, int exec_dirfd, const struct exec_request *req,
                 uint64_t budget, struct err *err)
{
    int r = open_folder(x, exec_dirfd, err);

    for (int i = 0; i < JOURNAL_STREAMS; i++)
        journal_writer_init(&x->streams[i], x->dirfd, (enum journal_stream)i, budget);
    if (r < 0)
        return r;
    r = req->want_stdin ? open_stdin(x, err) : 0;
    return r < 0 ? r : run(x, req->argv, err);
}

int fake_exec_start(int exec_dirfd, const struct exec_request *req, uint64_t budget,
                    struct fake_exec **ret, struct err *err)
{
    struct fake_exec *x = xnew0(struct fake_exec);
    int r;

    snprintf(x->id, sizeof(x->id), "%s", req->id);
    x->dirfd = x->stdin_fd = x->stdin_out = -1;
    x->rec.exit_code = -1;
    x->rec.started_wall = time_wall();
    x->started_mono = time_mono();
    x->end_at = x->timeout_at = x->idle_at = never;
    if (req->timeout)
        x->timeout_at = deadline_in(req->timeout);
    x->idle_timeout = req->idle_timeout;
    if (x->idle_timeout)
        x->idle_at = deadline_in(x->idle_timeout);
    r = begin(x, exec_dirfd, req, budget, err);
    if (r < 0) {
        x->rec.error = err->code;
        snprintf(x->rec.message, sizeof(x->rec.message), "%s", err->msg);
        fake_exec_end(x, END_START_FAILED, -1, 0);
    }
    *ret = x;
    return r;
}

void fake_exec_on_stdin(struct fake_exec *x)
{
    char data[4096];
    ssize_t n = read(x->stdin_fd, data, sizeof(data));

    if (n > 0)
        put(x, JOURNAL_STDOUT, data, (size_t)n);
    else if (x->end_at.at == DEADLINE_NEVER)
        fake_exec_end(x, END_EXITED, 0, 0);
    else
        x->stdin_fd = fd_close(x->stdin_fd); /* `sleep` ignores its stdin */
}

void fake_exec_on_time(struct fake_exec *x)
{
    if (deadline_passed(&x->end_at))
        fake_exec_end(x, END_EXITED, 0, 0);
    else if (deadline_passed(&x->timeout_at))
        fake_exec_end(x, END_TIMEOUT, -1, SIGKILL);
    else if (deadline_passed(&x->idle_at))
        fake_exec_end(x, END_IDLE_TIMEOUT, -1, SIGKILL);
}

struct deadline fake_exec_next(const struct fake_exec *x)
{
    uint64_t at = MIN(x->end_at.at, x->timeout_at.at);

    return (struct deadline){x->ended ? DEADLINE_NEVER : MIN(at, x->idle_at.at)};
}
