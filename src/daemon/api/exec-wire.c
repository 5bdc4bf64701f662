/*
 * Output: frames of up to 256 KiB, each in one malloc'd block that the connection takes over. The
 * journal is read only while little data is pending. A slow client therefore delays the reading,
 * and the command only after a whole journal budget. Input goes to daemon/core/exec/exec-input.h;
 * while that is full, nothing is read from the client.
 */
#include "daemon/api/exec-wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/api/exec-counts.h"
#include "daemon/api/exec-socket.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "proto/exec-frames.h"

enum {
    PIECE_MAX = 256 << 10,
    PENDING_MAX = 512 << 10,         /* two pieces: one in the kernel, one ready */
    DATA_HEAD = FRAME_HEAD_SIZE + 8, /* frame head and offset in front of the bytes */
    IN_MAX = FRAME_HEAD_SIZE + FRAME_PAYLOAD_MAX,
};

struct exec_wire {
    struct wire_config config;
    struct http_req *req;       /* NULL: the client has disconnected */
    struct exec_socket *socket; /* NULL: the frames go as they are */
    struct exec *exec;          /* NULL: the replay of an exec that has ended */
    struct output_stream *stream;
    bool started_sent, finished; /* finished: END or ERROR is sent */
    bool kept;                   /* the client said DETACH */
    bool removing;               /* exec_wire_removed() will free this */

    struct exec_counts counts;
    bool at_end; /* everything except END is sent */

    struct buf in; /* an incomplete frame */
    bool holds_input;
};

static void exec_wire_release_input(struct exec_wire *s);

static void exec_wire_free(struct exec_wire *s)
{
    exec_wire_release_input(s);
    exec_socket_free(s->socket);
    exec_counts_done(&s->counts);
    output_stream_free(s->stream);
    exec_unref(s->exec);
    buf_done(&s->in);
    free(s);
}

/* ---- out ---- */

/* A whole frame. */
static void exec_wire_send(struct exec_wire *s, const char *frame, size_t len)
{
    if (s->socket)
        exec_socket_send(s->socket, frame, len);
    else
        http_raw_write(s->req, frame, len);
}

static void exec_wire_send_json(struct exec_wire *s, enum frame_type type, const char *text)
{
    _cleanup_buf_ struct buf b = BUF_INIT(IN_MAX);

    if (frame_append(&b, type, text, strlen(text)) >= 0)
        exec_wire_send(s, buf_data(&b), b.len);
}

/* `ripcord show` has the warnings of a named sandbox. For `run`, only this document can report
 * them. */
json_t *wire_started_json(const struct wire_config *config, const struct exec *x)
{
    json_t *o =
        json_pack("{s:s, s:s, s:i}", "sandbox", x->sandbox_name, "exec", x->id, "pid", x->pid);
    const struct sandbox *sb =
        config->run ? manager_find(config->manager, x->sandbox_name, NULL) : NULL;

    if (sb && sb->unenforced)
        json_object_set_new(o, "unenforced", spec_limit_names(sb->unenforced));
    if (sb && sb->spec.isolation != SPEC_ISOLATION_SHARED)
        json_object_set_new(o, "isolation", json_string(spec_isolation_name(sb->spec.isolation)));
    if (sb && sb->warnings && *sb->warnings)
        json_object_set_new(o, "warnings", json_from_strv(sb->warnings));
    return o;
}

static void exec_wire_send_started(struct exec_wire *s)
{
    _cleanup_json_ json_t *o = NULL;
    _cleanup_free_ char *text = NULL;

    /* The replay of an exec that has ended begins with its output. */
    if (s->started_sent || !s->exec || s->exec->state != EXEC_RUNNING)
        return;
    s->started_sent = true;
    o = wire_started_json(&s->config, s->exec);
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
    exec_wire_send(s, frame, sizeof(frame));
}

static void exec_wire_send_data(struct exec_wire *s, char *block, const struct output_chunk *chunk)
{
    frame_put_head(block, chunk->which == JOURNAL_STDOUT ? FRAME_STDOUT : FRAME_STDERR,
                   (uint32_t)chunk->len + 8);
    frame_put_u64(block + FRAME_HEAD_SIZE, chunk->offset);
    if (s->socket)
        exec_socket_take(s->socket, block, DATA_HEAD + chunk->len);
    else
        http_raw_take(s->req, block, DATA_HEAD + chunk->len);
}

static void exec_wire_close_connection(struct exec_wire *s)
{
    struct http_req *req = TAKE_PTR(s->req);

    if (s->socket)
        exec_socket_close(s->socket, WEBSOCKET_NORMAL);
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

    if (!s->counts.packages || json_parse("end record", record, strlen(record), &o, NULL) < 0) {
        exec_wire_send_json(s, FRAME_END, record);
        return;
    }
    exec_counts_add(&s->counts, o);
    text = json_to_text(o, false);
    exec_wire_send_json(s, FRAME_END, text);
}

static void exec_wire_send_end(struct exec_wire *s)
{
    s->at_end = true;
    if (exec_counts_pending(&s->counts))
        return;
    if (s->exec && s->exec->start_err.code)
        exec_wire_send_error(s, &s->exec->start_err);
    else
        exec_wire_send_record(s);
    exec_wire_finish(s);
}

static void exec_wire_on_counted(void *arg)
{
    struct exec_wire *s = arg;

    if (s->at_end && s->req && !s->finished)
        exec_wire_send_end(s);
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
    struct exec_wire *s = http_req_user(req);

    if (s->socket)
        exec_socket_drained(s->socket);
    exec_wire_pump(s);
}

/* ---- stdin ---- */

/* The client that holds the input of an exec decides when it ends. A terminal has no holder. */
static void exec_wire_hold_input(struct exec_wire *s)
{
    if (!s->exec || s->holds_input || s->exec->input.held || s->exec->req.tty)
        return;
    s->exec->input.held = s->holds_input = true;
}

static void exec_wire_release_input(struct exec_wire *s)
{
    if (!s->holds_input)
        return;
    s->holds_input = s->exec->input.held = false;
    if (!s->kept)
        exec_input_end(s->exec);
}

/* While the input is full, nothing is read from the client. */
static void exec_wire_pace_input(struct exec_wire *s)
{
    bool on = !s->exec || !exec_input_is_full(s->exec);

    if (!s->req || !s->exec || s->finished)
        return;
    if (s->socket)
        exec_socket_read(s->socket, on);
    else
        http_raw_read(s->req, on);
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

    exec_wire_hold_input(s);
    if (s->exec && exec_input_write(s->exec, f->data, f->length, &err) < 0)
        return exec_wire_refuse(s, &err);
    exec_wire_pace_input(s);
    return 0;
}

static int exec_wire_end_input(struct exec_wire *s)
{
    if (s->exec)
        exec_input_end(s->exec);
    return 0;
}

static unsigned exec_wire_get_u16(const char *p)
{
    return (unsigned)(unsigned char)p[0] << 8 | (unsigned char)p[1];
}

static int exec_wire_take_frame(struct exec_wire *s, const struct frame *f)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (f->type == FRAME_STDIN)
        return exec_wire_take_stdin(s, f);
    if (f->type == FRAME_STDIN_EOF && f->length == 0)
        return exec_wire_end_input(s);
    if (f->type == FRAME_DETACH && f->length == 0) {
        s->kept = true; /* the exec keeps its input, so that the client can attach again */
        return 0;
    }
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

    if (s->socket)
        return exec_socket_receive(s->socket, data, len);
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

static void exec_wire_drop(struct http_req *req)
{
    exec_wire_on_gone(req);
    http_raw_close(req);
}

static void exec_wire_on_data(struct http_req *req, const char *data, size_t len)
{
    struct exec_wire *s = http_req_user(req);

    if (s->finished || exec_wire_take_bytes(s, data, len) >= 0)
        return;
    exec_wire_drop(req); /* a client that breaks the protocol counts as one that disconnects */
}

static void exec_wire_on_eof(struct http_req *req)
{
    struct exec_wire *s = http_req_user(req);

    if (s->finished)
        return;
    /* A WebSocket has no half-close: its client is gone. */
    if (s->socket)
        exec_wire_drop(req);
    else
        exec_wire_end_input(s);
}

void wire_client_gone(const struct wire_config *config, struct exec *x)
{
    if (!x || !config->kill || x->state == EXEC_ENDED)
        return;
    if (config->run)
        manager_remove(config->manager, x->sandbox_name, true, NULL, NULL, NULL);
    else
        exec_kill(x, NULL, NULL, NULL);
}

static void exec_wire_on_gone(struct http_req *req)
{
    struct exec_wire *s = http_req_user(req);

    s->req = NULL;
    if (s->removing)
        return;
    if (!s->kept && !s->finished)
        wire_client_gone(&s->config, s->exec);
    exec_wire_free(s);
}

/* ---- start ---- */

static void exec_wire_on_news(void *arg)
{
    struct exec_wire *s = arg;

    exec_counts_update(&s->counts, s->config.manager, s->exec);
    exec_wire_pace_input(s);
    exec_wire_pump(s);
}

static struct exec_wire *exec_wire_new(const struct wire_config *config)
{
    struct exec_wire *s = xnew0(struct exec_wire);

    s->config = *config;
    s->counts =
        (struct exec_counts){.wanted = config->stats, .done = exec_wire_on_counted, .arg = s};
    s->in.max = IN_MAX;
    return s;
}

void wire_stream_config(struct output_stream_config *c)
{
    *c = (struct output_stream_config){
        .want = {true, true}, .follow = true, .notify = exec_wire_on_news};
}

static const struct http_raw_events raw_events = {exec_wire_on_data, exec_wire_on_eof,
                                                  exec_wire_on_drain};

static int exec_wire_on_socket_frame(void *arg, const struct frame *f)
{
    return exec_wire_take_frame(arg, f);
}

static void exec_wire_on_socket_dead(void *arg)
{
    struct exec_wire *s = arg;

    exec_wire_drop(s->req);
}

static void exec_wire_upgrade(struct exec_wire *s, struct http_req *req)
{
    struct exec_socket_config socket = {s->config.loop,           req,
                                        s->config.socket,         exec_wire_on_socket_frame,
                                        exec_wire_on_socket_dead, s};

    s->req = req;
    http_req_set_user(req, s);
    http_req_on_gone(req, exec_wire_on_gone);
    if (s->config.socket)
        s->socket = exec_socket_start(&socket, &raw_events);
    else
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
    if (x->req.want_stdin)
        exec_wire_hold_input(s);
    exec_counts_update(&s->counts, s->config.manager, x);
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
