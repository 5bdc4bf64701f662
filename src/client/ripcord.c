/*
 * The public library: client.h and stream.h behind opaque structs, and errors that the caller
 * owns.
 */
#include "ripcord.h"

#include <errno.h>
#include <poll.h>

#include "client/stream.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

enum { EXEC_WRITE_PIECE = 64 << 10 };
static const uint64_t exec_resume_usec = 10 * USEC_PER_SEC;

struct ripcord {
    struct client client;
};

struct ripcord_error {
    struct err err;
};

struct ripcord_exec {
    struct client client; /* its own, so that the caller's stays free for requests */
    struct client_stream stream;
    bool ended;
};

/* Hands *err over in *ret, or drops it when ret is NULL. Returns -code and leaves *err empty. */
static int client_ripcord_fail(struct ripcord_error **ret, struct err *err)
{
    int r = -(int)err->code;

    if (ret) {
        *ret = xnew0(struct ripcord_error);
        err_move(&(*ret)->err, err);
    }
    err_done(err);
    return r;
}

const char *ripcord_error_code(const struct ripcord_error *e)
{
    return err_code_name(e->err.code);
}

const char *ripcord_error_message(const struct ripcord_error *e)
{
    return e->err.msg;
}

const char *ripcord_error_hint(const struct ripcord_error *e)
{
    return e->err.hint;
}

void ripcord_error_free(struct ripcord_error *e)
{
    if (!e)
        return;
    err_done(&e->err);
    free(e);
}

int ripcord_open(const char *root, struct ripcord **ret, struct ripcord_error **err)
{
    struct ripcord *r = xnew0(struct ripcord);
    struct err e = ERR_INIT;

    if (client_init(&r->client, root, NULL, &e) < 0) {
        free(r);
        return client_ripcord_fail(err, &e);
    }
    *ret = r;
    return 0;
}

void ripcord_close(struct ripcord *r)
{
    if (!r)
        return;
    client_done(&r->client);
    free(r);
}

static int client_ripcord_parse_body(const char *body, json_t **ret, struct err *err)
{
    return body ? json_parse("the request body", body, strlen(body), ret, err) : 0;
}

int ripcord_request(struct ripcord *r, const char *method, const char *target, const char *body,
                    char **ret, struct ripcord_error **err)
{
    _cleanup_json_ json_t *doc = NULL, *answer = NULL;
    struct err e = ERR_INIT;

    if (client_ripcord_parse_body(body, &doc, &e) < 0 ||
        client_call(&r->client, method, target, doc, &answer, &e) < 0)
        return client_ripcord_fail(err, &e);
    if (ret)
        *ret = json_to_text(answer, false);
    return 0;
}

static struct ripcord_exec *client_ripcord_exec_new(struct ripcord *r)
{
    struct ripcord_exec *x = xnew0(struct ripcord_exec);

    client_init_like(&x->client, &r->client);
    x->stream.fd = -1;
    return x;
}

int ripcord_exec_start(struct ripcord *r, const char *target, const char *body,
                       struct ripcord_exec **ret, struct ripcord_error **err)
{
    _cleanup_json_ json_t *doc = NULL;
    struct ripcord_exec *x = client_ripcord_exec_new(r);
    struct err e = ERR_INIT;

    if (client_ripcord_parse_body(body, &doc, &e) < 0 ||
        stream_open(&x->stream, &x->client, target, doc, &e) < 0) {
        ripcord_exec_free(x);
        return client_ripcord_fail(err, &e);
    }
    *ret = x;
    return 0;
}

int ripcord_exec_attach(struct ripcord *r, const char *sandbox, const char *exec,
                        uint64_t stdout_offset, uint64_t stderr_offset, struct ripcord_exec **ret,
                        struct ripcord_error **err)
{
    struct ripcord_exec *x = client_ripcord_exec_new(r);
    struct err e = ERR_INIT;

    if (stream_attach(&x->stream, &x->client, sandbox, exec, stdout_offset, stderr_offset, &e) <
        0) {
        ripcord_exec_free(x);
        return client_ripcord_fail(err, &e);
    }
    *ret = x;
    return 0;
}

void ripcord_exec_free(struct ripcord_exec *x)
{
    if (!x)
        return;
    stream_done(&x->stream);
    client_done(&x->client);
    free(x);
}

int ripcord_exec_fd(const struct ripcord_exec *x)
{
    return x->stream.fd;
}

static void client_ripcord_deliver(struct ripcord_exec *x, const struct stream_event *ev,
                                   const struct ripcord_exec_events *events, void *userdata)
{
    _cleanup_free_ char *record = NULL;

    if (ev->type == STREAM_STARTED && events->started)
        events->started(userdata, x->stream.sandbox, x->stream.exec);
    if (ev->type == STREAM_OUTPUT && events->output)
        events->output(userdata, ev->stream, ev->from, ev->data, ev->len);
    if (ev->type == STREAM_GAP && events->gap)
        events->gap(userdata, ev->stream, ev->from, ev->to);
    if (ev->type == STREAM_END)
        x->ended = true;
    if (ev->type == STREAM_END && events->end) {
        record = json_to_text(ev->end, false);
        events->end(userdata, record);
    }
}

static int client_ripcord_drain(struct ripcord_exec *x, const struct ripcord_exec_events *events,
                                void *userdata, struct err *err)
{
    while (!x->ended) {
        struct stream_event ev;
        int r = stream_next(&x->stream, &ev, err);

        if (r < 0)
            return r;
        if (ev.type == STREAM_NOTHING)
            break;
        client_ripcord_deliver(x, &ev, events, userdata);
    }
    return 0;
}

static int client_ripcord_receive(struct ripcord_exec *x, struct err *err)
{
    struct deadline by = deadline_in(exec_resume_usec);
    int r = stream_fill(&x->stream, err);

    if (r >= 0 || !x->stream.exec)
        return r;
    err_done(err);
    return stream_resume(&x->stream, &by, err);
}

int ripcord_exec_step(struct ripcord_exec *x, int timeout_ms,
                      const struct ripcord_exec_events *events, void *userdata,
                      struct ripcord_error **err)
{
    struct pollfd p = {.fd = x->stream.fd, .events = POLLIN};
    struct err e = ERR_INIT;
    int n;

    /* Frames that came with the answer to the request are received already: they must not wait. */
    if (client_ripcord_drain(x, events, userdata, &e) < 0)
        return client_ripcord_fail(err, &e);
    if (x->ended)
        return 0;
    n = poll(&p, 1, timeout_ms);
    if (n < 0 && errno != EINTR) {
        err_sys(&e, errno, "wait for the daemon");
        return client_ripcord_fail(err, &e);
    }
    if (n <= 0)
        return 1;
    if (client_ripcord_receive(x, &e) < 0 || client_ripcord_drain(x, events, userdata, &e) < 0)
        return client_ripcord_fail(err, &e);
    return x->ended ? 0 : 1;
}

/* Waits until the socket has taken all. r: the result of a stream_*() sender, where 0 means that
 * some bytes are still queued. */
static int client_ripcord_flush(struct ripcord_exec *x, int r, struct err *e,
                                struct ripcord_error **err)
{
    while (r == 0) {
        struct pollfd p = {.fd = x->stream.fd, .events = POLLOUT};

        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            r = err_sys(e, errno, "wait for the daemon");
        else
            r = stream_flush(&x->stream, e);
    }
    return r < 0 ? client_ripcord_fail(err, e) : 0;
}

int ripcord_exec_write(struct ripcord_exec *x, const void *data, size_t len,
                       struct ripcord_error **err)
{
    const char *p = data;

    while (len) {
        size_t n = MIN(len, (size_t)EXEC_WRITE_PIECE);
        struct err e = ERR_INIT;
        int r = client_ripcord_flush(x, stream_stdin(&x->stream, p, n, &e), &e, err);

        if (r < 0)
            return r;
        p += n;
        len -= n;
    }
    return 0;
}

int ripcord_exec_close_stdin(struct ripcord_exec *x, struct ripcord_error **err)
{
    struct err e = ERR_INIT;

    return client_ripcord_flush(x, stream_stdin_eof(&x->stream, &e), &e, err);
}

int ripcord_exec_signal(struct ripcord_exec *x, int sig, struct ripcord_error **err)
{
    struct err e = ERR_INIT;

    return client_ripcord_flush(x, stream_signal(&x->stream, sig, &e), &e, err);
}

int ripcord_exec_resize(struct ripcord_exec *x, unsigned rows, unsigned cols,
                        struct ripcord_error **err)
{
    struct err e = ERR_INIT;

    return client_ripcord_flush(x, stream_resize(&x->stream, rows, cols, &e), &e, err);
}
