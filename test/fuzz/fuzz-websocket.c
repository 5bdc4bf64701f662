/*
 * The frame reader, on both sides: whole and byte by byte must give the same messages, the same
 * verdict and the same end. What it delivers is written again and must be read as the same. The
 * first byte of the input chooses the side and the limit.
 */
#include "fuzz.h"
#include "lib/base/buf.h"
#include "lib/base/macro.h"
#include "lib/base/text.h"
#include "lib/http/wire/websocket.h"

enum { LARGE = 70000, SMALL = 16 };

struct outcome {
    struct websocket w;
    int r;
    size_t consumed;
    struct buf messages; /* opcode, code, length and bytes of each */
};

static void must_be_utf8(const struct websocket_message *m)
{
    unsigned cp;

    for (size_t i = 0, n; i < m->len; i += n) {
        n = text_utf8_next(m->data + i, m->len - i, &cp);
        MUST(n > 0);
    }
}

static void must_be_read_again(const struct websocket_message *m, enum websocket_side side)
{
    struct buf b = BUF_INIT(LARGE + WEBSOCKET_HEAD_MAX), reason = BUF_INIT(WEBSOCKET_REASON_MAX);
    struct websocket writer, reader;
    struct websocket_message got;
    size_t used;

    websocket_init(&writer, side, LARGE);
    websocket_init(&reader, side == WEBSOCKET_SERVER ? WEBSOCKET_CLIENT : WEBSOCKET_SERVER, LARGE);
    MUST(buf_append(&reason, m->data, m->opcode == WEBSOCKET_CLOSE ? m->len : 0) == 0);
    if (m->opcode == WEBSOCKET_CLOSE)
        MUST(websocket_append_close(&writer, &b, m->code, buf_data(&reason)) == 0);
    else
        MUST(websocket_append(&writer, &b, m->opcode, m->data, m->len) == 0);
    MUST(websocket_read(&reader, buf_data(&b), b.len, &used, &got, NULL) == 1 && used == b.len);
    MUST(got.opcode == m->opcode && got.code == m->code);
    /* A reason is written as a C string. */
    MUST(got.len == (got.opcode == WEBSOCKET_CLOSE ? strlen(buf_data(&reason)) : m->len));
    MUST(got.len == 0 || memcmp(got.data, m->data, got.len) == 0);
    websocket_done(&writer);
    websocket_done(&reader);
    buf_done(&reason);
    buf_done(&b);
}

static void must_be_sound(const struct outcome *o, const struct websocket_message *m)
{
    bool control = m->opcode >= WEBSOCKET_CLOSE;

    MUST(m->opcode == WEBSOCKET_TEXT || m->opcode == WEBSOCKET_BINARY || control);
    MUST(m->len <= (control ? (size_t)WEBSOCKET_CONTROL_MAX : o->w.message.max));
    MUST((m->code != 0) == (m->opcode == WEBSOCKET_CLOSE));
    MUST(m->code == 0 || m->code == WEBSOCKET_NO_CODE || websocket_code_is_valid(m->code));
    if (m->opcode == WEBSOCKET_TEXT || m->opcode == WEBSOCKET_CLOSE)
        must_be_utf8(m);
    must_be_read_again(m, o->w.side);
}

static void keep(struct outcome *o, const struct websocket_message *m)
{
    MUST(buf_appendf(&o->messages, "%d %d %zu ", (int)m->opcode, (int)m->code, m->len) == 0);
    MUST(buf_append(&o->messages, m->data, m->len) == 0);
}

static void read_all(uint8_t choice, const char *data, size_t size, size_t step, struct outcome *o)
{
    *o = (struct outcome){.messages = BUF_INIT(64 * size + 64)};
    websocket_init(&o->w, choice & 1 ? WEBSOCKET_CLIENT : WEBSOCKET_SERVER,
                   choice & 2 ? SMALL : LARGE);
    while (o->consumed < size && o->r >= 0) {
        size_t len = MIN(step, size - o->consumed), used;
        struct websocket_message m;

        o->r = websocket_read(&o->w, data + o->consumed, len, &used, &m, NULL);
        MUST(used <= len && (used == len || o->r != 0));
        MUST(o->w.message.len <= o->w.message.max);
        MUST((o->r < 0) == (o->w.failed != 0));
        o->consumed += used;
        if (o->r == 1) {
            must_be_sound(o, &m);
            keep(o, &m);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t choice = size ? data[0] : 0;
    char *copy = size ? fuzz_copy(data + 1, size - 1) : fuzz_copy(data, 0);
    struct outcome whole, bytes;

    size -= size ? 1 : 0;
    read_all(choice, copy, size, size, &whole);
    read_all(choice, copy, size, 1, &bytes);
    MUST(whole.w.failed == bytes.w.failed && whole.w.close_read == bytes.w.close_read);
    MUST(whole.messages.len == bytes.messages.len);
    MUST(memcmp(buf_data(&whole.messages), buf_data(&bytes.messages), whole.messages.len) == 0);
    MUST((whole.r < 0) == (bytes.r < 0) && (whole.r >= 0 || whole.r == bytes.r));
    websocket_done(&whole.w);
    websocket_done(&bytes.w);
    buf_done(&whole.messages);
    buf_done(&bytes.messages);
    free(copy);
    return 0;
}
