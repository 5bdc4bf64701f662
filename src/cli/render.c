#include "cli/render.h"

#include <string.h>

#include "lib/base/base64.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"

/* The number of bytes at the end of data that are an incomplete UTF-8 character. */
static size_t render_cut_tail(const char *data, size_t len)
{
    for (size_t n = 1; n <= 3 && n <= len; n++) {
        unsigned char c = (unsigned char)data[len - n];
        size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 0;

        if (want)
            return want > n ? n : 0;
        if (c < 0x80)
            return 0;
    }
    return 0;
}

/* The length of a line end (also "\r\n" of a terminal) or tab, which are not escaped; else 0. */
static size_t render_passing(const char *p, size_t len)
{
    if (p[0] == '\n' || p[0] == '\t')
        return 1;
    return len > 1 && p[0] == '\r' && p[1] == '\n' ? 2 : 0;
}

static int render_escape_lines(const char *p, size_t len, struct buf *ret)
{
    size_t i = 0;
    int r;

    while (i < len) {
        size_t from = i;

        while (i < len && !render_passing(p + i, len - i))
            i++;
        r = text_escape(ret, p + from, i - from);
        if (r == 0 && i < len)
            r = buf_append(ret, p + i, render_passing(p + i, len - i));
        if (r < 0)
            return r;
        i += i < len ? render_passing(p + i, len - i) : 0;
    }
    return 0;
}

int render_escaped(struct render_state *st, const char *data, size_t len, struct buf *ret)
{
    size_t cut;
    int r;

    /* Complete the character of the last piece byte by byte: at most three bytes are missing. */
    while (st->tail_len && len) {
        st->tail[st->tail_len++] = *data++;
        len--;
        if (render_cut_tail(st->tail, st->tail_len))
            continue;
        r = render_escape_lines(st->tail, st->tail_len, ret);
        if (r < 0)
            return r;
        st->tail_len = 0;
    }
    cut = render_cut_tail(data, len);
    r = render_escape_lines(data, len - cut, ret);
    if (r < 0)
        return r;
    memcpy(st->tail + st->tail_len, data + len - cut, cut);
    st->tail_len += cut;
    return 0;
}

int render_finish(struct render_state *st, struct buf *ret)
{
    size_t n = st->tail_len;

    st->tail_len = 0;
    return render_escape_lines(st->tail, n, ret);
}

int render_line(const json_t *doc, struct buf *ret)
{
    _cleanup_free_ char *text = json_to_text(doc, false);
    int r = buf_append_str(ret, text);

    return r < 0 ? r : buf_append_c(ret, '\n');
}

int render_json(const char *type, uint64_t offset, const char *data, size_t len, struct buf *ret)
{
    _cleanup_json_ json_t *doc = json_object();
    _cleanup_free_ char *coded = NULL;
    json_t *plain = json_stringn(data, len); /* NULL when it is not UTF-8 */

    json_object_set_new(doc, "type", json_string(type));
    json_object_set_new(doc, "offset", json_integer((json_int_t)offset));
    if (plain) {
        json_object_set_new(doc, "data", plain);
    } else {
        coded = base64_encode(data, len);
        json_object_set_new(doc, "base64", json_string(coded));
    }
    return render_line(doc, ret);
}
