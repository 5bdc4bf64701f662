/*
 * Reads JSON lines from a body that may last for days. A line is returned as soon as it is
 * complete, wherever chunks and segments are cut.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "dockerapi/call.h"
#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/xalloc.h"

enum { PIECE = 16 << 10, FILE_PIECE = 256 << 10, LINE_MAX_BYTES = 1 << 20 };

struct docker_stream {
    struct exchange x;
    struct buf line; /* bytes that were read but not returned yet */
    size_t scanned;  /* this many of them have no line feed */
    bool ended;      /* the body is complete */
};

void docker_stream_close(struct docker_stream *s)
{
    if (!s)
        return;
    exchange_done(&s->x);
    buf_done(&s->line);
    free(s);
}

int docker_stream_fd(const struct docker_stream *s)
{
    return s->x.http.fd;
}

/* The request that starts a stream. */
struct docker_request {
    const char *method;
    const json_t *body;
    const char *extra; /* header lines, or NULL */
    int fd;            /* the file of an upload, instead of the body; else -1 */
};

/* Stops if the engine answers before the end: its answer has the reason. */
static int dockerapi_stream_send_file(struct docker_stream *s, const struct docker_request *q,
                                      struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(FILE_PIECE);
    ssize_t n;
    int r;

    r = http_client_begin(&s->x.http, q->method, s->x.target, "application/x-tar", err);
    if (r < 0)
        return r;
    do {
        n = fd_read_full(q->fd, piece, FILE_PIECE);
        if (n < 0)
            return err_sys(err, (int)-n, "upload to the engine: read the source");
        r = http_client_put(&s->x.http, piece, (size_t)n, err);
    } while (r > 0 && n > 0);
    return MIN(r, 0);
}

static int dockerapi_stream_ask(struct docker_stream *s, const struct docker_request *q,
                                struct docker_reply *reply, struct err *err)
{
    int r;

    r = q->fd >= 0 ? dockerapi_stream_send_file(s, q, err)
                   : exchange_send(&s->x, q->method, q->extra, q->body, err);
    if (r < 0 || exchange_head(&s->x, err) < 0)
        return exchange_broke(&s->x, &reply->reason, err);
    reply->status = s->x.http.head.status;
    return exchange_ok(&s->x) ? 0 : exchange_refused(&s->x, &reply->reason, err);
}

static int dockerapi_stream_open(const struct docker *d, const char *path,
                                 const struct docker_request *q, int stop_fd,
                                 const struct deadline *by, struct docker_stream **ret,
                                 struct docker_reply *ret_reply, struct err *err)
{
    _cleanup_(docker_stream_closep) struct docker_stream *s = xnew0(struct docker_stream);
    struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_err_ struct err own = ERR_INIT;
    int r;

    s->x = (struct exchange)EXCHANGE_INIT;
    s->line = (struct buf)BUF_INIT(GUARD("line size") ? LINE_MAX_BYTES + PIECE : GIB(1));
    r = exchange_open(&s->x, d, path, by, &own);
    if (r < 0) {
        reply.reason = exchange_unopened(r);
    } else {
        s->x.http.stop_fd = stop_fd;
        r = dockerapi_stream_ask(s, q, &reply, &own);
    }
    if (ret_reply)
        *ret_reply = reply;
    if (r < 0)
        return err_move(err, &own);
    *ret = TAKE_PTR(s);
    return 0;
}

int docker_stream_open(const struct docker *d, const char *method, const char *path,
                       const json_t *body, int stop_fd, const struct deadline *by,
                       struct docker_stream **ret, struct docker_reply *ret_reply, struct err *err)
{
    return dockerapi_stream_open(d, path, &(struct docker_request){method, body, NULL, -1}, stop_fd,
                                 by, ret, ret_reply, err);
}

int docker_stream_ask(const struct docker *d, const char *path, const char *extra,
                      const struct deadline *by, struct docker_stream **ret, struct err *err)
{
    return dockerapi_stream_open(d, path, &(struct docker_request){"POST", NULL, extra, -1}, -1, by,
                                 ret, NULL, err);
}

int docker_stream_upload(const struct docker *d, const char *path, int fd, int stop_fd,
                         const struct deadline *by, struct docker_stream **ret,
                         struct docker_reply *ret_reply, struct err *err)
{
    return dockerapi_stream_open(d, path, &(struct docker_request){"POST", NULL, NULL, fd}, stop_fd,
                                 by, ret, ret_reply, err);
}

/* 1: the first *ret_len bytes of the buffer are a line, without its line feed. 0: not complete. */
static int dockerapi_stream_take_line(struct docker_stream *s, size_t *ret_len)
{
    char *data = buf_data(&s->line), *lf;

    lf = memchr(data + s->scanned, '\n', s->line.len - s->scanned);
    if (!lf && !(s->ended && s->line.len)) {
        s->scanned = s->line.len;
        return 0;
    }
    *ret_len = lf ? (size_t)(lf - data) : s->line.len;
    return 1;
}

/* 1: *ret is a document; 0: no line is complete yet. Blank lines are skipped. */
static int dockerapi_stream_next_document(struct docker_stream *s, json_t **ret, struct err *err)
{
    size_t len;

    while (dockerapi_stream_take_line(s, &len)) {
        const char *text = buf_data(&s->line);
        bool blank = strspn(text, " \t\r") >= len;
        int r = blank ? 0 : json_parse_output("line of the engine", text, len, ret, err);

        buf_consume(&s->line, MIN(len + 1, s->line.len));
        s->scanned = 0;
        if (r < 0) {
            if (err)
                err->code = ERR_ENGINE;
            return err ? err_wrap(err, "engine at %s", s->x.d->where) : -ERR_ENGINE;
        }
        if (*ret)
            return 1;
    }
    return 0;
}

bool docker_stream_stopped(const struct docker_stream *s)
{
    struct pollfd p = {.fd = s->x.http.stop_fd, .events = POLLIN};

    return p.fd >= 0 && poll(&p, 1, 0) > 0;
}

static int dockerapi_stream_read_more(struct docker_stream *s, struct err *err)
{
    char *p = buf_reserve(&s->line, PIECE);
    ssize_t n;

    if (!p)
        return err_set(err, ERR_ENGINE, "engine at %s: a line is too long (at most %d KiB)",
                       s->x.d->where, LINE_MAX_BYTES >> 10);
    n = http_client_read(&s->x.http, p, PIECE, err);
    if (n == -ERR_TIMEOUT)
        return -ERR_TIMEOUT;
    if (n < 0)
        return exchange_broke(&s->x, NULL, err);
    s->ended = n == 0;
    buf_commit(&s->line, (size_t)n);
    return 0;
}

int docker_stream_next(struct docker_stream *s, const struct deadline *by, json_t **ret,
                       struct err *err)
{
    _cleanup_err_ struct err own = ERR_INIT;
    json_t *doc = NULL;
    int r;

    s->x.http.by = *by;
    while ((r = dockerapi_stream_next_document(s, &doc, &own)) == 0 && !s->ended &&
           !docker_stream_stopped(s)) {
        r = dockerapi_stream_read_more(s, &own);
        if (r == -ERR_TIMEOUT && docker_stream_stopped(s))
            return 0;
        if (r < 0)
            break;
    }
    if (r < 0)
        return err_move(err, &own);
    if (doc)
        *ret = doc;
    return r;
}
