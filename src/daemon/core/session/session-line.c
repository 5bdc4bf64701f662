#include "daemon/core/session/session-line.h"

#include <string.h>

#include "lib/base/guard.h"
#include "lib/base/jsontext.h"
#include "lib/base/text.h"

/* Bytes needed after the longest piece, so that the cut does not depend on how the bytes arrive:
 * the last character may end that much later. */
enum { AHEAD = 4 };

/* A cut never splits a complete character: both pieces would look broken. */
static size_t session_line_cut_at(const char *data, size_t len, size_t max)
{
    unsigned cp;

    for (size_t back = 1; back <= 3 && back < max; back++) {
        size_t from = max - back;

        if (((unsigned char)data[from] & 0xc0) == 0x80)
            continue;
        return text_utf8_next(data + from, len - from, &cp) > back ? from : max;
    }
    return max;
}

bool session_line_next(const char *data, size_t len, bool over, uint32_t part, size_t max,
                       struct session_line *ret)
{
    const char *nl = len ? memchr(data, '\n', MIN(len, max + AHEAD)) : NULL;

    *ret = (struct session_line){.data = data, .part = part ? part + 1 : 0, .last = true};
    if (nl && nl <= data + max) {
        ret->len = (size_t)(nl - data);
        ret->used = ret->len + 1;
        return true;
    }
    if (nl || len >= max + AHEAD || (over && len > max)) {
        ret->len = ret->used = session_line_cut_at(data, len, max);
        ret->part = part + 1;
        ret->last = false;
        return true;
    }
    ret->len = ret->used = len;
    return over && (len || part); /* a cut line has a last piece, even an empty one */
}

/* ---- events ---- */

static int session_line_put_log(const struct session_line *l, enum journal_stream stream,
                                struct buf *b)
{
    bool cr = l->last && l->len && l->data[l->len - 1] == '\r'; /* CRLF ends a line like LF */
    size_t len = l->len - cr;

    if (buf_appendf(b, "{\"type\":\"log\",\"stream\":\"%s\",\"text\":\"",
                    stream == JOURNAL_STDOUT ? "stdout" : "stderr") < 0 ||
        text_escape_json_n(b, l->data, len) < 0 || buf_append_c(b, '"') < 0)
        return -ERR_LIMIT;
    if (l->part &&
        buf_appendf(b, ",\"part\":%u,\"more\":%s", l->part, l->last ? "false" : "true") < 0)
        return -ERR_LIMIT;
    if (!text_is_utf8(l->data, len) && buf_append_str(b, ",\"invalid_utf8\":true") < 0)
        return -ERR_LIMIT;
    return buf_append_c(b, '}');
}

/* CR becomes a blank: some readers take it for a line end. In valid JSON it can only be white
 * space. */
static int session_line_put_object(const struct session_line *l, struct buf *b)
{
    size_t from = b->len, len = l->len;
    char *p;

    while (len && strchr(" \t\r", l->data[len - 1]))
        len--;
    if (buf_append(b, l->data, len) < 0)
        return -ERR_LIMIT;
    for (p = buf_data(b) + from; (p = memchr(p, '\r', len - (size_t)(p - buf_data(b) - from))); p++)
        *p = ' ';
    return 0;
}

/* The types of our own events, and of the wrapper. An agent's object of such a type is wrapped: a
 * reader that sees only the event must not take it for ours. */
static const char *const session_line_own_types[] = {"exit", "gap", "log", "agent", NULL};

int session_line_event(const struct session_line *l, enum journal_stream stream, struct buf *b)
{
    if (stream != JOURNAL_STDOUT || l->part || json_text_kind(l->data, l->len) != JSON_TEXT_OBJECT)
        return session_line_put_log(l, stream, b);
    if (!GUARD("own events") ||
        !json_text_has_member(l->data, l->len, "type", session_line_own_types))
        return session_line_put_object(l, b);
    if (buf_append_str(b, "{\"type\":\"agent\",\"event\":") < 0 ||
        session_line_put_object(l, b) < 0)
        return -ERR_LIMIT;
    return buf_append_c(b, '}');
}
