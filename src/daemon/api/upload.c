#include "daemon/api/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

enum { UPLOAD_PIPE = 1 << 20, UPLOAD_PENDING_MAX = 256 << 10 };

struct upload {
    struct http_req *req; /* NULL: the peer has disconnected, or has its answer */
    struct loop_watch *watch;
    int fd;             /* our end of the pipe; -1: closed */
    struct buf pending; /* bytes that the pipe has not taken yet */
    bool body_done;     /* the whole body has arrived */
    bool ended;         /* upload_end() was called, with: */
    struct err err;
    char *json; /* owned */
    upload_whole_fn on_whole;
    void *arg;
};

static void upload_pipe_close(struct upload *u)
{
    loop_watch_free(TAKE_PTR(u->watch));
    u->fd = fd_close(u->fd);
}

static void upload_free(struct upload *u)
{
    upload_pipe_close(u);
    buf_done(&u->pending);
    err_done(&u->err);
    free(u->json);
    free(u);
}

/* Gives the request to the owner and frees the upload. */
static void upload_hand_over(struct upload *u, struct http_req *req)
{
    upload_whole_fn fn = u->on_whole;
    void *arg = u->arg;

    upload_free(u);
    fn(arg, req);
}

/* The reader finds an incomplete body and reports that. */
static void upload_on_gone(struct http_req *req)
{
    struct upload *u = http_req_user(req);

    u->req = NULL;
    upload_pipe_close(u);
    if (u->ended)
        upload_free(u);
    else if (u->on_whole)
        upload_hand_over(u, NULL);
}

/* The whole body is in the pipe. */
static void upload_body_out(struct upload *u)
{
    upload_pipe_close(u);
    if (u->on_whole && u->req && !u->ended)
        upload_hand_over(u, TAKE_PTR(u->req));
}

static void api_upload_answer(struct upload *u)
{
    struct http_req *req = TAKE_PTR(u->req);

    if (u->err.code)
        http_reply_err(req, NULL, &u->err);
    else
        http_reply(req, 200, "application/json", u->json, strlen(u->json));
    upload_free(u);
}

/* Returns the number of bytes that the pipe has taken. After the reader has ended, the rest is
 * dropped, and the reader's result says whether that was right. */
static size_t upload_pipe_write(struct upload *u, const char *data, size_t len)
{
    ssize_t n;

    if (u->fd < 0)
        return len;
    n = write(u->fd, data, len);
    if (n >= 0)
        return (size_t)n;
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    upload_pipe_close(u);
    return len;
}

static void upload_on_writable(void *arg, int events _unused_)
{
    struct upload *u = arg;

    buf_consume(&u->pending, upload_pipe_write(u, buf_data(&u->pending), u->pending.len));
    if (u->watch)
        loop_watch_set(u->watch, u->pending.len ? LOOP_WRITE : 0);
    if (u->pending.len)
        return;
    if (u->body_done)
        upload_body_out(u);
    else if (u->req)
        http_body_read(u->req, true);
}

static void upload_on_data(struct http_req *req, const char *data, size_t len)
{
    struct upload *u = http_req_user(req);
    size_t taken = u->pending.len ? 0 : upload_pipe_write(u, data, len);

    if (taken == len)
        return;
    http_body_read(req, false);
    if (buf_append(&u->pending, data + taken, len - taken) < 0) {
        upload_pipe_close(u); /* more than we asked for: the reader reports a cut body */
        return;
    }
    loop_watch_set(u->watch, LOOP_WRITE);
}

static void upload_on_end(struct http_req *req)
{
    struct upload *u = http_req_user(req);

    u->body_done = true;
    if (u->ended)
        api_upload_answer(u);
    else if (!u->pending.len)
        upload_body_out(u);
}

struct upload *upload_start(struct api_call *call, int *ret_fd, struct err *err)
{
    static const struct http_body_events events = {upload_on_data, upload_on_end};
    struct upload *u;
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0) {
        err_sys(err, errno, "make a pipe");
        return NULL;
    }
    (void)fcntl(p[1], F_SETPIPE_SZ, UPLOAD_PIPE); /* a smaller pipe only costs speed */
    u = xnew0(struct upload);
    u->fd = p[1];
    u->pending.max = UPLOAD_PENDING_MAX;
    u->watch = loop_watch_new(api_settings(call->api)->loop, u->fd, upload_on_writable, u);
    if (!u->watch) {
        fd_close(p[0]);
        upload_free(u);
        err_set(err, ERR_LIMIT, "cannot watch a pipe");
        return NULL;
    }
    u->req = call_take_request(call);
    http_req_set_user(u->req, u);
    http_req_on_gone(u->req, upload_on_gone);
    http_body_start(u->req, &events);
    *ret_fd = p[0];
    return u;
}

void upload_on_whole(struct upload *u, upload_whole_fn fn, void *arg)
{
    u->on_whole = fn;
    u->arg = arg;
}

void upload_end(struct upload *u, const struct err *err, const char *json)
{
    u->ended = true;
    if (err)
        err_copy(&u->err, err);
    else
        u->json = xstrdup(json);
    if (!u->req) {
        upload_free(u);
    } else if (err || u->body_done) {
        api_upload_answer(u);
    } else { /* the peer still sends: the rest is dropped, then it gets its answer */
        upload_pipe_close(u);
        buf_clear(&u->pending);
        http_body_read(u->req, true);
    }
}
