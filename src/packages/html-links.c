#include "packages/html-links.h"

#include <string.h>
#include <strings.h>

#include "lib/base/buf.h"
#include "lib/base/macro.h"

enum attr { ATTR_HREF, ATTR_PYTHON, ATTR_YANKED, ATTR_CORE, ATTR_DIST_INFO, ATTR_TIME, ATTR_MAX };

static const char *const attr_names[ATTR_MAX] = {
    "href",
    "data-requires-python",
    "data-yanked",
    "data-core-metadata",
    "data-dist-info-metadata",
    "data-upload-time",
};

struct html_scan {
    const char *p, *end;
    struct buf value[ATTR_MAX];
    bool has[ATTR_MAX];
    struct buf text;
    bool open; /* inside <a> with a href */
    size_t links;
    html_link_fn fn;
    void *arg;
};

static bool html_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

static void html_skip_blanks(struct html_scan *s)
{
    while (s->p < s->end && html_is_blank(*s->p))
        s->p++;
}

/* Decodes references that escape markup, and numeric ones for plain ASCII. 0: leave it encoded. */
static char html_reference(const char *name, size_t len)
{
    static const struct {
        const char *name;
        char c;
    } known[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    unsigned v = 0;

    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (len == strlen(known[i].name) && memcmp(name, known[i].name, len) == 0)
            return known[i].c;
    if (len < 2 || len > 6 || name[0] != '#')
        return 0;
    for (size_t i = name[1] == 'x' || name[1] == 'X' ? 2 : 1; i < len; i++) {
        bool hex = name[1] == 'x' || name[1] == 'X';
        unsigned d = (unsigned char)name[i];

        d = d >= '0' && d <= '9'                 ? d - '0'
            : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10
                                                 : 99;
        if (d >= (hex ? 16 : 10))
            return 0;
        v = v * (hex ? 16 : 10) + d;
    }
    return v >= 0x20 && v < 0x7f ? (char)v : 0;
}

static int html_decode(struct buf *b, const char *from, const char *to, struct err *err)
{
    while (from < to) {
        size_t left = (size_t)(to - from);
        const char *semi = *from == '&' ? memchr(from, ';', MIN(left, (size_t)10)) : NULL;
        char c = semi ? html_reference(from + 1, (size_t)(semi - from - 1)) : 0;

        if (buf_append_c(b, c ? c : *from) < 0)
            return err_set(err, ERR_LIMIT, "index page: a value is longer than %d bytes",
                           HTML_VALUE_MAX);
        from = c ? semi + 1 : from + 1;
    }
    return 0;
}

static enum attr html_attr_of(const char *name, size_t len)
{
    int i = 0;

    while (i < ATTR_MAX &&
           !(strlen(attr_names[i]) == len && strncasecmp(attr_names[i], name, len) == 0))
        i++;
    return (enum attr)i;
}

/* The value after '='; empty when the attribute has no value. */
static void html_scan_value(struct html_scan *s, const char **from, const char **to)
{
    *from = *to = s->p;
    html_skip_blanks(s);
    if (s->p == s->end || *s->p != '=')
        return;
    s->p++;
    html_skip_blanks(s);
    if (s->p < s->end && (*s->p == '"' || *s->p == '\'')) {
        char quote = *s->p++;

        *from = s->p;
        s->p = memchr(s->p, quote, (size_t)(s->end - s->p));
        if (!s->p)
            s->p = s->end;
        *to = s->p;
        s->p += s->p < s->end;
        return;
    }
    *from = s->p;
    while (s->p < s->end && !html_is_blank(*s->p) && *s->p != '>')
        s->p++;
    *to = s->p;
}

/* One attribute of the tag; 0 when the tag is over. `keep`: it is an <a>. */
static int html_scan_attr(struct html_scan *s, bool keep, struct err *err)
{
    const char *name, *from, *to;
    enum attr a;
    size_t len;
    int r;

    while (s->p < s->end && (html_is_blank(*s->p) || *s->p == '/'))
        s->p++;
    if (s->p == s->end || *s->p == '>')
        return 0;
    name = s->p++;
    while (s->p < s->end && !html_is_blank(*s->p) && *s->p != '=' && *s->p != '>' && *s->p != '/')
        s->p++;
    len = (size_t)(s->p - name);
    html_scan_value(s, &from, &to);
    a = html_attr_of(name, len);
    if (!keep || a == ATTR_MAX || s->has[a])
        return 1;
    r = html_decode(&s->value[a], from, to, err);
    if (r < 0)
        return r;
    s->has[a] = true;
    return memchr(buf_data(&s->value[a]), 0, s->value[a].len)
               ? err_set(err, ERR_INVALID, "index page: a link holds a NUL byte")
               : 1;
}

static const char *html_trimmed(struct buf *b)
{
    while (b->len && html_is_blank(buf_data(b)[0]))
        buf_consume(b, 1);
    while (b->len && html_is_blank(buf_data(b)[b->len - 1]))
        buf_truncate(b, b->len - 1);
    return b->len ? buf_data(b) : "";
}

static const char *html_value_or_null(const struct html_scan *s, enum attr a)
{
    return !s->has[a] ? NULL : s->value[a].len ? buf_data(&s->value[a]) : "";
}

static int html_end_link(struct html_scan *s, struct err *err)
{
    struct html_link link = {0};

    if (!s->open)
        return 0;
    s->open = false;
    if (++s->links > HTML_LINKS_MAX)
        return err_set(err, ERR_LIMIT, "index page: more than %d links", HTML_LINKS_MAX);
    link.href = html_value_or_null(s, ATTR_HREF);
    link.text = html_trimmed(&s->text);
    link.requires_python = html_value_or_null(s, ATTR_PYTHON);
    link.yanked = html_value_or_null(s, ATTR_YANKED);
    link.core_metadata = html_value_or_null(s, s->has[ATTR_CORE] ? ATTR_CORE : ATTR_DIST_INFO);
    link.upload_time = html_value_or_null(s, ATTR_TIME);
    return memchr(link.text, 0, s->text.len) ? 0 : s->fn(s->arg, &link, err);
}

static int html_begin_tag(struct html_scan *s, bool anchor, struct err *err)
{
    int r = anchor ? html_end_link(s, err) : 0;

    if (r < 0)
        return r;
    for (int i = 0; anchor && i < ATTR_MAX; i++) {
        buf_clear(&s->value[i]);
        s->has[i] = false;
    }
    do
        r = html_scan_attr(s, anchor, err);
    while (r > 0);
    if (r < 0)
        return r;
    s->p += s->p < s->end;
    if (anchor && s->has[ATTR_HREF]) {
        buf_clear(&s->text);
        s->open = true;
    }
    return 0;
}

static int html_scan_tag(struct html_scan *s, struct err *err)
{
    bool closing;
    const char *name;
    size_t len;

    if (s->end - s->p >= 4 && memcmp(s->p, "<!--", 4) == 0) {
        s->p = memmem(s->p + 4, (size_t)(s->end - s->p - 4), "-->", 3);
        s->p = s->p ? s->p + 3 : s->end;
        return 0;
    }
    closing = s->end - s->p > 1 && s->p[1] == '/';
    s->p += closing ? 2 : 1;
    name = s->p;
    while (s->p < s->end && !html_is_blank(*s->p) && *s->p != '>' && *s->p != '/')
        s->p++;
    len = (size_t)(s->p - name);
    if (closing && len == 1 && (name[0] | 32) == 'a') {
        int r = html_end_link(s, err);

        if (r < 0)
            return r;
    }
    return html_begin_tag(s, !closing && len == 1 && (name[0] | 32) == 'a', err);
}

static int html_scan_page(struct html_scan *s, struct err *err)
{
    int r;

    while (s->p < s->end) {
        const char *next = memchr(s->p, '<', (size_t)(s->end - s->p));

        next = next ? next : s->end;
        r = s->open ? html_decode(&s->text, s->p, next, err) : 0;
        if (r < 0)
            return r;
        s->p = next;
        r = s->p < s->end ? html_scan_tag(s, err) : 0;
        if (r < 0)
            return r;
    }
    return html_end_link(s, err);
}

int html_links(const char *page, size_t len, html_link_fn fn, void *arg, struct err *err)
{
    struct html_scan s = {
        .p = page, .end = page + len, .text = BUF_INIT(HTML_VALUE_MAX), .fn = fn, .arg = arg};
    int r;

    for (int i = 0; i < ATTR_MAX; i++)
        s.value[i] = (struct buf)BUF_INIT(HTML_VALUE_MAX);
    r = html_scan_page(&s, err);
    for (int i = 0; i < ATTR_MAX; i++)
        buf_done(&s.value[i]);
    buf_done(&s.text);
    return r;
}
