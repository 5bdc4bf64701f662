/*
 * A message is a head of the WebSocket and then the block that the raw wire would send, so output
 * is not copied here either. Everything of one connection is in order: what waits to be sent is in
 * the connection's queue, and its owner stops reading output while the queue is long.
 */
#include "daemon/api/exec-socket.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/exec-spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "proto/spec-limits.h"

enum {
    PING_EVERY = 30 * USEC_PER_SEC,
    PONG_ROOM = 64 << 10, /* a pong waits while more than that is unsent */
    ANSWER_MAX = 256,
    OFFSET_SIZE = 8, /* in front of the bytes of a piece of output */
};

struct exec_socket {
    struct exec_socket_config config;
    struct websocket ws;
    struct loop_timer *timer;
    bool terminal;
    bool reading;
    bool pinged, heard; /* heard: bytes of the peer since the last ping */
    bool pong_due;
    size_t pong_len;
    char pong[WEBSOCKET_CONTROL_MAX];
};

static const char *const protocols[] = {EXEC_SOCKET_FRAMES, EXEC_SOCKET_TERMINAL, NULL};

const char *exec_socket_protocol(const struct http_head *head)
{
    return websocket_choose_protocol(head, protocols);
}

/* ---- out ---- */

static void exec_socket_head(struct exec_socket *k, enum websocket_opcode opcode, size_t len)
{
    char head[WEBSOCKET_HEAD_MAX];

    http_raw_write(k->config.req, head, websocket_put_head(head, opcode, len, NULL));
}

static void exec_socket_message(struct exec_socket *k, enum websocket_opcode opcode,
                                const char *data, size_t len)
{
    exec_socket_head(k, opcode, len);
    http_raw_write(k->config.req, data, len);
}

/* The same texts as the events of a command over plain HTTP. Takes the document. */
static void exec_socket_report(struct exec_socket *k, json_t *o)
{
    _cleanup_free_ char *text = json_to_text(o, false);

    json_decref(o);
    exec_socket_message(k, WEBSOCKET_TEXT, text, strlen(text));
}

static void exec_socket_report_gap(struct exec_socket *k, const char *data)
{
    exec_socket_report(k, json_pack("{s:s, s:s, s:I, s:I}", "event", "gap", "stream",
                                    data[0] == 1 ? "stdout" : "stderr", "from",
                                    (json_int_t)frame_get_u64(data + 1), "to",
                                    (json_int_t)frame_get_u64(data + 1 + OFFSET_SIZE)));
}

static void exec_socket_report_json(struct exec_socket *k, enum frame_type type, const char *data,
                                    size_t len)
{
    const char *event = type == FRAME_STARTED ? "started" : type == FRAME_END ? "end" : "error";
    _cleanup_json_ json_t *what = NULL;
    json_t *o = json_pack("{s:s}", "event", event);

    if (json_parse("report", data, len, &what, NULL) >= 0 && type == FRAME_END)
        json_object_set(o, "end", what);
    else if (what)
        json_object_update(o, what);
    exec_socket_report(k, o);
}

/* What a terminal shows: both streams, in the order in which they arrive. */
static void exec_socket_send_terminal(struct exec_socket *k, const char *frame, size_t len)
{
    enum frame_type type = (enum frame_type)frame[0];
    const char *data = frame + FRAME_HEAD_SIZE;

    len -= FRAME_HEAD_SIZE;
    if (type == FRAME_STDOUT || type == FRAME_STDERR)
        exec_socket_message(k, WEBSOCKET_BINARY, data + OFFSET_SIZE, len - OFFSET_SIZE);
    else if (type == FRAME_GAP)
        exec_socket_report_gap(k, data);
    else
        exec_socket_report_json(k, type, data, len);
}

void exec_socket_send(struct exec_socket *k, const char *frame, size_t len)
{
    if (k->terminal)
        exec_socket_send_terminal(k, frame, len);
    else
        exec_socket_message(k, WEBSOCKET_BINARY, frame, len);
}

void exec_socket_take(struct exec_socket *k, char *owned, size_t len)
{
    if (k->terminal) {
        exec_socket_send_terminal(k, owned, len);
        free(owned);
        return;
    }
    exec_socket_head(k, WEBSOCKET_BINARY, len);
    http_raw_take(k->config.req, owned, len);
}

static void exec_socket_close_because(struct exec_socket *k, enum websocket_code code,
                                      const char *reason)
{
    _cleanup_buf_ struct buf b = BUF_INIT(WEBSOCKET_HEAD_MAX + WEBSOCKET_CONTROL_MAX);

    if (websocket_append_close(&k->ws, &b, code, reason) >= 0)
        http_raw_write(k->config.req, buf_data(&b), b.len);
}

void exec_socket_close(struct exec_socket *k, enum websocket_code code)
{
    exec_socket_close_because(k, code, NULL);
}

/* ---- pings ---- */

/* A peer that reads slowly or whose input we hold back is not silent. */
static void exec_socket_on_timer(void *arg)
{
    struct exec_socket *k = arg;

    if (!k->reading || http_stream_pending(k->config.req)) {
        k->pinged = false;
        return;
    }
    if (k->pinged && !k->heard) {
        exec_socket_close_because(k, WEBSOCKET_POLICY, "no answer to a ping");
        k->config.on_dead(k->config.arg);
        return;
    }
    k->pinged = true;
    k->heard = false;
    exec_socket_head(k, WEBSOCKET_PING, 0);
}

/* Only the last ping needs an answer (RFC 6455, 5.5.3): a peer that sends pings and reads nothing
 * does not fill our memory. */
void exec_socket_drained(struct exec_socket *k)
{
    if (!k->pong_due || http_stream_pending(k->config.req) > PONG_ROOM)
        return;
    k->pong_due = false;
    exec_socket_message(k, WEBSOCKET_PONG, k->pong, k->pong_len);
}

static void exec_socket_answer_ping(struct exec_socket *k, const struct websocket_message *m)
{
    memcpy(k->pong, m->data, m->len);
    k->pong_len = m->len;
    k->pong_due = true;
    exec_socket_drained(k);
}

/* ---- in ---- */

static int exec_socket_give(struct exec_socket *k, enum frame_type type, const char *data,
                            size_t len)
{
    struct frame f = {.type = (uint8_t)type, .length = (uint32_t)len, .data = data};

    return k->config.on_frame(k->config.arg, &f);
}

static int exec_socket_resize(struct exec_socket *k, uint64_t rows, uint64_t cols, struct err *err)
{
    int r = exec_spec_check_size(rows, cols, err);

    if (r < 0)
        return r;
    return exec_socket_give(
        k, FRAME_RESIZE,
        (const char[]){(char)(rows >> 8), (char)rows, (char)(cols >> 8), (char)cols}, 4);
}

static int exec_socket_signal(struct exec_socket *k, const char *name, struct err *err)
{
    int sig, r;

    if (!name)
        return err_set(err, ERR_INVALID, "field 'signal': missing");
    r = parse_signal(name, &sig, err);
    if (r < 0)
        return err_wrap(err, "field 'signal'");
    return exec_socket_give(k, FRAME_SIGNAL, (const char[]){(char)sig}, 1);
}

static int exec_socket_control(struct exec_socket *k, const struct websocket_message *m,
                               struct err *err)
{
    _cleanup_json_ json_t *o = NULL;
    const char *action = NULL, *signal = NULL;
    uint64_t rows = 0, cols = 0;
    const struct json_field fields[] = {
        {"action", JSON_FIELD_STRING, &action},
        {"rows", JSON_FIELD_U64, &rows},
        {"cols", JSON_FIELD_U64, &cols},
        {"signal", JSON_FIELD_STRING, &signal},
    };
    int r;

    r = json_parse("control message", m->data, m->len, &o, err);
    if (r < 0)
        return r;
    r = json_read(o, NULL, fields, ARRAY_SIZE(fields), err);
    if (r < 0)
        return r;
    if (action && STREQ(action, "resize"))
        return exec_socket_resize(k, rows, cols, err);
    if (action && STREQ(action, "signal"))
        return exec_socket_signal(k, signal, err);
    if (action && STREQ(action, "end_input"))
        return exec_socket_give(k, FRAME_STDIN_EOF, NULL, 0);
    if (action && STREQ(action, "detach"))
        return exec_socket_give(k, FRAME_DETACH, NULL, 0);
    return err_set(err, ERR_INVALID, "field 'action': must be resize, signal, end_input or detach");
}

/* One message is one frame. */
static int exec_socket_frame(struct exec_socket *k, const struct websocket_message *m,
                             struct err *err)
{
    struct frame f;
    size_t used;
    int r = frame_parse(m->data, m->len, &f, &used, err);

    if (r < 0)
        return r;
    if (r == 0 || used != m->len)
        return err_set(err, ERR_INVALID, "a message must be exactly one frame");
    return k->config.on_frame(k->config.arg, &f);
}

static int exec_socket_data(struct exec_socket *k, const struct websocket_message *m)
{
    _cleanup_err_ struct err err = ERR_INIT;
    int r;

    if (m->opcode == WEBSOCKET_TEXT && k->terminal)
        r = exec_socket_control(k, m, &err);
    else if (m->opcode == WEBSOCKET_TEXT)
        r = err_set(&err, ERR_INVALID, "%s has no text messages", EXEC_SOCKET_FRAMES);
    else if (k->terminal)
        r = m->len ? exec_socket_give(k, FRAME_STDIN, m->data, m->len) : 0;
    else
        r = exec_socket_frame(k, m, &err);
    if (r < 0)
        exec_socket_close_because(k, WEBSOCKET_POLICY, err.msg);
    return r;
}

static int exec_socket_message_in(struct exec_socket *k, const struct websocket_message *m)
{
    if (m->opcode == WEBSOCKET_CLOSE) {
        exec_socket_close(k, m->code);
        return -ERR_CONFLICT;
    }
    if (m->opcode == WEBSOCKET_PING)
        exec_socket_answer_ping(k, m);
    else if (m->opcode != WEBSOCKET_PONG)
        return exec_socket_data(k, m);
    return 0;
}

int exec_socket_receive(struct exec_socket *k, const char *data, size_t len)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct websocket_message m;
    size_t used;
    int r;

    k->heard = true;
    while ((r = websocket_read(&k->ws, data, len, &used, &m, &err)) > 0) {
        data += used;
        len -= used;
        r = exec_socket_message_in(k, &m);
        if (r < 0)
            return r;
    }
    if (r < 0)
        exec_socket_close_because(k, k->ws.failed, err.msg);
    return r;
}

void exec_socket_read(struct exec_socket *k, bool on)
{
    k->heard = k->heard || on != k->reading;
    k->reading = on;
    http_raw_read(k->config.req, on);
}

/* ---- start ---- */

struct exec_socket *exec_socket_start(const struct exec_socket_config *config,
                                      const struct http_raw_events *events)
{
    _cleanup_buf_ struct buf lines = BUF_INIT(ANSWER_MAX);
    struct exec_socket *k = xnew0(struct exec_socket);
    bool terminal = STREQ(config->protocol, EXEC_SOCKET_TERMINAL);
    int r = websocket_append_answer(&lines, http_req_head(config->req), config->protocol);

    assert(r >= 0); /* both lines are ours, of known length */
    k->config = *config;
    k->terminal = terminal;
    k->reading = true;
    websocket_init(&k->ws, WEBSOCKET_SERVER,
                   terminal ? FRAME_PAYLOAD_MAX : FRAME_HEAD_SIZE + FRAME_PAYLOAD_MAX);
    k->timer = loop_timer_new(config->loop, exec_socket_on_timer, k);
    loop_timer_set(k->timer, PING_EVERY, true);
    http_upgrade_with(config->req, "websocket", buf_data(&lines), events);
    return k;
}

void exec_socket_free(struct exec_socket *k)
{
    if (!k)
        return;
    loop_timer_free(k->timer);
    websocket_done(&k->ws);
    free(k);
}
