/*
 * An early error while we upload: the engine answers and closes with our bytes unread. The HTTP
 * client then stops sending and reads the answer, which is delimited by its length or chunks, never
 * by the end of the connection: Podman resets that even after a 200, because it leaves a tar's
 * padding unread.
 */
#include "dockerapi/call.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "dockerapi/connect.h"
#include "dockerapi/error-classes.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

enum { PIECE = 64 << 10, REFUSAL_MAX = 64 << 10 };

void docker_reply_done(struct docker_reply *r)
{
    json_decref(r->json);
    *r = (struct docker_reply)DOCKER_REPLY_INIT;
}

/* ---- exchanges ---- */

void exchange_done(struct exchange *x)
{
    http_client_done(&x->http);
    free(x->target);
    *x = (struct exchange)EXCHANGE_INIT;
}

/* Ours to get right: past this point what is malformed is the engine's. */
static bool call_is_path(const char *s)
{
    if (*s != '/')
        return false;
    while ((unsigned char)*s > 0x20 && *s != 0x7f)
        s++;
    return *s == '\0';
}

int exchange_open(struct exchange *x, const struct docker *d, const char *path,
                  const struct deadline *by, struct err *err)
{
    int fd = -1, r;

    if (!call_is_path(path))
        return err_set(err, ERR_INVALID, "a path of the Engine API with a blank or control byte");
    x->began = time_mono();
    r = docker_connect(d, by, &fd, err);
    if (r < 0)
        return r;
    http_client_init(&x->http, fd);
    x->http.by = *by;
    x->d = d;
    x->target = d->api ? xasprintf("/v1.%u%s", d->api, path) : xstrdup(path);
    x->path = x->target + strlen(x->target) - strlen(path);
    return 0;
}

enum docker_reason exchange_unopened(int r)
{
    if (r == -ERR_INVALID)
        return DOCKER_BAD_REQUEST;
    return r == -ERR_TIMEOUT ? DOCKER_SILENT : DOCKER_UNREACHABLE;
}

static int call_silent(const struct exchange *x, struct err *err)
{
    const char *what =
        x->http.head.status ? "did not finish its answer" : "takes connections but did not answer";
    char took[FORMAT_MAX];

    err_done(err);
    return docker_reason_err(DOCKER_SILENT, err, "the %s engine at %s %s within %s",
                             docker_flavour_name(x->d->flavour), x->d->where, what,
                             format_duration(time_mono() - x->began, took));
}

int exchange_broke(const struct exchange *x, enum docker_reason *reason, struct err *err)
{
    _cleanup_free_ char *why = err && err->msg ? xstrdup(err->msg) : xstrdup("unknown");
    enum err_code code = err ? err->code : ERR_SYSTEM;

    if (reason)
        *reason = code == ERR_TIMEOUT ? DOCKER_SILENT : DOCKER_UNREACHABLE;
    if (code == ERR_TIMEOUT)
        return call_silent(x, err);
    if (code == ERR_LIMIT)
        return err_wrap(err, "engine at %s", x->d->where);
    if (code == ERR_INVALID) {
        err_done(err);
        err_set(err, ERR_ENGINE, "what answers at %s does not speak HTTP as an engine does: %s",
                x->d->where, why);
        return err_hint(err, "Check DOCKER_HOST; a port with TLS needs DOCKER_TLS_VERIFY=1.");
    }
    err_done(err);
    docker_reason_err(DOCKER_UNREACHABLE, err, "the connection to the %s engine at %s broke: %s",
                      docker_flavour_name(x->d->flavour), x->d->where, why);
    if (x->d->tls && x->http.head.status == 0)
        return err_hint(err, "The engine may have refused '%s/cert.pem'; its log says so.",
                        x->d->endpoint.certs);
    return -ERR_ENGINE;
}

int exchange_send(struct exchange *x, const char *method, const char *extra, const json_t *body,
                  struct err *err)
{
    _cleanup_free_ char *text = body ? json_to_text(body, false) : NULL;

    return http_client_send(&x->http, method, x->target, extra, text ? "application/json" : NULL,
                            text, text ? strlen(text) : 0, err);
}

int exchange_head(struct exchange *x, struct err *err)
{
    return http_client_head(&x->http, err);
}

int exchange_ask(struct exchange *x, const struct docker *d, const char *method, const char *path,
                 const json_t *body, const struct deadline *by, struct err *err)
{
    int r;

    r = exchange_open(x, d, path, by, err);
    if (r < 0)
        return r;
    r = exchange_send(x, method, NULL, body, err);
    if (r >= 0)
        r = exchange_head(x, err);
    return r < 0 ? exchange_broke(x, NULL, err) : 0;
}

bool exchange_ok(const struct exchange *x)
{
    int status = x->http.head.status;

    return status < 300 || status == 304;
}

int exchange_refused(struct exchange *x, enum docker_reason *reason, struct err *err)
{
    _cleanup_buf_ struct buf body = BUF_INIT(REFUSAL_MAX);
    char *p;

    /* A body that is cut or over-long: its beginning and the status still say enough. */
    while ((p = buf_reserve(&body, PIECE / 16))) {
        ssize_t n = http_client_read(&x->http, p, PIECE / 16, NULL);

        if (n <= 0)
            break;
        buf_commit(&body, (size_t)n);
    }
    return docker_classify(
        &(struct docker_answer){
            .flavour = x->d->flavour,
            .path = x->path,
            .status = x->http.head.status,
            .body = buf_data(&body),
            .len = body.len,
        },
        reason, err);
}

/* ---- answers ---- */

/* load, import, pull, push, build: the status is 200 long before anything has been done. */
static bool call_is_progress(const char *path)
{
    static const char *const prefixes[] = {"/images/load", "/images/create", "/build"};

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        size_t n = strlen(prefixes[i]);

        if (strncmp(path, prefixes[i], n) == 0 && (path[n] == '\0' || path[n] == '?'))
            return true;
    }
    return false;
}

static int call_progress_error(const struct exchange *x, const json_t *line,
                               enum docker_reason *reason, struct err *err)
{
    const char *words =
        json_string_value(json_object_get(json_object_get(line, "errorDetail"), "message"));

    if (!words)
        words = json_string_value(json_object_get(line, "error"));
    if (!words)
        return 0;
    return docker_classify(
        &(struct docker_answer){
            .flavour = x->d->flavour,
            .path = x->path,
            .status = 500,
            .body = words,
            .len = strlen(words),
        },
        reason, err);
}

static int call_parse_progress(const struct exchange *x, const char *text, size_t len,
                               struct docker_reply *ret, struct err *err)
{
    while (len) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        _cleanup_json_ json_t *line = NULL;
        int r = 0;

        /* A line that is no JSON is decoration: only errors and the last line count. */
        if (n && json_parse("progress", text, n, &line, NULL) >= 0)
            r = call_progress_error(x, line, &ret->reason, err);
        if (r < 0)
            return r;
        if (line) {
            json_decref(ret->json);
            ret->json = TAKE_PTR(line);
        }
        n += end ? 1 : 0;
        text += n;
        len -= n;
    }
    return 0;
}

static bool call_is_json(const struct exchange *x, const char *text, size_t len)
{
    const char *type = http_field_get(&x->http.head, "Content-Type");

    return len && ((type && strncmp(type, "application/json", strlen("application/json")) == 0) ||
                   text[0] == '{' || text[0] == '[');
}

static int call_parse_answer(const struct exchange *x, const char *text, size_t len,
                             struct docker_reply *ret, struct err *err)
{
    int r;

    while (len && strchr(" \t\r\n", text[len - 1]))
        len--;
    if (call_is_progress(x->path))
        return call_parse_progress(x, text, len, ret, err);
    if (!call_is_json(x, text, len))
        return 0;
    r = json_parse("the engine's answer", text, len, &ret->json, err);
    if (r >= 0)
        return 0;
    ret->reason = DOCKER_OTHER;
    if (err)
        err->code = ERR_ENGINE;
    return err_wrap(err, "engine at %s", x->d->where);
}

/* The head has come, or failed to (r): status, reason and document of the whole answer. */
static int call_take_answer(struct exchange *x, int r, struct docker_reply *ret, struct err *err)
{
    _cleanup_buf_ struct buf body = BUF_INIT(0);

    if (r < 0)
        return exchange_broke(x, &ret->reason, err);
    ret->status = x->http.head.status;
    if (!exchange_ok(x))
        return exchange_refused(x, &ret->reason, err);
    r = http_client_body(&x->http, GUARD("answer size") ? DOCKER_BODY_MAX : GIB(1), &body, err);
    if (r < 0)
        return exchange_broke(x, &ret->reason, err);
    return call_parse_answer(x, buf_data(&body), body.len, ret, err);
}

/*
 * The frame of every call: connects, lets `talk` send and receive, hands over. Errors are kept in
 * one of our own meanwhile, because what an exchange makes of a failure depends on its code, and
 * the caller's may be NULL.
 */
typedef int (*talk_fn)(struct exchange *x, void *arg, struct docker_reply *reply, struct err *err);

static int call_converse(const struct docker *d, const char *path, const struct deadline *by,
                         talk_fn talk, void *arg, struct docker_reply *ret, struct err *err)
{
    _cleanup_exchange_ struct exchange x = EXCHANGE_INIT;
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_err_ struct err own = ERR_INIT;
    int r;

    r = exchange_open(&x, d, path, by, &own);
    if (r < 0)
        reply.reason = exchange_unopened(r);
    else
        r = talk(&x, arg, &reply, &own);
    if (ret) {
        *ret = (struct docker_reply){.status = reply.status, .reason = reply.reason};
        if (r >= 0)
            ret->json = TAKE_PTR(reply.json);
    }
    return r < 0 ? err_move(err, &own) : 0;
}

/* ---- plain calls ---- */

struct dockerapi_question {
    const char *method;
    const json_t *body;
};

static int call_talk_plain(struct exchange *x, void *arg, struct docker_reply *reply,
                           struct err *err)
{
    const struct dockerapi_question *q = arg;
    int r;

    r = exchange_send(x, q->method, NULL, q->body, err);
    if (r >= 0)
        r = exchange_head(x, err);
    return call_take_answer(x, r, reply, err);
}

int docker_call(const struct docker *d, const char *method, const char *path, const json_t *body,
                const struct deadline *by, struct docker_reply *ret, struct err *err)
{
    return call_converse(d, path, by, call_talk_plain, &(struct dockerapi_question){method, body},
                         ret, err);
}

/* ---- uploads ---- */

struct delivery {
    const char *method;
    const struct docker_source *source;
    bool own_fault; /* what failed is our end of it, not the engine's */
};

static ssize_t call_read_source(int fd, const struct deadline *by, char *data, size_t len,
                                struct err *err)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ssize_t n;
    int r;

    do
        r = poll(&p, 1, deadline_ms(by));
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return err_set(err, ERR_TIMEOUT, "what is to be sent to the engine does not come in time");
    do
        n = read(fd, data, len);
    while (n < 0 && errno == EINTR);
    return n < 0 ? err_sys(err, errno, "read what is to be sent to the engine") : n;
}

static int call_send_pieces(struct exchange *x, struct delivery *del, struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(PIECE);
    ssize_t n;
    int r;

    r = http_client_begin(&x->http, del->method, x->target, "application/x-tar", err);
    if (r < 0)
        return r;
    do {
        n = call_read_source(del->source->fd, &x->http.by, piece, PIECE, err);
        if (n < 0) {
            del->own_fault = true;
            return (int)n;
        }
        r = http_client_put(&x->http, piece, (size_t)n, err);
    } while (r > 0 && n > 0);
    return r;
}

static int call_talk_delivery(struct exchange *x, void *arg, struct docker_reply *reply,
                              struct err *err)
{
    struct delivery *del = arg;
    const struct docker_source *s = del->source;
    int r;

    if (s->data)
        r = http_client_send(&x->http, del->method, x->target, NULL, "application/x-tar", s->data,
                             s->len, err);
    else
        r = call_send_pieces(x, del, err);
    if (del->own_fault)
        return r;
    if (r >= 0)
        r = exchange_head(x, err);
    return call_take_answer(x, r, reply, err);
}

int docker_upload(const struct docker *d, const char *method, const char *path,
                  const struct docker_source *source, const struct deadline *by,
                  struct docker_reply *ret, struct err *err)
{
    return call_converse(d, path, by, call_talk_delivery, &(struct delivery){method, source, false},
                         ret, err);
}

/* ---- downloads ---- */

struct pickup {
    int fd;
    uint64_t left;
};

static int call_write_piece(int fd, const struct deadline *by, const char *data, size_t len,
                            struct err *err)
{
    while (len) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        ssize_t n = write(fd, data, len);

        if (n >= 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            if (poll(&p, 1, deadline_ms(by)) == 0)
                return err_set(err, ERR_TIMEOUT, "what the engine sends is not taken in time");
        } else if (errno != EINTR) {
            return err_sys(err, errno, "write what the engine sends");
        }
    }
    return 0;
}

static int call_copy_body(struct exchange *x, struct pickup *p, struct docker_reply *reply,
                          struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(PIECE);
    ssize_t n;

    while ((n = http_client_read(&x->http, piece, PIECE, err)) > 0) {
        int r;

        if ((uint64_t)n > p->left)
            return err_set(err, ERR_LIMIT, "the engine sends more than is allowed here");
        if (deadline_passed(&x->http.by))
            return err_set(err, ERR_TIMEOUT, "the engine has not sent all of it in time");
        r = call_write_piece(p->fd, &x->http.by, piece, (size_t)n, err);
        if (r < 0)
            return r;
        p->left -= (uint64_t)n;
    }
    return n < 0 ? exchange_broke(x, &reply->reason, err) : 0;
}

static int call_talk_pickup(struct exchange *x, void *arg, struct docker_reply *reply,
                            struct err *err)
{
    int r;

    r = exchange_send(x, "GET", NULL, NULL, err);
    if (r >= 0)
        r = exchange_head(x, err);
    if (r < 0 || !exchange_ok(x))
        return call_take_answer(x, r, reply, err);
    reply->status = x->http.head.status;
    return call_copy_body(x, arg, reply, err);
}

int docker_download(const struct docker *d, const char *path, int fd, uint64_t max,
                    const struct deadline *by, struct docker_reply *ret, struct err *err)
{
    return call_converse(d, path, by, call_talk_pickup, &(struct pickup){fd, max}, ret, err);
}

/* ---- hijack ---- */

struct capture {
    const json_t *body;
    struct docker_hijacked *ret;
};

static int call_talk_capture(struct exchange *x, void *arg, struct docker_reply *reply,
                             struct err *err)
{
    const struct capture *c = arg;
    struct buf early = BUF_INIT(HTTP_HEAD_MAX + MIB(1));
    const struct http_head *head = &x->http.head;
    int r;

    r = exchange_send(x, "POST", "Connection: Upgrade\r\nUpgrade: tcp\r\n", c->body, err);
    if (r >= 0)
        r = exchange_head(x, err);
    if (r < 0 || (!exchange_ok(x) && head->status != 101))
        return call_take_answer(x, r, reply, err);
    reply->status = head->status;
    if (head->chunked || head->has_length)
        return err_set(err, ERR_ENGINE,
                       "the engine at %s answered instead of handing the stream over", x->d->where);
    r = http_client_upgraded(&x->http, &early);
    if (r < 0)
        return err_set(err, ERR_ENGINE, "the engine at %s sent too much at once", x->d->where);
    fd_set_nonblock(r, false);
    *c->ret = (struct docker_hijacked){.fd = r, .early = early};
    return 0;
}

int docker_hijack(const struct docker *d, const char *path, const json_t *body,
                  const struct deadline *by, struct docker_hijacked *ret,
                  struct docker_reply *ret_reply, struct err *err)
{
    return call_converse(d, path, by, call_talk_capture, &(struct capture){body, ret}, ret_reply,
                         err);
}
