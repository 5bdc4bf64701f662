#include "client/stream.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "proto/exec-frames.h"

enum {
    /* Room for the largest frame and a large read after it, so that data is rarely moved. */
    STREAM_BUFFER = FRAME_PAYLOAD_MAX + FRAME_HEAD_SIZE + (256 << 10),
    STREAM_ROOM_MIN = 64 << 10,
    STREAM_OUT_MAX = FRAME_PAYLOAD_MAX + (64 << 10),
    STREAM_OFFSET_SIZE = 8,
    STREAM_GAP_SIZE = 17,
    STREAM_RETRY_USEC = 50000,
};

/* Bytes that came with the head of the response are the start of the stream. */
static int client_stream_start(struct client_stream *s, struct client *c, const char *target,
                               const json_t *body, struct err *err)
{
    _cleanup_buf_ struct buf early = BUF_INIT(STREAM_BUFFER);
    int r = client_upgrade(c, "POST", target, FRAME_PROTOCOL, body, &s->fd, &early, err);

    if (r < 0)
        return r;
    s->off = 0;
    s->len = early.len;
    memcpy(s->mem, buf_data(&early), early.len);
    return 0;
}

static void client_stream_init(struct client_stream *s, struct client *c)
{
    *s = (struct client_stream){
        .client = c, .fd = -1, .mem = xmalloc(STREAM_BUFFER), .out = BUF_INIT(STREAM_OUT_MAX)};
}

int stream_open(struct client_stream *s, struct client *c, const char *target, const json_t *body,
                struct err *err)
{
    int r;

    client_stream_init(s, c);
    r = client_stream_start(s, c, target, body, err);
    if (r < 0)
        stream_done(s);
    return r;
}

static int client_stream_attach(struct client_stream *s, struct err *err)
{
    _cleanup_free_ char *target =
        xasprintf("/v1/sandboxes/%s/execs/%s/attach?stdout_offset=%llu&stderr_offset=%llu",
                  s->sandbox, s->exec, (unsigned long long)s->next[STREAM_STDOUT],
                  (unsigned long long)s->next[STREAM_STDERR]);

    return client_stream_start(s, s->client, target, NULL, err);
}

int stream_attach(struct client_stream *s, struct client *c, const char *sandbox, const char *exec,
                  uint64_t stdout_offset, uint64_t stderr_offset, struct err *err)
{
    int r;

    client_stream_init(s, c);
    s->sandbox = xstrdup(sandbox);
    s->exec = xstrdup(exec);
    s->next[STREAM_STDOUT] = stdout_offset;
    s->next[STREAM_STDERR] = stderr_offset;
    r = client_stream_attach(s, err);
    if (r < 0)
        stream_done(s);
    return r;
}

void stream_done(struct client_stream *s)
{
    fd_close(s->fd);
    free(s->mem);
    buf_done(&s->out);
    free(s->sandbox);
    free(s->exec);
    json_decref(s->isolation);
    json_decref(s->unenforced);
    json_decref(s->warnings);
    json_decref(s->end);
    *s = (struct client_stream){.fd = -1};
}

static int client_stream_lost(struct client_stream *s, int errnum, struct err *err)
{
    s->fd = fd_close(s->fd);
    return errnum
               ? err_set(err, ERR_ENGINE, "lost the connection to the daemon: %s", strerror(errnum))
               : err_set(err, ERR_ENGINE, "the daemon closed the connection");
}

int stream_fill(struct client_stream *s, struct err *err)
{
    ssize_t n;

    if (s->off == s->len)
        s->off = s->len = 0; /* usual case: reuse memory that is in the CPU cache */
    if (STREAM_BUFFER - s->len < STREAM_ROOM_MIN) {
        memmove(s->mem, s->mem + s->off, s->len - s->off);
        s->len -= s->off;
        s->off = 0;
    }
    do
        n = recv(s->fd, s->mem + s->len, STREAM_BUFFER - s->len, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        return client_stream_lost(s, n < 0 ? errno : 0, err);
    s->len += (size_t)n;
    return 1;
}

static int client_stream_protocol_error(struct err *err, const char *what)
{
    return err_set(err, ERR_ENGINE, "protocol error of the daemon: %s", what);
}

static int client_stream_on_started(struct client_stream *s, const struct frame *f,
                                    struct stream_event *ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *sandbox, *exec;
    int r = json_parse("the daemon's frame", f->data, f->length, &doc, err);

    if (r < 0)
        return r;
    sandbox = json_string_value(json_object_get(doc, "sandbox"));
    exec = json_string_value(json_object_get(doc, "exec"));
    if (!sandbox || !exec)
        return client_stream_protocol_error(err, "started frame without names");
    free(s->sandbox);
    free(s->exec);
    s->sandbox = xstrdup(sandbox);
    s->exec = xstrdup(exec);
    json_decref(s->isolation);
    s->isolation = json_incref(json_object_get(doc, "isolation"));
    json_decref(s->unenforced);
    s->unenforced = json_incref(json_object_get(doc, "unenforced"));
    json_decref(s->warnings);
    s->warnings = json_incref(json_object_get(doc, "warnings"));
    ret->type = STREAM_STARTED;
    return 0;
}

/* Drops bytes that were delivered before. If bytes are missing, the gap is delivered first and the
 * data after it. */
static int client_stream_on_output(struct client_stream *s, const struct frame *f,
                                   struct stream_event *ret, struct err *err)
{
    int stream = f->type == FRAME_STDOUT ? STREAM_STDOUT : STREAM_STDERR;
    struct stream_event ev = {.type = STREAM_OUTPUT, .stream = stream};
    uint64_t at, next = s->next[stream];

    if (f->length < STREAM_OFFSET_SIZE)
        return client_stream_protocol_error(err, "output frame without an offset");
    at = frame_get_u64(f->data);
    ev.data = f->data + STREAM_OFFSET_SIZE;
    ev.len = f->length - STREAM_OFFSET_SIZE;
    if (at > UINT64_MAX - ev.len)
        return client_stream_protocol_error(err, "offset too large");
    if (at + ev.len <= next)
        return 0;
    if (at < next) {
        ev.data += next - at;
        ev.len -= (size_t)(next - at);
        at = next;
    }
    ev.from = at;
    ev.to = s->next[stream] = at + ev.len;
    if (at == next) {
        *ret = ev;
        return 0;
    }
    s->held = ev;
    *ret = (struct stream_event){.type = STREAM_GAP, .stream = stream, .from = next, .to = at};
    return 0;
}

static int client_stream_on_gap(struct client_stream *s, const struct frame *f,
                                struct stream_event *ret, struct err *err)
{
    int stream;
    uint64_t to;

    if (f->length != STREAM_GAP_SIZE)
        return client_stream_protocol_error(err, "gap frame of the wrong size");
    stream = (unsigned char)f->data[0];
    if (stream != STREAM_STDOUT && stream != STREAM_STDERR)
        return client_stream_protocol_error(err, "gap in an unknown stream");
    to = frame_get_u64(f->data + 9);
    if (to <= s->next[stream])
        return 0;
    *ret = (struct stream_event){
        .type = STREAM_GAP, .stream = stream, .from = s->next[stream], .to = to};
    s->next[stream] = to;
    return 0;
}

static int client_stream_on_end(struct client_stream *s, const struct frame *f,
                                struct stream_event *ret, struct err *err)
{
    int r;

    if (s->end)
        return client_stream_protocol_error(err, "two end records");
    r = json_parse("the end record", f->data, f->length, &s->end, err);
    if (r < 0)
        return r;
    ret->type = STREAM_END;
    ret->end = s->end;
    return 0;
}

static int client_stream_on_error(const struct frame *f, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r = json_parse("the daemon's error", f->data, f->length, &doc, err);

    return r < 0 ? r : json_to_err(doc, err);
}

static int client_stream_on_frame(struct client_stream *s, const struct frame *f,
                                  struct stream_event *ret, struct err *err)
{
    switch (f->type) {
    case FRAME_STARTED:
        return client_stream_on_started(s, f, ret, err);
    case FRAME_STDOUT:
    case FRAME_STDERR:
        return client_stream_on_output(s, f, ret, err);
    case FRAME_GAP:
        return client_stream_on_gap(s, f, ret, err);
    case FRAME_END:
        return client_stream_on_end(s, f, ret, err);
    case FRAME_ERROR:
        return client_stream_on_error(f, err);
    default:
        return client_stream_protocol_error(err, "frame type is reserved for clients");
    }
}

int stream_next(struct client_stream *s, struct stream_event *ret, struct err *err)
{
    *ret = s->held;
    s->held = (struct stream_event){0};
    while (ret->type == STREAM_NOTHING) {
        struct frame f;
        size_t used;
        int r = frame_parse(s->mem + s->off, s->len - s->off, &f, &used, err);

        if (r <= 0)
            return r;
        r = client_stream_on_frame(s, &f, ret, err);
        if (r < 0)
            return r;
        s->off += used;
    }
    return 0;
}

int stream_flush(struct client_stream *s, struct err *err)
{
    while (s->out.len) {
        ssize_t n = send(s->fd, buf_data(&s->out), s->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        /*
         * A peer that stopped reading may have sent the reason. The receiving side finds the error
         * frame or the end, and notices the lost connection itself.
         */
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            buf_clear(&s->out);
            return 1;
        }
        if (n < 0)
            return client_stream_lost(s, errno, err);
        buf_consume(&s->out, (size_t)n);
    }
    return 1;
}

static int client_stream_queue(struct client_stream *s, enum frame_type type, const void *data,
                               size_t len, struct err *err)
{
    if (frame_append(&s->out, type, data, len) < 0)
        return err_set(err, ERR_LIMIT, "the send queue to the daemon is full");
    return stream_flush(s, err);
}

int stream_stdin(struct client_stream *s, const void *data, size_t len, struct err *err)
{
    return client_stream_queue(s, FRAME_STDIN, data, len, err);
}

int stream_stdin_eof(struct client_stream *s, struct err *err)
{
    return client_stream_queue(s, FRAME_STDIN_EOF, NULL, 0, err);
}

int stream_signal(struct client_stream *s, int sig, struct err *err)
{
    char number = (char)sig;

    return client_stream_queue(s, FRAME_SIGNAL, &number, 1, err);
}

int stream_resize(struct client_stream *s, unsigned rows, unsigned cols, struct err *err)
{
    char size[4] = {(char)(rows >> 8), (char)rows, (char)(cols >> 8), (char)cols};

    return client_stream_queue(s, FRAME_RESIZE, size, sizeof(size), err);
}

int stream_detach(struct client_stream *s, struct err *err)
{
    return client_stream_queue(s, FRAME_DETACH, NULL, 0, err);
}

int stream_resume(struct client_stream *s, const struct deadline *by, struct err *err)
{
    s->fd = fd_close(s->fd);
    buf_clear(&s->out);
    s->held = (struct stream_event){0};
    for (;;) {
        _cleanup_err_ struct err e = ERR_INIT;

        if (client_stream_attach(s, &e) == 0)
            return 0;
        /* These codes mean that the daemon is not there, or not ready yet. */
        if ((e.code != ERR_ENGINE && e.code != ERR_SYSTEM) || deadline_passed(by))
            return err_move(err, &e);
        usleep(STREAM_RETRY_USEC);
    }
}
