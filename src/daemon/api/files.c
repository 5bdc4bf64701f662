/*
 * GET and PUT …/files. Here: a tree of the sandbox as a tar stream (the bytes of one file are in
 * file-raw.c). The bytes go through a pipe to or
 * from a helper inside the sandbox; this file does not parse them. The slower side holds the faster
 * one back: the pipe is not read while the client lags, and the client's body is not read while the
 * pipe is full.
 *
 * The helper's result arrives separately, through the supervisor, before or after its bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/api/call.h"
#include "daemon/api/drain.h"
#include "daemon/api/file-query.h"
#include "daemon/api/file-raw.h"
#include "daemon/core/sandbox/copy-dial.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "proto/supervisor.h"

enum {
    FILES_IN_MAX = 256 << 10, /* bytes that wait for a full pipe: more than one piece of a body */
    FILES_PIPE = 1 << 20,
};

static const char tar_type[] = "application/x-tar";

/* One upload. It lives until the helper's result has arrived and the client has its answer or has
 * disconnected. */
struct api_copy {
    struct http_req *req; /* NULL: the client has disconnected, or has its answer */
    char *name;           /* of the sandbox, for errors; owned */
    struct loop_watch *watch;
    int fd;             /* our end of the pipe; -1: closed */
    struct buf pending; /* bytes that the pipe has not taken yet */
    bool body_done;     /* the whole body has arrived */
    bool ended;         /* the helper's result has arrived: */
    struct err err;
    struct copy_result result;
};

static void files_pipe_close(struct api_copy *c)
{
    loop_watch_free(TAKE_PTR(c->watch));
    c->fd = fd_close(c->fd);
}

static void files_copy_free(struct api_copy *c)
{
    files_pipe_close(c);
    buf_done(&c->pending);
    err_done(&c->err);
    free(c->name);
    free(c);
}

static void files_on_gone(struct http_req *req)
{
    struct api_copy *c = http_req_user(req);

    c->req = NULL;
    files_pipe_close(c); /* the helper then ends */
    if (c->ended)
        files_copy_free(c);
}

/* ---- out of the sandbox ---- */

struct file_download {
    struct drain *drain;
    char *name; /* owned */
};

static void files_download_ended(void *arg, const struct err *err,
                                 const struct copy_result *result _unused_)
{
    struct file_download *d = arg;
    _cleanup_err_ struct err why = ERR_INIT;

    if (err) {
        err_copy(&why, err);
        err_wrap(&why, "sandbox '%s'", d->name);
    }
    drain_end(d->drain, err ? &why : NULL, NULL);
    free(d->name);
    free(d);
}

/* A client that names no media type is of a time when there was only one. */
static bool files_wants_tar(const struct api_call *call)
{
    const char *accept = http_field_get(http_req_head(call->req), "accept");

    return !accept || strstr(accept, tar_type);
}

static void files_get_raw(struct api_call *call)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_query_ struct file_query q = {0};

    if (file_query_read(call, false, &q, &err) < 0)
        call_reply_err(call, &err);
    else
        file_raw_get(call, &q.copy);
}

static void files_get_tar(struct api_call *call)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *what = NULL, *name = xstrdup(call->params[0]);
    _cleanup_query_ struct file_query q = {0};
    struct manager *m = call->manager;
    struct drain_config config = {.type = tar_type};
    struct file_download *d;
    struct drain *drain = NULL;
    int fd;

    if (file_query_read(call, false, &q, &err) >= 0) {
        config.what = what = xasprintf("sandbox %s: copy of '%s'", name, q.path);
        drain = drain_start(call, &config, &fd, &err);
    }
    if (!drain) {
        call_reply_err(call, &err);
        return;
    }
    d = xnew0(struct file_download);
    *d = (struct file_download){drain, TAKE_PTR(name)};
    if (manager_copy(m, d->name, &q.copy, fd, files_download_ended, d, &err) < 0) {
        drain_end(drain, &err, NULL);
        free(d->name);
        free(d);
    }
}

void handle_files_get(struct api_call *call)
{
    if (files_wants_tar(call))
        files_get_tar(call);
    else
        files_get_raw(call);
}

/* ---- into the sandbox ---- */

static struct api_copy *files_upload_start(struct api_call *call, loop_watch_fn fn,
                                           copy_done_fn done, struct err *err)
{
    struct loop *loop = api_settings(call->api)->loop;
    _cleanup_query_ struct file_query q = {0};
    struct api_copy *c;
    int p[2];

    if (file_query_read(call, true, &q, err) < 0)
        return NULL;
    if (pipe2(p, O_CLOEXEC) < 0) {
        err_sys(err, errno, "make a pipe");
        return NULL;
    }
    (void)fcntl(p[1], F_SETPIPE_SZ, FILES_PIPE); /* a smaller pipe only costs speed */
    c = xnew0(struct api_copy);
    c->name = xstrdup(call->params[0]);
    c->fd = p[1];
    c->pending.max = FILES_IN_MAX;
    c->watch = loop_watch_new(loop, c->fd, fn, c);
    if (!c->watch) {
        fd_close(p[0]);
        err_set(err, ERR_LIMIT, "cannot watch a pipe");
    } else if (manager_copy(call->manager, c->name, &q.copy, p[0], done, c, err) >= 0) {
        c->req = call_take_request(call);
        http_req_set_user(c->req, c);
        http_req_on_gone(c->req, files_on_gone);
        return c;
    }
    files_copy_free(c);
    return NULL;
}

static void files_upload_answer(struct api_copy *c)
{
    struct http_req *req = TAKE_PTR(c->req);
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL;

    if (c->err.code) {
        http_reply_err(req, NULL, &c->err);
    } else {
        doc = json_pack("{s:I, s:I, s:I}", "entries", (json_int_t)c->result.entries, "bytes",
                        (json_int_t)c->result.bytes, "skipped", (json_int_t)c->result.skipped);
        text = json_to_text(doc, false);
        http_reply(req, 200, "application/json", text, strlen(text));
    }
    files_copy_free(c);
}

/* Returns the number of bytes that the pipe has taken. After the helper has ended, the rest (the
 * padding behind an archive) is dropped, and the helper's result says whether that was right. */
static size_t files_pipe_write(struct api_copy *c, const char *data, size_t len)
{
    ssize_t n;

    if (c->fd < 0)
        return len;
    n = write(c->fd, data, len);
    if (n >= 0)
        return (size_t)n;
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    files_pipe_close(c);
    return len;
}

static void files_upload_flush(struct api_copy *c)
{
    buf_consume(&c->pending, files_pipe_write(c, buf_data(&c->pending), c->pending.len));
    if (c->watch)
        loop_watch_set(c->watch, c->pending.len ? LOOP_WRITE : 0);
    if (c->pending.len)
        return;
    if (c->body_done)
        files_pipe_close(c);
    else if (c->req)
        http_body_read(c->req, true);
}

static void files_upload_writable(void *arg, int events _unused_)
{
    files_upload_flush(arg);
}

static void files_upload_data(struct http_req *req, const char *data, size_t len)
{
    struct api_copy *c = http_req_user(req);
    size_t taken = c->pending.len ? 0 : files_pipe_write(c, data, len);

    if (taken == len)
        return;
    http_body_read(req, false);
    if (buf_append(&c->pending, data + taken, len - taken) < 0) {
        files_pipe_close(c); /* more than we asked for: the helper reports a cut archive */
        return;
    }
    loop_watch_set(c->watch, LOOP_WRITE);
}

static void files_upload_end(struct http_req *req)
{
    struct api_copy *c = http_req_user(req);

    c->body_done = true;
    if (c->ended)
        files_upload_answer(c);
    else if (!c->pending.len)
        files_pipe_close(c);
}

static void files_upload_ended(void *arg, const struct err *err, const struct copy_result *result)
{
    struct api_copy *c = arg;

    c->ended = true;
    c->result = *result;
    if (err) {
        err_copy(&c->err, err);
        err_wrap(&c->err, "sandbox '%s'", c->name);
    }
    if (!c->req) {
        files_copy_free(c);
    } else if (err || c->body_done) {
        files_upload_answer(c);
    } else { /* the client still sends: the rest is dropped, then it gets its answer */
        files_pipe_close(c);
        buf_clear(&c->pending);
        http_body_read(c->req, true);
    }
}

static void files_put_raw(struct api_call *call)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_query_ struct file_query q = {0};

    if (file_query_read(call, true, &q, &err) < 0)
        call_reply_err(call, &err);
    else
        file_raw_put(call, &q.copy);
}

/* Bodies whose bytes are not those of the file. */
static bool files_is_wrapped(const struct http_head *head, const char *type, struct err *err)
{
    if (type && strncasecmp(type, "multipart/", 10) == 0) {
        err_set(err, ERR_INVALID, "request body: Content-Type must not be multipart");
        err_hint(err, "Send the bytes of one file as the body, or several files as %s.", tar_type);
    } else if (http_field_get(head, "content-encoding")) {
        err_set(err, ERR_INVALID, "request body: Content-Encoding is not supported");
    }
    return err->code;
}

/* A tar has several files, so a condition on one of them says nothing. */
static bool files_has_condition(const struct http_head *head, struct err *err)
{
    if (!http_field_get(head, "if-match") && !http_field_get(head, "if-none-match"))
        return false;
    err_set(err, ERR_INVALID, "headers 'If-Match' and 'If-None-Match' are not allowed with %s",
            tar_type);
    return true;
}

static void files_put_tar(struct api_call *call)
{
    static const struct http_body_events events = {files_upload_data, files_upload_end};
    _cleanup_err_ struct err err = ERR_INIT;
    struct api_copy *c;

    if (files_has_condition(http_req_head(call->req), &err)) {
        call_reply_err(call, &err);
        return;
    }
    c = files_upload_start(call, files_upload_writable, files_upload_ended, &err);
    if (!c)
        call_reply_err(call, &err);
    else
        http_body_start(c->req, &events);
}

void handle_files_put(struct api_call *call)
{
    const struct http_head *head = http_req_head(call->req);
    const char *type = http_field_get(head, "content-type");
    _cleanup_err_ struct err err = ERR_INIT;

    if (type && strcasecmp(type, tar_type) == 0)
        files_put_tar(call);
    else if (files_is_wrapped(head, type, &err))
        call_reply_status(call, 415, &err);
    else
        files_put_raw(call);
}
