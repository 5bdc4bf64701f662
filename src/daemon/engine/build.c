/*
 * Two sides share a struct build. The worker has the write end of the pipe and the numbers of the
 * steps, behind a lock, because a build may have threads. The loop has the read end and the
 * callbacks. `done` is called when the worker has ended and the pipe was read to its end, so that
 * no line comes after it. build_cancel() writes to `stop` and closes the read end: either of them
 * wakes a worker that waits for room in the pipe.
 */
#include "daemon/engine/build.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/engine/build-body.h"
#include "daemon/engine/opener.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/text.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "lib/loop/pool.h"

enum {
    OUTPUT_PIECE = 16 << 10,
    LINE_MAX_BYTES = 6 * OUTPUT_PIECE + 1024, /* a byte takes six at most as JSON */
    READ_PIECE = 64 << 10,
};
#define BUILD_TIMEOUT (6 * 3600 * USEC_PER_SEC)

struct build_step_state {
    uint64_t began;
    char part[4]; /* the first bytes of a character, whose rest has not come yet */
    size_t n_part;
};

struct build {
    struct engine *engine;
    struct build_request req;
    struct build_body body; /* fd and dir are ours */
    struct deadline by;
    int stop; /* eventfd */

    pthread_mutex_t lock; /* protects the members up to the next comment */
    int out;
    struct build_step_state *steps;
    size_t n_steps;
    struct buf line;

    /* Of the worker, then of the loop. */
    bool failed, unopened;
    struct err err;
    char *json;

    /* Of the loop. */
    struct build_events events;
    void *arg;
    int in; /* -1: read to its end, or cancelled */
    struct loop_watch *watch;
    struct buf lines; /* read and not passed on: an unfinished line */
    bool ended, cancelled;
};

void build_request_done(struct build_request *r)
{
    fd_close(r->context);
    free(r->dockerfile);
    strv_free(r->tags);
    free(r->target);
    strv_free(r->args);
    free(r->platform);
    free(r->network);
    for (size_t i = 0; i < r->n_secrets; i++) {
        explicit_bzero(r->secrets[i].value, r->secrets[i].len);
        free(r->secrets[i].id);
        free(r->secrets[i].value);
    }
    free(r->secrets);
    for (size_t i = 0; i < r->n_logins; i++) {
        explicit_bzero(r->logins[i].password, strlen(r->logins[i].password));
        free(r->logins[i].registry);
        free(r->logins[i].username);
        free(r->logins[i].password);
    }
    free(r->logins);
    strv_free(r->agents);
    *r = (struct build_request){.context = -1};
}

/* ---- events, on the build's threads ---- */

int build_stop_fd(const struct build *b)
{
    return b->stop;
}

bool build_stopped(const struct build *b)
{
    struct pollfd p = {.fd = b->stop, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

/* Waits until the pipe has room, or the build is cancelled. */
static bool engine_build_await_room(const struct build *b)
{
    struct pollfd p[2] = {{.fd = b->out, .events = POLLOUT}, {.fd = b->stop, .events = POLLIN}};

    while (poll(p, 2, -1) < 0)
        if (errno != EINTR)
            return false;
    return !p[1].revents && !(p[0].revents & POLLERR);
}

/* With the lock held: sends the whole line, or nothing after a cancellation. */
static void engine_build_send_line(struct build *b)
{
    const char *p = buf_data(&b->line);
    size_t left = b->line.len;

    while (left && engine_build_await_room(b)) {
        ssize_t n = write(b->out, p, left);

        if (n < 0 && errno != EAGAIN && errno != EINTR)
            break;
        p += MAX(n, 0);
        left -= (size_t)MAX(n, 0);
    }
    buf_clear(&b->line);
}

static void engine_build_add_text(struct build *b, const char *key, const char *text, size_t len)
{
    if (buf_appendf(&b->line, ",\"%s\":\"", key) < 0 ||
        text_escape_json_n(&b->line, text, MIN(len, (size_t)OUTPUT_PIECE)) < 0 ||
        buf_append_c(&b->line, '"') < 0)
        abort(); /* LINE_MAX_BYTES has room for it */
}

static void engine_build_add_number(struct build *b, const char *key, uint64_t value)
{
    if (buf_appendf(&b->line, ",\"%s\":%llu", key, (unsigned long long)value) < 0)
        abort();
}

/* With the lock held. step 0: the line belongs to no step. */
static void engine_build_begin_line(struct build *b, const char *event, unsigned step)
{
    if (buf_appendf(&b->line, "{\"event\":\"%s\"", event) < 0)
        abort();
    if (step)
        engine_build_add_number(b, "step", step);
}

static void engine_build_end_line(struct build *b)
{
    if (buf_append_str(&b->line, "}\n") < 0)
        abort();
    engine_build_send_line(b);
}

static struct build_step_state *engine_build_step_of(struct build *b, unsigned step)
{
    return step && step <= b->n_steps ? &b->steps[step - 1] : NULL;
}

static uint64_t engine_build_step_ms(struct build *b, unsigned step)
{
    const struct build_step_state *s = engine_build_step_of(b, step);

    return s ? (time_mono() - s->began) / USEC_PER_MSEC : 0;
}

unsigned build_step_begin(struct build *b, const struct build_step_info *s)
{
    unsigned id = 0;

    pthread_mutex_lock(&b->lock);
    if (b->n_steps < BUILD_STEPS_MAX) {
        b->steps = xreallocarray(b->steps, b->n_steps + 1, sizeof(*b->steps));
        b->steps[b->n_steps++] = (struct build_step_state){.began = time_mono()};
        id = (unsigned)b->n_steps;
        engine_build_begin_line(b, "step", id);
        if (s->stage && *s->stage)
            engine_build_add_text(b, "stage", s->stage, MIN(strlen(s->stage), (size_t)256));
        if (s->of) {
            engine_build_add_number(b, "n", s->n);
            engine_build_add_number(b, "of", s->of);
        }
        engine_build_add_text(b, "text", s->text, MIN(strlen(s->text), (size_t)OUTPUT_PIECE / 2));
        if (s->line)
            engine_build_add_number(b, "line", s->line);
        engine_build_end_line(b);
    }
    pthread_mutex_unlock(&b->lock);
    return id;
}

void build_step_cached(struct build *b, unsigned step)
{
    pthread_mutex_lock(&b->lock);
    engine_build_begin_line(b, "cached", step);
    engine_build_end_line(b);
    pthread_mutex_unlock(&b->lock);
}

/* With the lock held. */
static void engine_build_send_output(struct build *b, unsigned step, enum build_stream stream,
                                     const char *data, size_t len)
{
    while (len) {
        size_t n = MIN(len, (size_t)OUTPUT_PIECE);

        engine_build_begin_line(b, "output", step);
        engine_build_add_text(b, "stream", stream == BUILD_STDERR ? "stderr" : "stdout", 6);
        engine_build_add_number(b, "ms", engine_build_step_ms(b, step));
        engine_build_add_text(b, "data", data, n);
        engine_build_end_line(b);
        data += n;
        len -= n;
    }
}

/* The number of bytes at the end that begin an unfinished character. */
static size_t engine_build_unfinished(const char *data, size_t len)
{
    for (size_t n = 1; n <= MIN(len, (size_t)3); n++) {
        unsigned char c = (unsigned char)data[len - n];
        size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

        if (c < 0x80 || want > 1)
            return want > n ? n : 0;
    }
    return 0;
}

/* A program's write may end within a character: its first bytes wait for the rest. */
void build_step_output(struct build *b, unsigned step, enum build_stream stream, const void *data,
                       size_t len)
{
    _cleanup_free_ char *joined = NULL;
    struct build_step_state *s;
    size_t keep;

    pthread_mutex_lock(&b->lock);
    s = engine_build_step_of(b, step);
    if (s && s->n_part && len) {
        joined = xmalloc(s->n_part + len);
        memcpy(joined, s->part, s->n_part);
        memcpy(joined + s->n_part, data, len);
        data = joined;
        len += s->n_part;
    }
    keep = s ? engine_build_unfinished(data, len) : 0;
    engine_build_send_output(b, step, stream, data, len - keep);
    if (s && len) {
        memcpy(s->part, (const char *)data + len - keep, keep);
        s->n_part = keep;
    }
    pthread_mutex_unlock(&b->lock);
}

void build_step_progress(struct build *b, unsigned step, const char *what, uint64_t current,
                         uint64_t total)
{
    pthread_mutex_lock(&b->lock);
    engine_build_begin_line(b, "progress", step);
    engine_build_add_text(b, "what", what, MIN(strlen(what), (size_t)1024));
    engine_build_add_number(b, "current", current);
    if (total)
        engine_build_add_number(b, "total", total);
    engine_build_end_line(b);
    pthread_mutex_unlock(&b->lock);
}

void build_step_end(struct build *b, unsigned step, const char *error)
{
    struct build_step_state *s;

    pthread_mutex_lock(&b->lock);
    s = engine_build_step_of(b, step);
    if (s) { /* the rest of an unfinished character will not come */
        engine_build_send_output(b, step, BUILD_STDOUT, s->part, s->n_part);
        s->n_part = 0;
    }
    engine_build_begin_line(b, "step_end", step);
    engine_build_add_number(b, "ms", engine_build_step_ms(b, step));
    if (error)
        engine_build_add_text(b, "error", error, strlen(error));
    engine_build_end_line(b);
    pthread_mutex_unlock(&b->lock);
}

void build_warning(struct build *b, const char *text, unsigned line)
{
    pthread_mutex_lock(&b->lock);
    engine_build_begin_line(b, "warning", 0);
    engine_build_add_text(b, "text", text, strlen(text));
    if (line)
        engine_build_add_number(b, "line", line);
    engine_build_end_line(b);
    pthread_mutex_unlock(&b->lock);
}

/* A list that does not fit into a line is left out, which asks for all contents. */
void build_need(struct build *b, const char *const *digits, size_t n)
{
    _Static_assert(BUILD_NEEDS_MAX * 70 < LINE_MAX_BYTES, "they fit");
    pthread_mutex_lock(&b->lock);
    engine_build_begin_line(b, "need", 0);
    if (buf_append_str(&b->line, ",\"contents\":[") < 0)
        abort();
    for (size_t i = 0; n <= BUILD_NEEDS_MAX && i < n; i++)
        if (buf_appendf(&b->line, "%s\"%.64s\"", i ? "," : "", digits[i]) < 0)
            abort();
    if (buf_append_c(&b->line, ']') < 0)
        abort();
    engine_build_end_line(b);
    pthread_mutex_unlock(&b->lock);
}

/* ---- the worker ---- */

static int engine_build_run(struct build *b)
{
    int r;

    if (build_stopped(b) || deadline_passed(&b->by))
        return err_set(&b->err, ERR_TIMEOUT, "the build did not start in time");
    b->unopened = opener_open(b->engine, &b->by, &b->err) < 0;
    if (b->unopened)
        return -(int)b->err.code;
    r = build_body_take(&b->body, b->stop, &b->req, &b->err);
    if (r < 0)
        return r;
    return b->engine->ops->build(b->engine, &b->req, b, &b->by, &b->json, &b->err);
}

static void engine_build_work(void *arg)
{
    struct build *b = arg;

    b->failed = engine_build_run(b) < 0;
    b->body.fd = fd_close(b->body.fd);
    b->out = fd_close(b->out);
}

/* ---- the loop ---- */

static void engine_build_free(struct build *b)
{
    if (!b)
        return;
    loop_watch_free(b->watch);
    fd_close(b->in);
    fd_close(b->out);
    fd_close(b->stop);
    fd_close(b->body.fd);
    free((char *)b->body.dir);
    build_request_done(&b->req);
    buf_done(&b->line);
    buf_done(&b->lines);
    free(b->steps);
    err_done(&b->err);
    free(b->json);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

DEFINE_CLEANUP(struct build *, engine_build_free);

static void engine_build_stop_reading(struct build *b)
{
    loop_watch_free(TAKE_PTR(b->watch));
    b->in = fd_close(b->in);
}

static void engine_build_maybe_done(void *arg)
{
    struct build *b = arg;

    if (!b->ended || b->in >= 0)
        return;
    b->events.done(b->arg, b->failed ? &b->err : NULL, b->json);
    engine_build_free(b);
}

static void engine_build_on_readable(void *arg, int events _unused_)
{
    struct build *b = arg;
    char *p = buf_reserve(&b->lines, READ_PIECE);
    ssize_t n = p ? read(b->in, p, READ_PIECE) : 0;
    const char *data, *last;
    size_t len;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        engine_build_stop_reading(b);
        engine_build_maybe_done(b);
        return;
    }
    buf_commit(&b->lines, (size_t)n);
    data = buf_data(&b->lines);
    last = memrchr(data, '\n', b->lines.len);
    if (!last)
        return;
    len = (size_t)(last - data) + 1;
    b->events.lines(b->arg, data, len); /* may hold or cancel the build, never frees it */
    buf_consume(&b->lines, len);
}

static void engine_build_done(void *arg)
{
    struct build *b = arg;

    opener_settle(b->engine, b->unopened ? &b->err : NULL);
    b->ended = true;
    engine_build_maybe_done(b);
}

void build_hold(struct build *b, bool on)
{
    if (b->watch)
        loop_watch_set(b->watch, on ? 0 : LOOP_READ);
}

void build_cancel(struct build *b)
{
    uint64_t one = 1;

    if (b->cancelled)
        return;
    b->cancelled = true;
    (void)!write(b->stop, &one, sizeof(one)); /* an eventfd at 0 has room */
    engine_build_stop_reading(b);
    if (b->ended)
        loop_defer(b->engine->opener->loop, engine_build_maybe_done, b);
}

static int engine_build_open_ends(struct build *b, struct err *err)
{
    int p[2];

    b->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (b->stop < 0)
        return err_sys(err, errno, "make an eventfd");
    if (pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_sys(err, errno, "make a pipe");
    b->in = p[0];
    b->out = p[1];
    b->watch = loop_watch_new(b->engine->opener->loop, b->in, engine_build_on_readable, b);
    if (!b->watch)
        return err_set(err, ERR_LIMIT, "a pipe cannot be watched");
    loop_watch_set(b->watch, LOOP_READ);
    return 0;
}

static struct build *engine_build_new(struct engine *e, struct build_request *req,
                                      const struct build_body *body,
                                      const struct build_events *events, void *arg)
{
    struct build *b = xnew0(struct build);

    b->engine = e;
    b->req = *req;
    b->req.context = -1;
    *req = (struct build_request){.context = -1};
    b->body = *body;
    b->body.dir = xstrdup(body->dir);
    b->by = deadline_in(BUILD_TIMEOUT);
    b->events = *events;
    b->arg = arg;
    b->in = b->out = b->stop = -1;
    b->line = (struct buf)BUF_INIT(LINE_MAX_BYTES);
    b->lines = (struct buf)BUF_INIT(LINE_MAX_BYTES + READ_PIECE);
    pthread_mutex_init(&b->lock, NULL);
    return b;
}

static int engine_build_check(const struct engine *e, const struct build_request *req,
                              struct err *err)
{
    if (!e->ops->build) {
        err_set(err, ERR_UNSUPPORTED, "engine '%s' cannot build images", e->ops->name);
        return err_hint(err, "Build with '--engine docker', or import an image that was built "
                             "elsewhere: 'ripcord image import'.");
    }
    if (req->digest_only && !e->ops->builds_digest_only)
        return err_set(err, ERR_UNSUPPORTED, "engine '%s' needs whole build contexts",
                       e->ops->name);
    return 0;
}

int engine_build(struct engine *e, struct build_request *req, const struct build_body *body,
                 const struct build_events *events, void *arg, struct build **ret, struct err *err)
{
    _cleanup_(engine_build_freep) struct build *b = engine_build_new(e, req, body, events, arg);
    int r = engine_build_check(e, &b->req, err);

    if (r < 0)
        return r;
    r = engine_build_open_ends(b, err);
    if (r < 0)
        return r;
    r = pool_submit(e->opener->builds, engine_build_work, engine_build_done, b, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(b);
    return 0;
}
