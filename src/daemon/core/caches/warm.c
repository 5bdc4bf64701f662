/*
 * A chain of asynchronous calls to the manager: create the sandbox, copy the files in, run the
 * tool, copy its cache out as an archive into an unnamed file, and let the engine make a new base
 * from it. The sandbox is removed before the result is reported, also after a failure.
 */
#include "daemon/core/caches/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/core/caches/warm-plan.h"
#include "daemon/core/sandbox/copy-dial.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/engine/caches.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "proto/supervisor.h"

#define WARM_TIMEOUT (1800 * USEC_PER_SEC)

enum { TAIL_MAX = 2048, WARMS_MAX = 4, PIECE = 1 << 18 };

struct warm {
    struct warm *next;
    struct manager *m;
    char name[SANDBOX_NAME_SIZE];
    struct warm_plan plan;
    struct engine *engine; /* of the sandbox, when that exists */
    struct exec *exec;     /* a reference, while it is watched */
    struct exec_watch watch;
    int archive; /* -1: not open yet, or handed over */
    int pipe;    /* read end of the archive's pipe; -1: all is read */
    struct loop_watch *incoming;
    bool copied; /* the sandbox reports that the archive is complete */
    uint64_t files, bytes;
    struct err err; /* reported when the sandbox is removed */
    warm_done_fn done;
    void *arg;
};

/* ---- the end ---- */

static void warm_unwatch(struct warm *w)
{
    if (!w->exec)
        return;
    exec_watch_remove(w->exec, &w->watch);
    exec_unref(TAKE_PTR(w->exec));
}

static void warm_stop_reading(struct warm *w)
{
    loop_watch_free(TAKE_PTR(w->incoming));
    w->pipe = fd_close(w->pipe);
}

static void warm_free(struct warm *w)
{
    if (!w)
        return;
    for (struct warm **at = &w->m->warms; *at; at = &(*at)->next) {
        if (*at != w)
            continue;
        *at = w->next;
        break;
    }
    warm_unwatch(w);
    warm_stop_reading(w);
    fd_close(w->archive);
    warm_plan_done(&w->plan);
    err_done(&w->err);
    free(w);
}
DEFINE_CLEANUP(struct warm *, warm_free);

void warms_drop(struct manager *m)
{
    while (m->warms)
        warm_free(m->warms);
}

static void warm_report(struct warm *w)
{
    _cleanup_json_ json_t *result = NULL;

    if (!w->err.code)
        result =
            json_pack("{s:s, s:s, s:I, s:I}", "engine", w->engine->ops->name, "tool", w->plan.tool,
                      "files", (json_int_t)w->files, "bytes", (json_int_t)w->bytes);
    else
        err_wrap(&w->err, "warm the cache of '%s'", w->plan.tool);
    w->done(w->arg, w->err.code ? &w->err : NULL, result);
    warm_free(w);
}

void warms_end(struct manager *m)
{
    const struct err why = {.code = ERR_ENGINE, .msg = (char *)"the daemon is shutting down"};

    for (struct warm *w = m->warms; w; w = w->next) {
        if (w->done)
            w->done(w->arg, &why, NULL);
        w->done = NULL;
        warm_unwatch(w);
    }
}

/* A sandbox that cannot be removed now is removed later by its leases. */
static void warm_removed(void *arg, const struct err *err, const struct sandbox *sb,
                         enum manager_action action)
{
    struct warm *w = arg;

    (void)sb;
    (void)action;
    if (w->m->closing)
        return;
    if (err && err->code != ERR_NOT_FOUND)
        manager_warn(w->m, "sandbox %s: cannot be removed now, its lease removes it later: %s",
                     w->name, err->msg);
    warm_report(w);
}

static void warm_finish(struct warm *w, const struct err *err)
{
    if (w->m->closing) /* warms_end() has reported it */
        return;
    if (err)
        err_copy(&w->err, err);
    warm_unwatch(w);
    if (manager_remove(w->m, w->name, true, warm_removed, w, NULL) < 0)
        warm_report(w);
}

/* ---- the new base ---- */

static void warm_published(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct warm *w = arg;

    (void)info;
    w->m->background_calls--;
    warm_finish(w, err);
}

/* Needs both: the pipe is at its end, and the sandbox reported success. */
static void warm_publish(struct warm *w)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (!w->copied || w->pipe >= 0)
        return;
    if (lseek(w->archive, 0, SEEK_SET) < 0) {
        err_sys(&err, errno, "read the archive");
        warm_finish(w, &err);
        return;
    }
    w->m->background_calls++;
    engine_cache_publish(w->engine, w->plan.tool, TAKE_FD(w->archive), warm_published, w);
}

static void warm_copied_out(void *arg, const struct err *err, const struct copy_result *result)
{
    struct warm *w = arg;

    if (w->m->closing)
        return;
    if (err || w->err.code) {
        warm_finish(w, err);
        return;
    }
    w->files = result->entries;
    w->bytes = result->bytes;
    w->copied = true;
    warm_publish(w);
}

/* After a failed write it reads on, so that the sandbox can finish; warm_copied_out() ends it
 * then. */
static void warm_on_incoming(void *arg, int events)
{
    static char piece[PIECE]; /* static to save stack: one thread, and not used after the return */
    struct warm *w = arg;
    ssize_t n = read(w->pipe, piece, sizeof(piece));
    int r = n > 0 && !w->err.code ? fd_write_all(w->archive, piece, (size_t)n) : 0;

    (void)events;
    if (r < 0)
        err_sys(&w->err, -r, "write the archive");
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    warm_stop_reading(w);
    warm_publish(w);
}

/* *ret: the write end, for the sandbox. */
static int warm_open_archive(struct warm *w, int *ret, struct err *err)
{
    const char *dir = w->m->config.state_dir;
    int fds[2];

    w->archive = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (w->archive < 0)
        return err_sys(err, errno, "make a file in '%s'", dir);
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    w->pipe = fds[0];
    *ret = fds[1];
    w->incoming = loop_watch_new(w->m->loop, w->pipe, warm_on_incoming, w);
    if (!w->incoming)
        return err_set(err, ERR_LIMIT, "too many descriptors are watched");
    loop_watch_set(w->incoming, LOOP_READ);
    return 0;
}

/* ---- the tool ---- */

/* The last line of stderr, where tools print the cause of a failure. */
static void warm_last_error_line(const struct exec *x, char ret[static TAIL_MAX])
{
    _cleanup_free_ char *dir = xasprintf("%s/%s/%s", x->exec_root, x->sandbox_id, x->id);
    struct journal_reader reader;
    uint64_t start = 0, end = 0;
    ssize_t n = 0;
    char *line;

    ret[0] = '\0';
    if (journal_reader_open(&reader, AT_FDCWD, dir, JOURNAL_STDERR, NULL) < 0)
        return;
    if (journal_reader_extent(&reader, &start, &end, NULL) >= 0)
        n = journal_reader_read(&reader, MAX(start, end > TAIL_MAX - 1 ? end - (TAIL_MAX - 1) : 0),
                                ret, TAIL_MAX - 1, NULL);
    journal_reader_done(&reader);
    while (n > 0 && (ret[n - 1] == '\n' || ret[n - 1] == '\r'))
        n--;
    ret[MAX(n, (ssize_t)0)] = '\0';
    line = strrchr(ret, '\n');
    if (line)
        memmove(ret, line + 1, strlen(line));
}

static void warm_check_end(const struct exec *x, struct err *err)
{
    char words[TAIL_MAX];

    if (x->start_err.code) {
        err_copy(err, &x->start_err);
    } else if (x->end.cause == END_START_FAILED) {
        err_set(err, x->end.error, "%s", x->end.message);
        if (*x->end.hint)
            err_hint(err, "%s", x->end.hint);
    } else if (x->end.cause == END_TIMEOUT) {
        err_set(err, ERR_TIMEOUT, "the tool took too long");
    } else if (x->end.cause != END_EXITED) {
        err_set(err, ERR_ENGINE, "the tool was ended: %s", end_cause_name(x->end.cause));
    } else if (x->end.exit_code != 0) {
        warm_last_error_line(x, words);
        err_set(err, ERR_INVALID, "the tool failed with exit status %d: %.500s", x->end.exit_code,
                words);
    }
}

static void warm_on_exec(void *arg, enum exec_event event)
{
    struct warm *w = arg;
    _cleanup_free_ char *path = NULL;
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_close_ int fd = -1;

    if (event != EXEC_EVENT_ENDED)
        return;
    warm_check_end(w->exec, &err);
    warm_unwatch(w);
    path = xasprintf(CACHE_ROOT "/%s", w->plan.tool);
    if (err.code || warm_open_archive(w, &fd, &err) < 0 ||
        manager_copy(w->m, w->name, &(struct sup_copy){.path = path}, TAKE_FD(fd), warm_copied_out,
                     w, &err) < 0)
        warm_finish(w, &err);
}

static void warm_run_tool(struct warm *w)
{
    struct exec_request req = {.cwd = xstrdup(WARM_HOME "/" WARM_FOLDER), .timeout = WARM_TIMEOUT};
    _cleanup_err_ struct err err = ERR_INIT;
    int r;

    req.argv = TAKE_PTR(w->plan.argv);
    r = manager_exec(w->m, w->name, &req, &w->exec, &err);
    exec_request_done(&req);
    if (r < 0) {
        warm_finish(w, &err);
        return;
    }
    w->watch = (struct exec_watch){.fn = warm_on_exec, .arg = w};
    exec_watch_add(w->exec, &w->watch);
}

/* ---- the sandbox ---- */

static void warm_copied_in(void *arg, const struct err *err, const struct copy_result *result)
{
    const struct warm *w = arg;

    (void)result;
    if (err || w->m->closing)
        warm_finish(arg, err);
    else
        warm_run_tool(arg);
}

static void warm_ensured(void *arg, const struct err *err, const struct sandbox *sb,
                         enum manager_action action)
{
    static const struct sup_copy copy = {.path = WARM_HOME, .into = true};
    struct warm *w = arg;
    _cleanup_err_ struct err why = ERR_INIT;

    (void)action;
    if (err || !sb || w->m->closing) {
        warm_finish(
            w, err ? err : &(struct err){.code = ERR_ENGINE, .msg = (char *)"the sandbox is gone"});
        return;
    }
    w->engine = sb->engine;
    if (!(sb->engine->caps & ENGINE_CAP_NET_PACKAGES) || !sb->engine->ops->cache_publish) {
        err_set(&why, ERR_UNSUPPORTED, "engine '%s' cannot warm caches on this machine",
                sb->engine->ops->name);
        warm_finish(w, &why);
        return;
    }
    if (manager_copy(w->m, w->name, &copy, TAKE_FD(w->plan.files), warm_copied_in, w, &why) < 0)
        warm_finish(w, &why);
}

static int warm_check_room(const struct manager *m, struct err *err)
{
    int n = 0;

    for (const struct warm *w = m->warms; w; w = w->next)
        n++;
    if (!m->config.state_dir)
        return err_set(err, ERR_UNSUPPORTED, "this daemon has no folder for caches");
    return n < WARMS_MAX
               ? 0
               : err_set(err, ERR_LIMIT, "too many caches are being warmed (limit %d)", WARMS_MAX);
}

int manager_warm(struct manager *m, const json_t *request, warm_done_fn done, void *arg,
                 struct err *err)
{
    _cleanup_(warm_freep) struct warm *w = xnew0(struct warm);
    char id[SANDBOX_ID_LEN + 1];
    int r;

    *w = (struct warm){
        .m = m, .archive = -1, .pipe = -1, .done = done, .arg = arg, .plan = {.files = -1}};
    r = warm_check_room(m, err);
    if (r < 0)
        return r;
    r = warm_plan_read(request, &w->plan, err);
    if (r < 0)
        return r;
    r = random_hex(id, err);
    if (r < 0)
        return r;
    snprintf(w->name, sizeof(w->name), "warm-%s", id);
    r = manager_ensure(m, w->name, w->plan.spec, warm_ensured, w, err);
    if (r < 0)
        return r;
    w->next = m->warms;
    m->warms = TAKE_PTR(w);
    return 0;
}
