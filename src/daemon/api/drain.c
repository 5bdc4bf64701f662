#include "daemon/api/drain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

enum {
    DRAIN_PIECE = 64 << 10,
    DRAIN_PIECES_PER_TURN = 8,
    DRAIN_OUT_MAX = 256 << 10, /* bytes that may wait for a slow client */
    DRAIN_PIPE = 1 << 20,
};

/* Lives until the writer's result has arrived and the client has its answer or has disconnected. */
struct drain {
    struct http_req *req; /* NULL: the client has disconnected */
    const char *type;     /* static */
    char *what;           /* owned */
    bool lines;
    struct loop_watch *watch;
    int fd;         /* our end of the pipe; -1: closed */
    bool streaming; /* the answer has begun */
    bool ended;     /* drain_end() was called */
    struct err err; /* the writer's error, if it has failed */
    char *json;     /* the last line; owned */
};

/* Shared by all drains: they run on the loop's thread, and its content is used at once. */
static char scratch[DRAIN_PIECE];

static void drain_pipe_close(struct drain *d)
{
    loop_watch_free(TAKE_PTR(d->watch));
    d->fd = fd_close(d->fd);
}

static void drain_free(struct drain *d)
{
    drain_pipe_close(d);
    err_done(&d->err);
    free(d->what);
    free(d->json);
    free(d);
}

static void drain_on_gone(struct http_req *req)
{
    struct drain *d = http_req_user(req);

    d->req = NULL;
    drain_pipe_close(d); /* the writer then gets EPIPE and ends */
    if (d->ended)
        drain_free(d);
}

static void drain_on_drained(struct http_req *req)
{
    struct drain *d = http_req_user(req);

    if (d->watch)
        loop_watch_set(d->watch, LOOP_READ);
}

static void drain_begin(struct drain *d)
{
    if (!d->streaming)
        http_stream_start(d->req, 200, d->type, drain_on_drained);
    d->streaming = true;
}

static void drain_put(struct drain *d, const void *data, size_t len)
{
    drain_begin(d);
    http_stream_write(d->req, data, len);
}

static void drain_put_last_line(struct drain *d)
{
    _cleanup_json_ json_t *doc = d->err.code ? json_from_err(&d->err) : NULL;
    _cleanup_free_ char *text = doc ? json_to_text(doc, false) : xstrdup(d->json);
    _cleanup_free_ char *line = xasprintf("%.*s\n", (int)strcspn(text, "\n"), text);

    drain_put(d, line, strlen(line));
}

static void drain_answer(struct drain *d)
{
    bool failed = d->err.code;

    if (failed && !d->streaming) {
        http_reply_err(TAKE_PTR(d->req), NULL, &d->err);
    } else if (failed && !d->lines) {
        /* The status is already sent: cutting the body shows the client that it is incomplete. */
        log_warn("%s: ended early: %s", d->what, d->err.msg);
        http_stream_abort(TAKE_PTR(d->req));
    } else {
        drain_begin(d);
        if (d->lines)
            drain_put_last_line(d);
        http_stream_end(TAKE_PTR(d->req));
    }
    drain_free(d);
}

static void drain_on_readable(void *arg, int events _unused_)
{
    struct drain *d = arg;

    for (int i = 0; i < DRAIN_PIECES_PER_TURN; i++) {
        ssize_t n;

        if (http_stream_pending(d->req) >= DRAIN_OUT_MAX) {
            loop_watch_set(d->watch, 0);
            return;
        }
        n = read(d->fd, scratch, sizeof(scratch));
        if (n > 0) {
            drain_put(d, scratch, (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            drain_pipe_close(d);
            if (d->ended)
                drain_answer(d);
            return;
        } else {
            return;
        }
    }
}

struct drain *drain_start(struct api_call *call, const struct drain_config *config, int *ret_fd,
                          struct err *err)
{
    struct drain *d;
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0) {
        err_sys(err, errno, "make a pipe");
        return NULL;
    }
    (void)fcntl(p[1], F_SETPIPE_SZ, DRAIN_PIPE); /* a smaller pipe only costs speed */
    d = xnew0(struct drain);
    d->fd = p[0];
    d->type = config->type;
    d->lines = config->lines;
    d->what = xstrdup(config->what);
    d->watch = loop_watch_new(api_settings(call->api)->loop, d->fd, drain_on_readable, d);
    if (!d->watch) {
        fd_close(p[1]);
        drain_free(d);
        err_set(err, ERR_LIMIT, "cannot watch a pipe");
        return NULL;
    }
    d->req = call_take_request(call);
    http_req_set_user(d->req, d);
    http_req_on_gone(d->req, drain_on_gone);
    loop_watch_set(d->watch, LOOP_READ);
    *ret_fd = p[1];
    return d;
}

void drain_end(struct drain *d, const struct err *err, const char *json)
{
    d->ended = true;
    if (err)
        err_copy(&d->err, err);
    d->json = xstrdup(json ? json : "{}");
    if (!d->req)
        drain_free(d);
    else if ((err && !d->lines) || d->fd < 0) /* else the last bytes are still in the pipe */
        drain_answer(d);
}
