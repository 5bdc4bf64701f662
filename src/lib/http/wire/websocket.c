/*
 * The reader is a state machine like the chunk decoder: it collects the 2 to 14 bytes of a head,
 * judges the head as soon as it can, and then takes the payload in whatever pieces arrive. Data
 * frames go to the message's buffer, control frames to an array of their own, because they may
 * arrive between fragments. A length is checked against the limit before the payload is stored.
 */
#include "lib/http/wire/websocket.h"

#include <assert.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/guard.h"
#include "lib/base/macro.h"

enum {
    FIN = 0x80,
    RESERVED = 0x70,
    OPCODE = 0x0f,
    CONTROL = 0x08, /* the bit that all control opcodes have */
    MASKED = 0x80,
    LENGTH = 0x7f,
    LENGTH_16 = 126, /* the length is in the next 2 bytes */
    LENGTH_64 = 127, /* in the next 8 bytes */
    /* A larger buffer is given back after its message: an idle connection costs little. */
    KEEP_MAX = 4 << 10,
};

void websocket_init(struct websocket *w, enum websocket_side side, size_t message_max)
{
    *w = (struct websocket){.side = side, .message = BUF_INIT(message_max)};
}

void websocket_done(struct websocket *w)
{
    buf_done(&w->message);
}

void websocket_mask(char *data, size_t len, const uint8_t mask[static 4], uint64_t at)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (char)(data[i] ^ mask[(at + i) & 3]);
}

bool websocket_code_is_valid(unsigned code)
{
    if (code >= 3000 && code <= 4999)
        return true;
    /* 1004 is reserved, 1005 and 1006 are for programs only; 1015 likewise. */
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014);
}

/* ---- UTF-8 in pieces ---- */

/* The ranges of the second byte exclude overlong forms, surrogates and what is over U+10FFFF. */
static bool websocket_utf8_start(struct websocket_utf8 *u, uint8_t c)
{
    *u = (struct websocket_utf8){0, 0x80, 0xbf};
    if (c < 0x80)
        return true;
    if (c < 0xc2 || c > 0xf4)
        return false;
    u->left = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    if (c == 0xe0)
        u->low = 0xa0;
    else if (c == 0xed)
        u->high = 0x9f;
    else if (c == 0xf0)
        u->low = 0x90;
    else if (c == 0xf4)
        u->high = 0x8f;
    return true;
}

static bool websocket_utf8_check(struct websocket_utf8 *u, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t c = (uint8_t)data[i];

        if (!u->left) {
            if (!websocket_utf8_start(u, c))
                return false;
            continue;
        }
        if (c < u->low || c > u->high)
            return false;
        *u = (struct websocket_utf8){(uint8_t)(u->left - 1), 0x80, 0xbf};
    }
    return true;
}

/* ---- heads ---- */

static int websocket_refuse(struct websocket *w, struct err *err, const char *what)
{
    w->failed = WEBSOCKET_PROTOCOL_ERROR;
    return err_set(err, ERR_INVALID, "WebSocket: %s", what);
}

static int websocket_refuse_text(struct websocket *w, struct err *err, const char *what)
{
    w->failed = WEBSOCKET_NOT_UTF8;
    return err_set(err, ERR_INVALID, "WebSocket: %s is not UTF-8", what);
}

/* How many bytes the head has; with less than two of them the answer is two. */
static size_t websocket_head_size(const struct websocket *w)
{
    uint8_t second = w->head[1];
    size_t size = 2;

    if (w->head_len < 2)
        return size;
    if ((second & LENGTH) == LENGTH_16)
        size += 2;
    else if ((second & LENGTH) == LENGTH_64)
        size += 8;
    return second & MASKED ? size + 4 : size;
}

static int websocket_check_opcode(struct websocket *w, uint8_t opcode, bool fin, struct err *err)
{
    if (opcode & CONTROL) {
        if (opcode > WEBSOCKET_PONG)
            return websocket_refuse(w, err, "reserved opcode");
        if (!fin && GUARD("websocket control frames"))
            return websocket_refuse(w, err, "fragmented control frame");
        return 0;
    }
    if (opcode > WEBSOCKET_BINARY)
        return websocket_refuse(w, err, "reserved opcode");
    if (opcode == WEBSOCKET_MORE && !w->opcode)
        return websocket_refuse(w, err, "fragment without a message");
    if (opcode != WEBSOCKET_MORE && w->opcode)
        return websocket_refuse(w, err, "message inside a fragmented message");
    return 0;
}

/* The first two bytes: refused before anything else is awaited. */
static int websocket_check_start(struct websocket *w, struct err *err)
{
    uint8_t first = w->head[0], second = w->head[1];
    bool masked = second & MASKED;
    int r;

    if (first & RESERVED)
        return websocket_refuse(w, err, "reserved bits are set (no extension was agreed)");
    r = websocket_check_opcode(w, first & OPCODE, first & FIN, err);
    if (r < 0)
        return r;
    if (masked != (w->side == WEBSOCKET_SERVER) && GUARD("websocket masks"))
        return websocket_refuse(w, err,
                                masked ? "masked frame of a server" : "frame without a mask");
    if (first & CONTROL && (second & LENGTH) > WEBSOCKET_CONTROL_MAX)
        return websocket_refuse(w, err, "control frame over 125 bytes");
    return 0;
}

static uint64_t websocket_get_number(const uint8_t *p, size_t len)
{
    uint64_t v = 0;

    for (size_t i = 0; i < len; i++)
        v = v << 8 | p[i];
    return v;
}

static int websocket_read_length(struct websocket *w, struct err *err)
{
    uint8_t length = w->head[1] & LENGTH;

    w->length = length;
    if (length == LENGTH_16)
        w->length = websocket_get_number(w->head + 2, 2);
    else if (length == LENGTH_64)
        w->length = websocket_get_number(w->head + 2, 8);
    if ((length == LENGTH_16 && w->length < LENGTH_16) ||
        (length == LENGTH_64 && w->length <= UINT16_MAX))
        return websocket_refuse(w, err, "length is not in its shortest form");
    if (w->length > INT64_MAX)
        return websocket_refuse(w, err, "length over 63 bits");
    return 0;
}

/* The head is complete. */
static int websocket_begin_payload(struct websocket *w, struct err *err)
{
    uint8_t opcode = w->head[0] & OPCODE;
    int r;

    r = websocket_read_length(w, err);
    if (r < 0)
        return r;
    w->at = 0;
    w->in_payload = true;
    if (opcode & CONTROL)
        return 0;
    if (w->length > w->message.max - w->message.len && GUARD("websocket sizes")) {
        w->failed = WEBSOCKET_TOO_BIG;
        return err_set(err, ERR_LIMIT, "WebSocket: message is longer than %zu bytes",
                       w->message.max);
    }
    if (opcode != WEBSOCKET_MORE) {
        w->opcode = opcode;
        w->utf8 = (struct websocket_utf8){0};
    }
    return 0;
}

static int websocket_head_byte(struct websocket *w, char c, struct err *err)
{
    int r;

    w->head[w->head_len++] = (uint8_t)c;
    if (w->head_len == 2) {
        r = websocket_check_start(w, err);
        if (r < 0)
            return r;
    }
    return w->head_len == websocket_head_size(w) ? websocket_begin_payload(w, err) : 0;
}

/* ---- payloads ---- */

static int websocket_store(struct websocket *w, const char *data, size_t len, struct err *err)
{
    bool control = w->head[0] & CONTROL;
    char *p = control ? (char *)w->control + w->at : buf_reserve(&w->message, len);

    if (!p) { /* without the guard only */
        w->failed = WEBSOCKET_TOO_BIG;
        return err_set(err, ERR_LIMIT, "WebSocket: no room for the message");
    }
    memcpy(p, data, len);
    if (w->head[1] & MASKED)
        websocket_mask(p, len, w->head + websocket_head_size(w) - 4, w->at);
    w->at += len;
    if (control)
        return 0;
    buf_commit(&w->message, len);
    if (w->opcode == WEBSOCKET_TEXT && !websocket_utf8_check(&w->utf8, p, len))
        return websocket_refuse_text(w, err, "text message");
    return 0;
}

/* Neither code nor reason is optional on its own: a reason stands behind a code. */
static int websocket_end_close(struct websocket *w, struct websocket_message *ret, struct err *err)
{
    struct websocket_utf8 utf8 = {0};

    ret->code = WEBSOCKET_NO_CODE;
    if (w->length == 0)
        return 1;
    if (w->length == 1)
        return websocket_refuse(w, err, "close frame with half a code");
    ret->code = (enum websocket_code)websocket_get_number(w->control, 2);
    ret->data += 2;
    ret->len -= 2;
    if (!websocket_code_is_valid(ret->code))
        return websocket_refuse(w, err, "close code that may not be sent");
    if (!websocket_utf8_check(&utf8, ret->data, ret->len) || utf8.left)
        return websocket_refuse_text(w, err, "reason of a close frame");
    return 1;
}

static int websocket_end_control(struct websocket *w, struct websocket_message *ret,
                                 struct err *err)
{
    struct websocket_message m = {
        .opcode = w->head[0] & OPCODE, .data = (const char *)w->control, .len = (size_t)w->length};
    int r = 1;

    if (m.opcode == WEBSOCKET_CLOSE)
        r = websocket_end_close(w, &m, err);
    if (r < 0)
        return r;
    w->close_read = m.opcode == WEBSOCKET_CLOSE;
    *ret = m;
    return 1;
}

static int websocket_end_data(struct websocket *w, struct websocket_message *ret, struct err *err)
{
    if (!(w->head[0] & FIN))
        return 0;
    if (w->opcode == WEBSOCKET_TEXT && w->utf8.left)
        return websocket_refuse_text(w, err, "end of a text message");
    *ret = (struct websocket_message){
        .opcode = w->opcode, .data = buf_data(&w->message), .len = w->message.len};
    w->opcode = WEBSOCKET_MORE;
    w->delivered = true;
    return 1;
}

static int websocket_end_frame(struct websocket *w, struct websocket_message *ret, struct err *err)
{
    w->in_payload = false;
    w->head_len = 0;
    return w->head[0] & CONTROL ? websocket_end_control(w, ret, err)
                                : websocket_end_data(w, ret, err);
}

/* The caller has seen the message. */
static void websocket_drop_message(struct websocket *w)
{
    if (!w->delivered)
        return;
    w->delivered = false;
    if (w->message.cap > KEEP_MAX)
        buf_done(&w->message);
    else
        buf_clear(&w->message);
}

static int websocket_step(struct websocket *w, const char *data, size_t len, size_t *used,
                          struct websocket_message *ret, struct err *err)
{
    size_t n = 1;
    int r;

    if (w->in_payload) {
        n = (size_t)MIN(w->length - w->at, (uint64_t)len);
        r = websocket_store(w, data, n, err);
    } else {
        r = websocket_head_byte(w, *data, err);
    }
    *used += n;
    if (r < 0 || !w->in_payload || w->at < w->length)
        return r;
    return websocket_end_frame(w, ret, err);
}

int websocket_read(struct websocket *w, const char *data, size_t len, size_t *used,
                   struct websocket_message *ret, struct err *err)
{
    int r = 0;

    *used = 0;
    websocket_drop_message(w);
    if (w->failed)
        return err_set(err, w->failed == WEBSOCKET_TOO_BIG ? ERR_LIMIT : ERR_INVALID,
                       "WebSocket: the connection has failed");
    while (r == 0 && *used < len && !w->close_read)
        r = websocket_step(w, data + *used, len - *used, used, ret, err);
    if (r == 0)
        *used = len;
    return r;
}

/* ---- writing ---- */

size_t websocket_put_head(char p[static WEBSOCKET_HEAD_MAX], enum websocket_opcode opcode,
                          uint64_t len, const uint8_t mask[4])
{
    uint8_t masked = mask ? MASKED : 0, code = LENGTH_64;
    size_t size = 8, at = 2;

    if (len < LENGTH_16)
        code = (uint8_t)len, size = 0;
    else if (len <= UINT16_MAX)
        code = LENGTH_16, size = 2;
    p[0] = (char)(FIN | opcode);
    p[1] = (char)(masked | code);
    for (; size; size--)
        p[at++] = (char)(len >> 8 * (size - 1));
    if (mask)
        memcpy(p + at, mask, 4);
    return mask ? at + 4 : at;
}

static int websocket_append_frame(const struct websocket *w, struct buf *b,
                                  enum websocket_opcode opcode, const void *data, size_t len)
{
    bool client = w->side == WEBSOCKET_CLIENT;
    char head[WEBSOCKET_HEAD_MAX], *p;
    uint8_t mask[4];
    size_t n;

    /* Unpredictable, so that nobody can choose the bytes that a proxy sees (RFC 6455, 10.3). */
    if (client && getrandom(mask, sizeof(mask), 0) != (ssize_t)sizeof(mask))
        return -ERR_SYSTEM;
    n = websocket_put_head(head, opcode, len, client ? mask : NULL);
    p = len > SIZE_MAX - n ? NULL : buf_reserve(b, n + len);
    if (!p)
        return -ERR_LIMIT;
    memcpy(p, head, n);
    if (len)
        memcpy(p + n, data, len);
    if (client)
        websocket_mask(p + n, len, mask, 0);
    buf_commit(b, n + len);
    return 0;
}

int websocket_append(struct websocket *w, struct buf *b, enum websocket_opcode opcode,
                     const void *data, size_t len)
{
    assert(opcode != WEBSOCKET_MORE && opcode != WEBSOCKET_CLOSE);
    if (w->close_sent)
        return -ERR_CONFLICT;
    if (opcode & CONTROL && len > WEBSOCKET_CONTROL_MAX)
        return -ERR_LIMIT;
    return websocket_append_frame(w, b, opcode, data, len);
}

/* The number of bytes of the reason that fit, without a part of a character. */
static size_t websocket_reason_length(const char *reason)
{
    size_t n = strlen(reason);

    if (n <= WEBSOCKET_REASON_MAX)
        return n;
    for (n = WEBSOCKET_REASON_MAX; n && ((uint8_t)reason[n] & 0xc0) == 0x80; n--)
        ;
    return n;
}

int websocket_append_close(struct websocket *w, struct buf *b, enum websocket_code code,
                           const char *reason)
{
    char data[WEBSOCKET_CONTROL_MAX];
    size_t len = 0, n = reason ? websocket_reason_length(reason) : 0;
    int r;

    if (w->close_sent)
        return 0;
    if (code != WEBSOCKET_NO_CODE) {
        assert(websocket_code_is_valid(code));
        data[0] = (char)(code >> 8);
        data[1] = (char)code;
        if (n)
            memcpy(data + 2, reason, n);
        len = n + 2;
    }
    r = websocket_append_frame(w, b, WEBSOCKET_CLOSE, data, len);
    w->close_sent = r >= 0;
    return r;
}
