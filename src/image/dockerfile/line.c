/*
 * A line that ends in the escape character continues in the next line, unless the escape character
 * is itself escaped. Comment lines between continuation lines are dropped, and so are empty ones,
 * which BuildKit accepts with a warning. The first lines can be directives: comments of the form
 * `# name=value`. The first line that is not a directive ends them.
 */
#include "image/dockerfile/line.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "image/dockerfile/word.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

void line_reader_init(struct line_reader *r, const char *text, size_t len)
{
    *r = (struct line_reader){.text = text, .len = len, .escape = '\\'};
    if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) /* a byte-order mark */
        r->pos = 3;
}

void line_reader_done(struct line_reader *r)
{
    free(r->syntax);
    free(r->check);
    *r = (struct line_reader){0};
}

void line_done(struct dockerfile_line *l)
{
    free(l->text);
    free(l->parts);
    *l = (struct dockerfile_line){0};
}

size_t line_source(const struct dockerfile_line *l, size_t off)
{
    size_t lo = 0, hi = l->n_parts;

    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;

        if (l->parts[mid].off <= off)
            lo = mid;
        else
            hi = mid;
    }
    return l->n_parts ? l->parts[lo].src + (off - l->parts[lo].off) : l->at;
}

void line_tail(const struct dockerfile_line *l, size_t off, struct dockerfile_line *ret)
{
    size_t first = 0;

    *ret = (struct dockerfile_line){.at = line_source(l, off), .end = l->end, .lead = l->lead};
    ret->len = l->len - off;
    ret->text = xmemdup(l->text + off, ret->len + 1);
    while (first + 1 < l->n_parts && l->parts[first + 1].off <= off)
        first++;
    ret->n_parts = l->n_parts - first;
    ret->parts = xreallocarray(NULL, MAX(ret->n_parts, 1), sizeof(*ret->parts));
    for (size_t i = 0; i < ret->n_parts; i++) {
        const struct line_part *p = &l->parts[first + i];
        size_t skip = p->off < off ? off - p->off : 0;

        ret->parts[i] = (struct line_part){p->off + skip - off, p->src + skip};
    }
}

int line_read_raw(struct line_reader *r, size_t *ret_start, size_t *ret_end, size_t *ret_at,
                  struct err *err)
{
    const char *newline;

    if (r->pos >= r->len)
        return 0;
    newline = memchr(r->text + r->pos, '\n', r->len - r->pos);
    *ret_start = r->pos;
    *ret_end = newline ? (size_t)(newline - r->text) + 1 : r->len;
    if (*ret_end - *ret_start > LINE_MAX_BYTES) {
        *ret_at = r->pos;
        return err_set(err, ERR_LIMIT, "this line has %zu bytes (the limit is %d)",
                       *ret_end - *ret_start, LINE_MAX_BYTES);
    }
    r->pos = *ret_end;
    return 1;
}

/* ---- directives ---- */

struct line_directive {
    size_t name, name_len, value, value_len; /* in the text */
};

/* `# name = value` between start and end. */
static bool line_find_directive(const char *s, size_t start, size_t end, struct line_directive *ret)
{
    size_t i = start + 1;

    if (start >= end || s[start] != '#')
        return false;
    word_trim(s, &i, &end);
    ret->name = i;
    if (i >= end || !isalpha((unsigned char)s[i]))
        return false;
    while (i < end && isalnum((unsigned char)s[i]))
        i++;
    ret->name_len = i - ret->name;
    while (i < end && strchr("\t\n\f\r ", s[i]) && s[i])
        i++;
    if (i >= end || s[i] != '=')
        return false;
    i++;
    word_trim(s, &i, &end);
    ret->value = i;
    ret->value_len = end - i;
    return i < end;
}

static bool line_is_named(const char *s, const struct line_directive *d, const char *name)
{
    return d->name_len == strlen(name) && !strncasecmp(s + d->name, name, d->name_len);
}

static int line_set_escape(struct line_reader *r, const struct line_directive *d, size_t *ret_at,
                           struct err *err)
{
    const char *v = r->text + d->value;

    if (d->value_len == 1 && (*v == '\\' || *v == '`')) {
        r->escape = *v;
        return 0;
    }
    *ret_at = d->value;
    return err_set(err, ERR_INVALID, "the escape directive must be \\ or `, not '%.*s'",
                   (int)MIN(d->value_len, 32), v);
}

/* A second directive of the same name is refused by BuildKit, too. */
static int line_set_once(struct line_reader *r, const struct line_directive *d, char **slot,
                         size_t *ret_at, struct err *err)
{
    if (*slot) {
        *ret_at = d->name;
        return err_set(err, ERR_INVALID, "only one '%.*s' directive can be used", (int)d->name_len,
                       r->text + d->name);
    }
    *slot = xstrndup(r->text + d->value, d->value_len);
    return 0;
}

static int line_take_directive(struct line_reader *r, size_t start, size_t end, char **escape_seen,
                               size_t *ret_at, struct err *err)
{
    struct line_directive d;
    int rc;

    if (!line_find_directive(r->text, start, end, &d)) {
        r->directives_done = true;
        return 0;
    }
    if (line_is_named(r->text, &d, "syntax"))
        return line_set_once(r, &d, &r->syntax, ret_at, err);
    if (line_is_named(r->text, &d, "check"))
        return line_set_once(r, &d, &r->check, ret_at, err);
    if (!line_is_named(r->text, &d, "escape")) {
        r->directives_done = true;
        return 0;
    }
    rc = line_set_once(r, &d, escape_seen, ret_at, err);
    return rc < 0 ? rc : line_set_escape(r, &d, ret_at, err);
}

/* The comments at the top, as far as they are directives; the lines are read again as comments. */
static int line_read_directives(struct line_reader *r, size_t *ret_at, struct err *err)
{
    _cleanup_free_ char *escape = NULL;
    struct line_reader look = *r;
    size_t start, end;
    int rc = 1;

    while (rc > 0 && !look.directives_done) {
        rc = line_read_raw(&look, &start, &end, ret_at, err);
        if (rc <= 0)
            break;
        word_trim(look.text, &start, &end);
        rc = line_take_directive(&look, start, end, &escape, ret_at, err);
        if (rc == 0)
            rc = 1;
    }
    r->syntax = look.syntax;
    r->check = look.check;
    r->escape = look.escape;
    r->directives_done = true;
    return rc < 0 ? rc : 0;
}

/* ---- joining ---- */

static bool line_is_comment(const char *s, size_t start, size_t end)
{
    size_t stop = end;

    word_trim(s, &start, &stop);
    return start < stop && s[start] == '#';
}

/* The end of a line without its newline. *ret_more: the line continues; the end is then before the
 * escape character. */
static size_t line_content_end(const struct line_reader *r, size_t start, size_t end,
                               bool *ret_more)
{
    const char *s = r->text;
    size_t i;

    while (end > start && (s[end - 1] == '\n' || s[end - 1] == '\r'))
        end--;
    for (i = end; i > start && (s[i - 1] == ' ' || s[i - 1] == '\t'); i--)
        ;
    *ret_more = i > start && s[i - 1] == r->escape && (i - 1 == start || s[i - 2] != r->escape);
    return *ret_more ? i - 1 : end;
}

static int line_add_part(struct dockerfile_line *l, struct buf *b, const char *s, size_t start,
                         size_t end)
{
    if (start == end)
        return 0;
    if (!(l->n_parts & (l->n_parts - 1)))
        l->parts = xreallocarray(l->parts, l->n_parts ? l->n_parts * 2 : 1, sizeof(*l->parts));
    l->parts[l->n_parts++] = (struct line_part){b->len, start};
    return buf_append(b, s + start, end - start);
}

static void line_note_gap(struct dockerfile_line *l, size_t at)
{
    if (!l->gap)
        l->gap_at = at;
    l->gap = true;
}

/* Appends the continuation lines. */
static int line_join(struct line_reader *r, struct dockerfile_line *l, struct buf *b,
                     size_t *ret_at, struct err *err)
{
    size_t start, end, stop, from;
    bool more = true;
    int rc = 1;

    while (more && (rc = line_read_raw(r, &start, &end, ret_at, err)) > 0) {
        l->end = end;
        if (line_is_comment(r->text, start, end))
            continue;
        from = start;
        stop = end;
        word_trim(r->text, &from, &stop);
        if (from == stop) {
            line_note_gap(l, start);
            continue;
        }
        stop = line_content_end(r, start, end, &more);
        /* Cannot fail: the buffer can hold the whole file. */
        (void)!line_add_part(l, b, r->text, start, stop);
    }
    return rc < 0 ? rc : 0;
}

/* Finds the next line that is not empty, and notes the comments before it. */
static int line_find_start(struct line_reader *r, struct dockerfile_line *l, size_t *ret_start,
                           size_t *ret_end, size_t *ret_at, struct err *err)
{
    bool lead = false;
    size_t stop;
    int rc;

    while ((rc = line_read_raw(r, ret_start, ret_end, ret_at, err)) > 0) {
        stop = *ret_end;
        if (line_is_comment(r->text, *ret_start, *ret_end)) {
            if (!lead)
                l->lead = *ret_start;
            lead = true;
            continue;
        }
        l->end = *ret_end;
        word_trim(r->text, ret_start, &stop);
        if (*ret_start < stop) {
            l->at = *ret_start;
            l->lead = lead ? l->lead : l->at;
            return 1;
        }
        lead = false;
    }
    return rc;
}

int line_read(struct line_reader *r, struct dockerfile_line *ret, size_t *ret_at, struct err *err)
{
    struct buf b = BUF_INIT(r->len + 1);
    struct dockerfile_line l = {0};
    size_t start, end;
    bool more;
    int rc = r->directives_done ? 0 : line_read_directives(r, ret_at, err);

    if (rc < 0)
        return rc;
    rc = line_find_start(r, &l, &start, &end, ret_at, err);
    if (rc <= 0)
        return rc;
    end = line_content_end(r, start, end, &more);
    (void)!line_add_part(&l, &b, r->text, start, end);
    if (more)
        rc = line_join(r, &l, &b, ret_at, err);
    l.len = b.len;
    l.text = buf_steal(&b);
    if (rc < 0) {
        line_done(&l);
        return rc;
    }
    *ret = l;
    return 1;
}
