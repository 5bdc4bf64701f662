/*
 * The chunk decoder: a state machine that looks at one byte at a time outside of chunk data. It
 * never looks back, so it does not matter how the bytes are cut.
 */
#include "lib/http/wire/http.h"

#include "lib/base/guard.h"
#include "lib/base/macro.h"
#include "lib/base/text.h"

enum {
    /* 0 to 16: that many digits of a chunk's size have been read */
    SIZE_DIGITS_MAX = 16,
    STATE_EXT = SIZE_DIGITS_MAX + 1,
    STATE_SIZE_LF,
    STATE_DATA,
    STATE_DATA_CR,
    STATE_DATA_LF,
    STATE_TRAILER_CR,
    STATE_TRAILER_LF,
};

/* Counted over the whole body: else each of a million one-byte chunks could carry its own. */
enum { EXT_MAX = 1 << 10 };

static int http_chunked_size_byte(struct http_chunked *c, char ch, struct err *err)
{
    int digit = text_hex_digit(ch);

    if (digit < 0 && c->state > 0 && (ch == ';' || ch == '\r')) {
        c->state = ch == ';' ? STATE_EXT : STATE_SIZE_LF;
        return 0;
    }
    if (digit < 0)
        return err_set(err, ERR_INVALID, "malformed chunk size");
    if ((c->state == SIZE_DIGITS_MAX || c->left > (INT64_MAX >> 4)) && GUARD("chunk sizes"))
        return err_set(err, ERR_INVALID, "chunk size out of range");
    c->left = c->left << 4 | (uint64_t)digit;
    c->state++;
    return 0;
}

static int http_chunked_ext_byte(struct http_chunked *c, char ch, struct err *err)
{
    if (ch == '\r') {
        c->state = STATE_SIZE_LF;
        return 0;
    }
    if (((unsigned char)ch < 0x20 && ch != '\t') || ch == 0x7f)
        return err_set(err, ERR_INVALID, "control byte in a chunk extension");
    if (++c->ext > EXT_MAX && GUARD("chunk extensions"))
        return err_set(err, ERR_INVALID, "chunk extensions are longer than %d bytes", EXT_MAX);
    return 0;
}

static int http_chunked_expect_byte(struct http_chunked *c, char ch, char want, int next,
                                    const char *what, struct err *err)
{
    if (ch != want && GUARD("chunk ends"))
        return err_set(err, ERR_INVALID, "%s", what);
    c->state = next;
    return 0;
}

static int http_chunked_frame_byte(struct http_chunked *c, char ch, struct err *err)
{
    switch (c->state) {
    case STATE_EXT:
        return http_chunked_ext_byte(c, ch, err);
    case STATE_SIZE_LF:
        return http_chunked_expect_byte(c, ch, '\n', c->left ? STATE_DATA : STATE_TRAILER_CR,
                                        "bare CR in a chunk head", err);
    case STATE_DATA_CR:
        return http_chunked_expect_byte(c, ch, '\r', STATE_DATA_LF, "chunk longer than its size",
                                        err);
    case STATE_DATA_LF:
        return http_chunked_expect_byte(c, ch, '\n', 0, "bare CR after a chunk", err);
    case STATE_TRAILER_CR:
        return http_chunked_expect_byte(c, ch, '\r', STATE_TRAILER_LF,
                                        "trailer fields are not accepted", err);
    case STATE_TRAILER_LF:
        c->done = ch == '\n';
        return c->done ? 0 : err_set(err, ERR_INVALID, "bare CR after the last chunk");
    default:
        return http_chunked_size_byte(c, ch, err);
    }
}

int http_chunked_decode(struct http_chunked *c, const char *data, size_t len, size_t *used,
                        size_t *body_off, size_t *body_len, struct err *err)
{
    size_t i = 0;

    *used = *body_off = *body_len = 0;
    while (i < len && !c->done && c->state != STATE_DATA) {
        int r = http_chunked_frame_byte(c, data[i], err);

        if (r < 0)
            return r;
        i++;
    }
    if (i < len && c->state == STATE_DATA) {
        *body_off = i;
        *body_len = (size_t)MIN(c->left, (uint64_t)(len - i));
        c->left -= *body_len;
        i += *body_len;
        if (c->left == 0)
            c->state = STATE_DATA_CR;
    }
    *used = i;
    return 0;
}
