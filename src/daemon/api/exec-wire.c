/*
 * Output: frames of up to 256 KiB, each in one malloc'd block that the connection takes over. The
 * journal is read only while little data is pending. A slow client therefore delays the reading,
 * and the command only after a whole journal budget. Input: stdin frames are written to the pipe
 * without blocking. While the pipe is full, nothing is read from the client.
 *
 * The stdin descriptor moves here from the exec (that of a terminal is duplicated), so its watch
 * cannot outlive it.
 */
#include "daemon/api/exec-wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/api/package-counts.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "proto/exec-frames.h"

enum {
    PIECE_MAX = 256 << 10,
    PENDING_MAX = 512 << 10, /* two pieces: one in the kernel, one ready */
    STDIN_PENDING_MAX = 256 << 10,
    DATA_HEAD = FRAME_HEAD_SIZE + 8, /* frame head and offset in front of the bytes */
    IN_MAX = FRAME_HEAD_SIZE + FRAME_PAYLOAD_MAX,
};

struct exec_wire {
    struct wire_config config;
    struct http_req *req; /* NULL: the client has disconnected */
    struct exec *exec;    /* NULL: the replay of an exec that has ended */
    struct output_stream *stream;
    bool started_sent, finished; /* finished: END or ERROR is sent */
    bool kept;                   /* the client said DETACH */
    bool removing;               /* exec_wire_removed() will free this */

    struct package_counts *package_counts; /* NULL: not requested */
    json_t *packages;                      /* the result; NULL: none */
    bool counted;                          /* the counting was stopped */
    bool counting;                         /* its result is not known yet: END waits for it */
    bool at_end;                           /* everything except END is sent */

    struct buf in; /* an incomplete frame */
    int stdin_fd;
    struct loop_watch *stdin_watch;
    struct buf stdin_pending;
    bool stdin_eof, stdin_closed, stdin_broken;
};

static void exec_wire_stdin_drop(struct exec_wire *s)
{
    loop_watch_free(TAKE_PTR(s->stdin_watch));
    s->stdin_fd = fd_close(s->stdin_fd);
    buf_done(&s->stdin_pending);
}

static void exec_wire_free(struct exec_wire *s)
{
    exec_wire_stdin_drop(s);
    package_counts_free(s->package_counts);
    json_decref(s->packages);
    output_stream_free(s->stream);
    exec_unref(s->exec);
    buf_done(&s->in);
    free(s);
}

/* ---- out ---- */

static void exec_wire_send_json(struct exec_wire *s, enum frame_type type, const char *text)
{
    struct buf b = BUF_INIT(IN_MAX);

    if (frame_append(&b, type, text, strlen(text)) >= 0)
        http_raw_write(s->req, buf_data(&b), b.len);
    buf_done(&b);
}

/* `ripcord show` has them for a named sandbox. For `run`, only this frame can report them. */
static void exec_wire_add_warnings(const struct exec_wire *s, json_t *o)
{
    const struct sandbox *sb =
        s->config.run ? manager_find(s->config.manager, s->exec->sandbox_name, NULL) : NULL;

    if (sb && sb->unenforced)
        json_object_set_new(o, "unenforced", spec_limit_names(sb->unenforced));
    if (sb && sb->warnings)
        json_object_set_new(o, "warnings", json_from_strv(sb->warnings));
}

static void exec_wire_send_started(struct exec_wire *s)
{
    _cleanup_json_ json_t *o = NULL;
    _cleanup_free_ char *text = NULL;

    /* The replay of an exec that has ended begins with its output. */
    if (s->started_sent || !s->exec || s->exec->state != EXEC_RUNNING)
        return;
    s->started_sent = true;
    o = json_pack("{s:s, s:s, s:i}", "sandbox", s->exec->sandbox_name, "exec", s->exec->id, "pid",
                  s->exec->pid);
    exec_wire_add_warnings(s, o);
    text = json_to_text(o, false);
    exec_wire_send_json(s, FRAME_STARTED, text);
}

static void exec_wire_send_error(struct exec_wire *s, const struct err *err)
{
    _cleanup_json_ json_t *o = json_from_err(err);
    _cleanup_free_ char *text = json_to_text(o, false);

    exec_wire_send_json(s, FRAME_ERROR, text);
}

static void exec_wire_send_gap(struct exec_wire *s, const struct output_chunk *chunk)
{
    char frame[FRAME_HEAD_SIZE + 17];

    frame_put_head(frame, FRAME_GAP, 17);
    frame[FRAME_HEAD_SIZE] = chunk->which == JOURNAL_STDOUT ? 1 : 2;
    frame_put_u64(frame + FRAME_HEAD_SIZE + 1, chunk->offset);
    frame_put_u64(frame + FRAME_HEAD_SIZE + 9, chunk->to);
    http_raw_write(s->req, frame, sizeof(frame));
}

static void exec_wire_send_data(struct exec_wire *s, char *block, const struct output_chunk *chunk)
{
    frame_put_head(block, chunk->which == JOURNAL_STDOUT ? FRAME_STDOUT : FRAME_STDERR,
                   (uint32_t)chunk->len + 8);
    frame_put_u64(block + FRAME_HEAD_SIZE, chunk->offset);
    http_raw_take(s->req, block, DATA_HEAD + chunk->len);
}

static void exec_wire_close_connection(struct exec_wire *s)
{
    struct http_req *req = TAKE_PTR(s->req);

    exec_wire_free(s);
    http_raw_close(req);
}

static void exec_wire_removed(void *arg, const struct err *err, const struct sandbox *sb,
                              enum manager_action action)
{
    struct exec_wire *s = arg;

    (void)err; /* the sandbox is then in state failed, with the reason */
    (void)sb;
    (void)action;
    s->removing = false;
    if (s->req)
        exec_wire_close_connection(s);
    else
        exec_wire_free(s);
}

/* After the last frame: the connection of a `run` stays until its sandbox is removed. */
static void exec_wire_finish(struct exec_wire *s)
{
    s->finished = true;
    exec_wire_stdin_drop(s);
    if (s->config.run && manager_remove(s->config.manager, s->exec->sandbox_name, true,
                                        exec_wire_removed, s, NULL) >= 0)
        s->removing = true;
    else
        exec_wire_close_connection(s);
}

/* The end record, plus the package figures if this client asked for them. */
static void exec_wire_send_record(struct exec_wire *s)
{
    const char *record = output_stream_end_text(s->stream);
    _cleanup_json_ json_t *o = NULL;
    _cleanup_free_ char *text = NULL;

    if (!s->packages || json_parse("end record", record, strlen(record), &o, NULL) < 0) {
        exec_wire_send_json(s, FRAME_END, record);
        return;
    }
    json_object_set(o, "packages", s->packages);
    text = json_to_text(o, false);
    exec_wire_send_json(s, FRAME_END, text);
}

static void exec_wire_send_end(struct exec_wire *s)
{
    s->at_end = true;
    if (s->counting)
        return;
    if (s->exec && s->exec->start_err.code)
        exec_wire_send_error(s, &s->exec->start_err);
    else
        exec_wire_send_record(s);
    exec_wire_finish(s);
}

static void exec_wire_on_package_counts(void *arg, json_t *packages)
{
    struct exec_wire *s = arg;

    s->counting = false;
    s->packages = json_incref(packages);
    if (s->at_end && s->req && !s->finished)
        exec_wire_send_end(s);
}

/* Starts when the sandbox id is known. A sandbox without id has not fetched anything yet. */
static void exec_wire_start_package_counts(struct exec_wire *s)
{
    struct packages_proxy *proxy = manager_settings(s->config.manager)->packages;

    if (s->config.stats && proxy && !s->package_counts && *s->exec->sandbox_id)
        s->package_counts = package_counts_new(proxy, s->exec->sandbox_id);
}

/* Stops at the end of the command, because the counters of a `run` are dropped right after it. */
static void exec_wire_stop_package_counts(struct exec_wire *s)
{
    if (!s->package_counts || s->counted)
        return;
    s->counted = true;
    s->counting = package_counts_stop(s->package_counts, exec_wire_on_package_counts, s);
}

/* Sends one piece. False: there is nothing more for now, or everything is sent. */
static bool exec_wire_pump_one(struct exec_wire *s)
{
    _cleanup_err_ struct err err = ERR_INIT;
    size_t room = MIN(output_stream_available(s->stream), (size_t)PIECE_MAX);
    _cleanup_free_ char *block = room ? xmalloc(DATA_HEAD + room) : NULL;
    struct output_chunk chunk;

    if (output_stream_read(s->stream, block ? block + DATA_HEAD : NULL, room, &chunk, &err) < 0) {
        exec_wire_send_error(s, &err);
        exec_wire_finish(s);
        return false;
    }
    if (chunk.kind == OUTPUT_DATA)
        exec_wire_send_data(s, TAKE_PTR(block), &chunk);
    else if (chunk.kind == OUTPUT_GAP)
        exec_wire_send_gap(s, &chunk);
    else if (chunk.kind == OUTPUT_END)
        exec_wire_send_end(s);
    return chunk.kind == OUTPUT_DATA || chunk.kind == OUTPUT_GAP;
}

static void exec_wire_pump(struct exec_wire *s)
{
    /* STARTED is always the first frame, also if output arrives before it. */
    if (!s->req || s->finished || s->at_end || (s->exec && s->exec->state == EXEC_STARTING))
        return;
    exec_wire_send_started(s);
    while (http_stream_pending(s->req) < PENDING_MAX && exec_wire_pump_one(s))
        ;
}

static void exec_wire_on_drain(struct http_req *req)
{
    exec_wire_pump(http_req_user(req));
}

/* ---- stdin ---- */

static void exec_wire_stdin_flush(struct exec_wire *s);

static void exec_wire_stdin_writable(void *arg, int events)
{
    (void)events;
    exec_wire_stdin_flush(arg);
}

static void exec_wire_stdin_close(struct exec_wire *s)
{
    if (s->stdin_closed)
        return;
    s->stdin_closed = true;
    exec_wire_stdin_drop(s);
    /* A pty has no half-close. A pipe end that is not here is closed by the supervisor. */
    exec_stdin_close(s->exec);
}

/*
 * EPIPE: the command has closed its stdin, and the rest is dropped. After any other error the
 * command is killed: it must not mistake a part of its input for the whole.
 */
static void exec_wire_stdin_write(struct exec_wire *s)
{
    while (s->stdin_pending.len) {
        ssize_t n = write(s->stdin_fd, buf_data(&s->stdin_pending), s->stdin_pending.len);

        if (n > 0)
            buf_consume(&s->stdin_pending, (size_t)n);
        else if (n < 0 && errno == EAGAIN)
            return;
        else if (n < 0 && errno != EINTR) {
            if (errno != EPIPE && s->exec) {
                exec_kill(s->exec, NULL, NULL, NULL);
                s->stdin_broken = true; /* it stays open: the command must not see an end of file */
                return;
            }
            s->stdin_closed = true;
            exec_wire_stdin_drop(s);
        }
    }
}

/* A pipe has one writer; when it closes, the command sees end of file. A terminal may have several
 * clients: each gets a duplicate, and the exec keeps the original for the next one. */
static void exec_wire_stdin_take(struct exec_wire *s)
{
    if (!s->exec || s->exec->stdin_fd < 0 || s->stdin_fd >= 0 || s->stdin_closed)
        return;
    if (s->exec->req.tty)
        s->stdin_fd = fcntl(s->exec->stdin_fd, F_DUPFD_CLOEXEC, 3);
    else
        s->stdin_fd = TAKE_FD(s->exec->stdin_fd);
}

static void exec_wire_stdin_flush(struct exec_wire *s)
{
    bool full;

    exec_wire_stdin_take(s);
    if (s->stdin_fd >= 0 && !s->stdin_broken)
        exec_wire_stdin_write(s);
    if (s->stdin_broken)
        return;
    if (s->stdin_closed)
        buf_clear(&s->stdin_pending);
    if (s->stdin_fd >= 0 && s->stdin_pending.len && !s->stdin_watch)
        s->stdin_watch = loop_watch_new(s->config.loop, s->stdin_fd, exec_wire_stdin_writable, s);
    if (s->stdin_watch)
        loop_watch_set(s->stdin_watch, s->stdin_pending.len ? LOOP_WRITE : 0);
    if (s->stdin_eof && !s->stdin_pending.len && s->exec && s->exec->state == EXEC_RUNNING)
        exec_wire_stdin_close(s);
    full = s->stdin_pending.len >= STDIN_PENDING_MAX;
    if (s->req && !s->finished)
        http_raw_read(s->req, !full);
}

/* ---- in ---- */

static int exec_wire_refuse(struct exec_wire *s, struct err *err)
{
    exec_wire_send_error(s, err);
    return -ERR_INVALID;
}

static int exec_wire_take_stdin(struct exec_wire *s, const struct frame *f)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (!s->exec || s->stdin_closed || s->stdin_broken || s->stdin_eof)
        return 0;
    if (!s->config.want_stdin && !s->exec->req.tty && !s->exec->req.want_stdin) {
        err_set(&err, ERR_INVALID, "stdin: the exec was started without it");
        return exec_wire_refuse(s, &err);
    }
    if (buf_append(&s->stdin_pending, f->data, f->length) < 0) {
        err_set(&err, ERR_LIMIT, "stdin: too much data is pending");
        return exec_wire_refuse(s, &err);
    }
    exec_wire_stdin_flush(s);
    return 0;
}

static unsigned exec_wire_get_u16(const char *p)
{
    return (unsigned)(unsigned char)p[0] << 8 | (unsigned char)p[1];
}

/* After DETACH the exec keeps its stdin, so that the client can attach again. */
static int exec_wire_take_detach(struct exec_wire *s)
{
    s->kept = true;
    if (s->exec && s->stdin_fd >= 0 && s->exec->stdin_fd < 0 && s->exec->state != EXEC_ENDED) {
        loop_watch_free(TAKE_PTR(s->stdin_watch));
        s->exec->stdin_fd = TAKE_FD(s->stdin_fd);
    }
    return 0;
}

static int exec_wire_take_frame(struct exec_wire *s, const struct frame *f)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (f->type == FRAME_STDIN)
        return exec_wire_take_stdin(s, f);
    if (f->type == FRAME_STDIN_EOF && f->length == 0) {
        s->stdin_eof = true;
        exec_wire_stdin_flush(s);
        return 0;
    }
    if (f->type == FRAME_DETACH && f->length == 0)
        return exec_wire_take_detach(s);
    if (f->type == FRAME_SIGNAL && f->length == 1 && f->data[0] >= 1 && f->data[0] <= 64) {
        if (s->exec)
            exec_signal(s->exec, f->data[0], NULL, NULL, NULL);
        return 0;
    }
    if (f->type == FRAME_RESIZE && f->length == 4) {
        if (s->exec)
            exec_resize(s->exec, (uint16_t)exec_wire_get_u16(f->data),
                        (uint16_t)exec_wire_get_u16(f->data + 2));
        return 0;
    }
    err_set(&err, ERR_INVALID, "invalid frame: type %u, %u bytes", f->type, f->length);
    return exec_wire_refuse(s, &err);
}

static int exec_wire_take_frames(struct exec_wire *s, const char *data, size_t len, size_t *used)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct frame f;
    size_t n;
    int r;

    *used = 0;
    while ((r = frame_parse(data + *used, len - *used, &f, &n, &err)) > 0) {
        *used += n;
        r = exec_wire_take_frame(s, &f);
        if (r < 0)
            return r;
    }
    return r < 0 ? exec_wire_refuse(s, &err) : 0;
}

static void exec_wire_on_gone(struct http_req *req);

static int exec_wire_take_bytes(struct exec_wire *s, const char *data, size_t len)
{
    size_t used;
    int r;

    if (!s->in.len) { /* the usual case: whole frames, no copy */
        r = exec_wire_take_frames(s, data, len, &used);
        if (r < 0)
            return r;
        data += used;
        len -= used;
    }
    if (len && buf_append(&s->in, data, len) < 0)
        return -ERR_LIMIT;
    if (!s->in.len)
        return 0;
    r = exec_wire_take_frames(s, buf_data(&s->in), s->in.len, &used);
    buf_consume(&s->in, used);
    return r;
}

static void exec_wire_on_data(struct http_req *req, const char *data, size_t len)
{
    struct exec_wire *s = http_req_user(req);

    if (s->finished || exec_wire_take_bytes(s, data, len) >= 0)
        return;
    exec_wire_on_gone(req); /* a client that breaks the protocol counts as one that disconnects */
    http_raw_close(req);
}

static void exec_wire_on_eof(struct http_req *req)
{
    struct exec_wire *s = http_req_user(req);

    s->stdin_eof = true;
    if (!s->finished)
        exec_wire_stdin_flush(s);
}

static void exec_wire_on_gone(struct http_req *req)
{
    struct exec_wire *s = http_req_user(req);

    s->req = NULL;
    if (s->removing)
        return;
    if (s->exec && s->config.kill && !s->kept && !s->finished) {
        if (s->config.run)
            manager_remove(s->config.manager, s->exec->sandbox_name, true, NULL, NULL, NULL);
        else
            exec_kill(s->exec, NULL, NULL, NULL);
    }
    exec_wire_free(s);
}

/* ---- start ---- */

static void exec_wire_on_news(void *arg)
{
    struct exec_wire *s = arg;

    exec_wire_start_package_counts(s);
    if (s->exec->state == EXEC_ENDED)
        exec_wire_stop_package_counts(s);
    if (s->req && !s->finished && s->exec->state == EXEC_RUNNING)
        exec_wire_stdin_flush(s);
    else if (s->exec->state == EXEC_ENDED)
        exec_wire_stdin_drop(s);
    exec_wire_pump(s);
}

static struct exec_wire *exec_wire_new(const struct wire_config *config)
{
    struct exec_wire *s = xnew0(struct exec_wire);

    s->config = *config;
    s->stdin_fd = -1;
    s->in.max = IN_MAX;
    s->stdin_pending.max = STDIN_PENDING_MAX + IN_MAX;
    return s;
}

void wire_stream_config(struct output_stream_config *c)
{
    *c = (struct output_stream_config){
        .want = {true, true}, .follow = true, .notify = exec_wire_on_news};
}

static const struct http_raw_events raw_events = {exec_wire_on_data, exec_wire_on_eof,
                                                  exec_wire_on_drain};

static void exec_wire_upgrade(struct exec_wire *s, struct http_req *req)
{
    s->req = req;
    http_req_set_user(req, s);
    http_req_on_gone(req, exec_wire_on_gone);
    http_upgrade(req, FRAME_PROTOCOL, &raw_events);
    exec_wire_pump(s);
}

void wire_start(struct http_req *req, struct exec *x, const struct wire_config *config)
{
    struct exec_wire *s = exec_wire_new(config);
    struct output_stream_config stream;

    wire_stream_config(&stream);
    stream.arg = s;
    s->exec = x;
    exec_wire_start_package_counts(s);
    s->stream = output_stream_new_live(x, &stream);
    if (req)
        exec_wire_upgrade(s, req);
    else
        exec_wire_free(s);
}

int wire_attach(struct api_call *c, struct sandbox *sb, const char *id,
                struct output_stream_config *stream, const struct wire_config *config,
                struct err *err)
{
    struct exec_wire *s = exec_wire_new(config);
    struct http_req *req;
    int r;

    stream->arg = s;
    r = output_stream_new(c->manager, sb, id, stream, &s->stream, err);
    if (r < 0) {
        exec_wire_free(s);
        return r;
    }
    s->exec = output_stream_exec(s->stream) ? exec_ref(output_stream_exec(s->stream)) : NULL;
    req = call_take_request(c);
    if (req)
        exec_wire_upgrade(s, req);
    else
        exec_wire_free(s);
    return 0;
}
