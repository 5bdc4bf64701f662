#include "cli/stamps.h"

#include <ctype.h>
#include <string.h>
#include <time.h>

#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

static const char *const stamps_names[STAMPS_STREAMS] = {"stdout", "stderr"};

/* ---- the marks ---- */

int stamps_load(struct cli *cli, const char *sandbox, const json_t *exec, struct stamps *ret,
                struct err *err)
{
    _cleanup_free_ char *target =
        xasprintf("/v1/sandboxes/%s/execs/%s/times", sandbox, json_text_of(exec, "id"));
    const json_t *output = json_object_get(exec, "output");
    _cleanup_json_ json_t *doc = NULL;
    int r = cli_call(cli, "GET", target, NULL, &doc, err);

    if (r < 0)
        return r;
    ret->started = output_parse_time(json_text_of(exec, "started_at"));
    for (int i = 0; i < STAMPS_STREAMS; i++) {
        ret->streams[i].marks = json_incref(json_object_get(doc, stamps_names[i]));
        ret->streams[i].known = json_number_of(json_object_get(output, stamps_names[i]), "end");
    }
    return 0;
}

void stamps_done(struct stamps *s)
{
    for (int i = 0; i < STAMPS_STREAMS; i++)
        json_decref(s->streams[i].marks);
}

static uint64_t stamps_mark(const struct stamps_stream *s, size_t i, int column)
{
    json_int_t v = json_integer_value(json_array_get(json_array_get(s->marks, i), (size_t)column));

    return v > 0 ? (uint64_t)v : 0;
}

static uint64_t stamps_mark_time(const struct stamps_stream *s, size_t i)
{
    return stamps_mark(s, i, 1) * USEC_PER_MSEC;
}

uint64_t stamps_offset(const struct stamps *s, int stream, uint64_t usec)
{
    const struct stamps_stream *of = &s->streams[stream];

    if (usec <= s->started)
        return 0;
    for (size_t i = 0; i < json_array_size(of->marks); i++)
        if (stamps_mark_time(of, i) >= usec)
            return stamps_mark(of, i, 0);
    return of->known;
}

/* ---- stamping ---- */

static uint64_t stamps_time_of(const struct stamps *s, struct stamps_stream *of, uint64_t offset)
{
    if (offset >= of->known)
        return time_wall();
    /* `at` marks have an offset up to this one. */
    while (of->at < json_array_size(of->marks) && stamps_mark(of, of->at, 0) <= offset)
        of->at++;
    return of->at ? stamps_mark_time(of, of->at - 1) : s->started;
}

int stamps_add(struct stamps *s, int stream, uint64_t offset, const char *data, size_t len,
               struct buf *out)
{
    struct stamps_stream *of = &s->streams[stream];
    const char *end = data + len;

    while (data < end) {
        const char *lf = memchr(data, '\n', (size_t)(end - data));
        size_t n = (size_t)((lf ? lf + 1 : end) - data);
        char text[TIME_FORMAT_MAX];

        if (!of->in_line &&
            buf_appendf(out, "%s ", time_format(stamps_time_of(s, of, offset), text)) < 0)
            return -ERR_LIMIT;
        if (buf_append(out, data, n) < 0)
            return -ERR_LIMIT;
        of->in_line = !lf;
        data += n;
        offset += n;
    }
    return 0;
}

/* ---- --since ---- */

/* ".123": up to microseconds count, the rest is read over. */
static const char *stamps_parse_fraction(const char *p, uint64_t *usec)
{
    uint64_t unit = USEC_PER_SEC;

    if (*p != '.' || !isdigit((unsigned char)p[1]))
        return p;
    for (p++; isdigit((unsigned char)*p); p++) {
        unit /= 10;
        *usec += unit * (uint64_t)(*p - '0');
    }
    return p;
}

/* "Z" or "+01:00". Returns the text behind it, or NULL. */
static const char *stamps_parse_zone(const char *p, int64_t *ret_sec)
{
    int sign = *p == '-' ? -1 : 1;

    *ret_sec = 0;
    if (*p == 'Z')
        return p + 1;
    if ((*p != '+' && *p != '-') || strspn(p + 1, "0123456789") != 2 || p[3] != ':' ||
        strspn(p + 4, "0123456789") != 2)
        return NULL;
    *ret_sec = (int64_t)sign * ((p[1] - '0') * 36000 + (p[2] - '0') * 3600 + (p[4] - '0') * 600 +
                                (p[5] - '0') * 60);
    return p + 6;
}

static bool stamps_parse_date(const char *text, uint64_t *ret_usec)
{
    struct tm tm = {0}, again;
    uint64_t usec = 0;
    int64_t zone, at;
    const char *p = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);

    p = p ? stamps_parse_fraction(p, &usec) : NULL;
    p = p ? stamps_parse_zone(p, &zone) : NULL;
    if (!p || *p)
        return false;
    again = tm;
    at = timegm(&again) - zone;
    if (again.tm_mday != tm.tm_mday || at < 0) /* February 30 became March 2 */
        return false;
    *ret_usec = (uint64_t)at * USEC_PER_SEC + usec;
    return true;
}

int stamps_parse(const char *text, uint64_t *ret_usec, struct err *err)
{
    uint64_t ago, now = time_wall();

    if (stamps_parse_date(text, ret_usec))
        return 0;
    if (parse_duration(text, &ago, NULL) < 0)
        return err_set(err, ERR_INVALID,
                       "'%s' is neither a duration such as 10m nor a time such as "
                       "2026-11-19T10:00:00Z",
                       text);
    *ret_usec = now > ago ? now - ago : 0;
    return 0;
}
