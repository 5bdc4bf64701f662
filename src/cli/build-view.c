#include "cli/build-view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output.h"
#include "cli/term.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/text.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum {
    LINE_BYTES = 8 << 10, /* maximum length of a line; longer lines are split */
    TAIL = 20,            /* lines of output stored for each step */
    LIVE_LINES = 5,       /* of these, lines in the live view */
    STEPS_SHOWN = 65536,
    NAME_BYTES = 1024,
};
#define TICK (100 * USEC_PER_MSEC)

struct build_view_step {
    char *name; /* owned: "[2/4] RUN make" on one line; NULL: step not started */
    unsigned line;
    uint64_t began; /* time_mono() of the start */
    bool ended, failed, cached;
    struct buf text;  /* the incomplete last line of output */
    uint64_t ms;      /* time of the last output */
    char *tail[TAIL]; /* owned: ring buffer of lines */
    size_t n_tail;    /* number of lines added so far */
    char *note;       /* owned: progress text, or NULL */
};

struct build_view {
    bool live;
    struct build_view_step *steps; /* step N has index N - 1 */
    size_t n;
    size_t last;   /* step that was printed last in plain form; 0: none */
    size_t failed; /* step that failed first; 0: none */
    size_t done;
    uint64_t began, drawn;
    unsigned rows; /* height of the live part on the screen */
};

/* ---- texts ---- */

static char *build_view_name_of(const json_t *e)
{
    const char *stage = json_text_of(e, "stage"), *text = json_text_of(e, "text");
    _cleanup_free_ char *words = xstrndup(text ? text : "", NAME_BYTES);
    unsigned long long n = json_number_of(e, "n"), of = json_number_of(e, "of");

    /* One row per step. Other control characters are escaped when the text is printed. */
    for (char *p = words; *p; p++)
        if (strchr("\n\r\t", *p))
            *p = ' ';
    if (of)
        return xasprintf("[%s%s%llu/%llu] %s", stage ? stage : "", stage ? " " : "", n, of, words);
    return stage ? xasprintf("[%s] %s", stage, words) : xstrdup(words);
}

/* The line as a terminal would show it: without colours, and only the text after the last '\r'. */
static char *build_view_visible(const char *s, size_t len)
{
    char *out = xmalloc(len + 1), *to = out;

    for (size_t i = 0; i < len; i++) {
        if (s[i] == '\033' && i + 1 < len && s[i + 1] == '[') {
            for (i += 2; i < len && (s[i] < '@' || s[i] > '~');)
                i++;
        } else if (s[i] == '\r') {
            if (i + 1 < len)
                to = out;
        } else if (s[i]) { /* a terminal ignores NUL */
            *to++ = s[i];
        }
    }
    *to = '\0';
    return out;
}

/* Prints at most `cols` characters of the escaped text. */
static void build_view_print_cut(const char *s, size_t cols)
{
    struct buf b = BUF_INIT(8 * LINE_BYTES);
    size_t at = 0, n;
    unsigned cp;

    if (text_escape(&b, s, strlen(s)) >= 0)
        while (cols-- && at < b.len && (n = text_utf8_next(buf_data(&b) + at, b.len - at, &cp)))
            at += n;
    fwrite(buf_data(&b), 1, at, stderr);
    buf_done(&b);
}

/* ---- plain ---- */

/* Repeats the heading when the previous line belongs to another step. */
static void build_view_plain_head(struct build_view *v, size_t id)
{
    if (v->last == id)
        return;
    if (v->last)
        fputc('\n', stderr);
    fprintf(stderr, "#%zu ", id);
    output_text(stderr, v->steps[id - 1].name);
    fputc('\n', stderr);
    v->last = id;
}

static void build_view_plain_end(struct build_view *v, size_t id, const json_t *e)
{
    const char *error = json_text_of(e, "error");

    build_view_plain_head(v, id);
    if (error) {
        fprintf(stderr, "#%zu ERROR: ", id);
        output_text(stderr, error);
        fputc('\n', stderr);
    } else if (v->steps[id - 1].cached) {
        fprintf(stderr, "#%zu CACHED\n", id);
    } else {
        fprintf(stderr, "#%zu DONE %.1fs\n", id, (double)json_number_of(e, "ms") / 1000);
    }
}

/* ---- live ---- */

static void build_view_live_clear(struct build_view *v)
{
    if (v->rows)
        fprintf(stderr, "\r\033[%uA\033[J", v->rows);
    v->rows = 0;
}

static void build_view_live_row(struct build_view *v, const char *head, const char *text,
                                double seconds, unsigned cols)
{
    fputs(head, stderr);
    build_view_print_cut(text, cols > strlen(head) + 12 ? cols - strlen(head) - 12 : 1);
    if (seconds >= 0)
        fprintf(stderr, "  %.1fs", seconds);
    fputc('\n', stderr);
    v->rows++;
}

static double build_view_seconds_since(uint64_t then)
{
    return (double)(time_mono() - then) / (double)USEC_PER_SEC;
}

static void build_view_live_step(struct build_view *v, const struct build_view_step *s,
                                 unsigned cols)
{
    size_t lines = MIN(s->n_tail, (size_t)LIVE_LINES);

    build_view_live_row(v, " => ", s->name, build_view_seconds_since(s->began), cols);
    if (s->note)
        build_view_live_row(v, " => => ", s->note, -1, cols);
    for (size_t i = s->n_tail - lines; i < s->n_tail; i++)
        build_view_live_row(v, " => => # ", s->tail[i % TAIL], -1, cols);
}

static void build_view_live_draw(struct build_view *v)
{
    unsigned rows = 24, cols = 80;

    v->drawn = time_mono();
    build_view_live_clear(v);
    if (term_size(&rows, &cols) && (rows < 4 || cols < 20))
        return; /* too small for a live view */
    fprintf(stderr, "%s[+] building %.1fs (%zu/%zu)%s\n", output_color(stderr, COLOR_BOLD),
            build_view_seconds_since(v->began), v->done, v->n, output_color(stderr, COLOR_NONE));
    v->rows++;
    for (size_t i = 0; i < v->n && v->rows + LIVE_LINES + 3 < rows; i++)
        if (v->steps[i].name && !v->steps[i].ended)
            build_view_live_step(v, &v->steps[i], cols);
    fflush(stderr);
}

static void build_view_live_end(struct build_view *v, size_t id, const json_t *e)
{
    const struct build_view_step *s = &v->steps[id - 1];
    const char *word = s->failed ? "ERROR " : s->cached ? "CACHED " : "";
    enum output_color color = s->failed ? COLOR_RED : COLOR_DIM;
    unsigned rows, cols = 80;

    build_view_live_clear(v);
    term_size(&rows, &cols);
    fprintf(stderr, " => %s%s%s", output_color(stderr, color), word,
            output_color(stderr, COLOR_NONE));
    build_view_print_cut(s->name, cols > 30 ? cols - 20 : 10);
    fprintf(stderr, "  %.1fs\n", (double)json_number_of(e, "ms") / 1000);
}

void build_view_tick(struct build_view *v)
{
    if (v->live && time_mono() - v->drawn >= TICK)
        build_view_live_draw(v);
}

/* ---- events ---- */

static void build_view_show_line(struct build_view *v, size_t id, const char *text)
{
    struct build_view_step *s = &v->steps[id - 1];

    free(s->tail[s->n_tail % TAIL]);
    s->tail[s->n_tail++ % TAIL] = xstrdup(text);
    if (v->live)
        return;
    build_view_plain_head(v, id);
    fprintf(stderr, "#%zu %llu.%03llu ", id, (unsigned long long)s->ms / 1000,
            (unsigned long long)s->ms % 1000);
    output_text(stderr, text);
    fputc('\n', stderr);
}

static void build_view_flush_line(struct build_view *v, size_t id)
{
    struct build_view_step *s = &v->steps[id - 1];
    _cleanup_free_ char *text = build_view_visible(buf_data(&s->text), s->text.len);

    if (s->text.len)
        build_view_show_line(v, id, text);
    buf_clear(&s->text);
}

static void build_view_on_output(struct build_view *v, size_t id, const json_t *e)
{
    struct build_view_step *s = &v->steps[id - 1];
    const json_t *data = json_object_get(e, "data");
    const char *p = json_string_value(data) ?: "", *end = p + json_string_length(data);

    s->ms = json_number_of(e, "ms");
    while (p < end) {
        const char *lf = memchr(p, '\n', (size_t)(end - p)), *stop = lf ? lf : end;

        for (size_t left = (size_t)(stop - p); left;) {
            size_t n = MIN(left, LINE_BYTES - s->text.len);

            if (buf_append(&s->text, stop - left, n) < 0 || s->text.len == LINE_BYTES)
                build_view_flush_line(v, id);
            left -= n;
        }
        if (lf && !s->text.len)
            build_view_show_line(v, id, "");
        else if (lf)
            build_view_flush_line(v, id);
        p = lf ? lf + 1 : end;
    }
}

static void build_view_on_step(struct build_view *v, size_t id, const json_t *e)
{
    struct build_view_step *s;

    if (id > v->n) {
        v->steps = xreallocarray(v->steps, id, sizeof(*v->steps));
        memset(v->steps + v->n, 0, (id - v->n) * sizeof(*v->steps));
        v->n = id;
    }
    s = &v->steps[id - 1];
    if (s->name)
        return;
    s->name = build_view_name_of(e);
    s->line = (unsigned)json_number_of(e, "line");
    s->began = time_mono();
    s->text = (struct buf)BUF_INIT(LINE_BYTES);
    if (!v->live)
        build_view_plain_head(v, id);
}

static void build_view_on_end(struct build_view *v, size_t id, const json_t *e)
{
    struct build_view_step *s = &v->steps[id - 1];

    build_view_flush_line(v, id);
    v->done += !s->ended;
    s->ended = true;
    s->failed = json_text_of(e, "error");
    if (s->failed && !v->failed) /* later failures are cancelled steps */
        v->failed = id;
    if (v->live)
        build_view_live_end(v, id, e);
    else
        build_view_plain_end(v, id, e);
}

static void build_view_on_progress(struct build_view *v, size_t id, const json_t *e)
{
    struct build_view_step *s = &v->steps[id - 1];
    char current[FORMAT_MAX], total[FORMAT_MAX];
    const char *what = json_text_of(e, "what");

    free(s->note);
    s->note = xasprintf("%s %s / %s", what ? what : "",
                        format_size(json_number_of(e, "current"), current),
                        format_size(json_number_of(e, "total"), total));
    if (!v->live) {
        build_view_plain_head(v, id);
        fprintf(stderr, "#%zu ", id);
        output_text(stderr, s->note);
        fputc('\n', stderr);
    }
}

void build_view_event(struct build_view *v, const json_t *e)
{
    const char *kind = json_text_of(e, "event");
    size_t id = json_number_of(e, "step");

    if (kind && STREQ(kind, "warning")) {
        if (v->live)
            build_view_live_clear(v);
        output_note(false, "warning: %s", json_text_of(e, "text"));
    }
    if (kind && STREQ(kind, "step") && id && id <= STEPS_SHOWN)
        build_view_on_step(v, id, e);
    if (!kind || !id || id > v->n || !v->steps[id - 1].name)
        return;
    if (STREQ(kind, "cached"))
        v->steps[id - 1].cached = true;
    else if (STREQ(kind, "output"))
        build_view_on_output(v, id, e);
    else if (STREQ(kind, "progress"))
        build_view_on_progress(v, id, e);
    else if (STREQ(kind, "step_end"))
        build_view_on_end(v, id, e);
    if (v->live && STREQ(kind, "step_end"))
        build_view_live_draw(v);
}

unsigned build_view_failure(struct build_view *v, const char **ret_text)
{
    const struct build_view_step *s = v->failed ? &v->steps[v->failed - 1] : NULL;

    build_view_live_clear(v);
    *ret_text = s ? s->name : NULL;
    if (s && v->live && s->n_tail) {
        fputs("------\n > ", stderr);
        output_text(stderr, s->name);
        fputs(":\n", stderr);
        for (size_t i = s->n_tail > TAIL ? s->n_tail - TAIL : 0; i < s->n_tail; i++) {
            output_text(stderr, s->tail[i % TAIL]);
            fputc('\n', stderr);
        }
        fputs("------\n", stderr);
    }
    return s ? s->line : 0;
}

/* ---- life ---- */

struct build_view *build_view_new(bool live)
{
    struct build_view *v = xnew0(struct build_view);

    v->live = live;
    v->began = time_mono();
    return v;
}

void build_view_free(struct build_view *v)
{
    if (!v)
        return;
    build_view_live_clear(v);
    for (size_t i = 0; i < v->n; i++) {
        struct build_view_step *s = &v->steps[i];

        free(s->name);
        free(s->note);
        buf_done(&s->text);
        for (size_t t = 0; t < TAIL; t++)
            free(s->tail[t]);
    }
    free(v->steps);
    free(v);
}
