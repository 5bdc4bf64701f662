#include "cli/output.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { OUTPUT_LINE_MAX = 1 << 20 };

struct cell {
    char *text; /* owned, escaped */
    size_t width;
    enum output_color color;
};

enum { TABLE_GAP = 2, TABLE_SHORTEN_MAX = 4, TABLE_CELL_MIN = 6 };

struct table {
    const char *const *titles;
    size_t columns;
    struct cell *cells;
    size_t n;
    size_t shorten[TABLE_SHORTEN_MAX], n_shorten; /* columns, the least important one first */
};

static char *output_escaped(const char *s, bool keep_lines)
{
    struct buf b = BUF_INIT(OUTPUT_LINE_MAX);

    for (;;) {
        size_t len = keep_lines ? strcspn(s, "\n") : strlen(s);

        if (text_escape(&b, s, len) < 0 || !s[len] || buf_append_c(&b, '\n') < 0)
            return buf_steal(&b);
        s += len + 1;
    }
}

void output_text(FILE *f, const char *s)
{
    _cleanup_free_ char *text = s ? output_escaped(s, false) : NULL;

    fputs(text ? text : "-", f);
}

void output_json(const json_t *doc)
{
    _cleanup_free_ char *text = json_to_text(doc, false);

    puts(text);
}

void output_hint(bool json, const char *hint)
{
    _cleanup_free_ char *safe = NULL;

    if (json)
        return;
    safe = output_escaped(hint, true);
    fprintf(stderr, "%shint:%s %s\n", output_color(stderr, COLOR_YELLOW),
            output_color(stderr, COLOR_NONE), safe);
}

void output_error(const struct err *err, bool json)
{
    _cleanup_free_ char *msg = NULL;

    fflush(stdout);
    if (json) {
        _cleanup_json_ json_t *doc = json_from_err(err);
        _cleanup_free_ char *text = json_to_text(doc, false);

        fprintf(stderr, "%s\n", text);
        return;
    }
    msg = output_escaped(err->msg ? err->msg : "unknown error", true);
    fprintf(stderr, "%sripcord:%s %s\n", output_color(stderr, COLOR_RED),
            output_color(stderr, COLOR_NONE), msg);
    if (err->hint)
        output_hint(false, err->hint);
}

void output_note(bool json, const char *fmt, ...)
{
    _cleanup_free_ char *text = NULL, *safe = NULL;
    va_list ap;

    if (json)
        return;
    va_start(ap, fmt);
    text = xvasprintf(fmt, ap);
    va_end(ap);
    safe = output_escaped(text, true);
    fflush(stdout);
    fprintf(stderr, "ripcord: %s\n", safe);
}

const char *output_color(FILE *f, enum output_color color)
{
    static const char *const codes[] = {"\033[0m",  "\033[1m",  "\033[2m",
                                        "\033[31m", "\033[32m", "\033[33m"};
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    if ((no && *no) || !term || STREQ(term, "dumb") || !isatty(fileno(f)))
        return "";
    return codes[color];
}

struct table *table_new(const char *const *titles, size_t n)
{
    struct table *t = xnew0(struct table);

    t->titles = titles;
    t->columns = n;
    return t;
}

void table_free(struct table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i].text);
    free(t->cells);
    free(t);
}

void table_add(struct table *t, const char *cell)
{
    struct cell c = {.text = cell && *cell ? output_escaped(cell, false) : xstrdup("-")};

    /* Counts characters, which is close enough to columns for our texts. */
    for (const char *s = c.text; *s; s++)
        c.width += ((unsigned char)*s & 0xc0) != 0x80;
    t->cells = xreallocarray(t->cells, t->n + 1, sizeof(*t->cells));
    t->cells[t->n++] = c;
}

void table_color(struct table *t, enum output_color color)
{
    t->cells[t->n - 1].color = color;
}

static void output_print_cell(const char *text, size_t width, size_t column_width,
                              enum output_color color, bool last)
{
    fprintf(stdout, "%s%s%s", color ? output_color(stdout, color) : "", text,
            color ? output_color(stdout, COLOR_NONE) : "");
    if (last)
        putchar('\n');
    else
        printf("%*s", (int)(column_width - width + TABLE_GAP), "");
}

void table_shorten(struct table *t, size_t column)
{
    assert(t->n_shorten < TABLE_SHORTEN_MAX && column < t->columns);
    t->shorten[t->n_shorten++] = column;
}

/* Columns of the terminal behind stdout; 0 for a file or a pipe. */
static size_t output_terminal_width(void)
{
    struct winsize ws;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) < 0 ? 0 : ws.ws_col;
}

/* Cuts the text to `width` characters, of which the last is "…". */
static void output_cut_cell(struct cell *c, size_t width)
{
    char *p = c->text;

    if (c->width <= width)
        return;
    for (size_t n = 0; *p; p++)
        if (((unsigned char)*p & 0xc0) != 0x80 && ++n == width)
            break;
    *p = '\0';
    p = xasprintf("%s…", c->text);
    free(c->text);
    c->text = p;
    c->width = width;
}

static void output_fit_table(struct table *t, size_t *widths)
{
    size_t room = output_terminal_width(), sum = TABLE_GAP * (t->columns - 1);

    for (size_t i = 0; i < t->columns; i++)
        sum += widths[i];
    for (size_t k = 0; room && k < t->n_shorten && sum > room; k++) {
        size_t column = t->shorten[k], least = MAX(strlen(t->titles[column]), TABLE_CELL_MIN);
        size_t width = widths[column] > sum - room ? widths[column] - (sum - room) : 0;

        width = MIN(MAX(width, least), widths[column]);
        for (size_t i = column; i < t->n; i += t->columns)
            output_cut_cell(&t->cells[i], width);
        sum -= widths[column] - width;
        widths[column] = width;
    }
}

void table_print(struct table *t)
{
    size_t *widths = xcalloc(t->columns, sizeof(*widths));

    assert(t->columns > 0);
    for (size_t i = 0; i < t->columns; i++)
        widths[i] = strlen(t->titles[i]);
    for (size_t i = 0; i < t->n; i++)
        widths[i % t->columns] = MAX(widths[i % t->columns], t->cells[i].width);
    output_fit_table(t, widths);
    for (size_t i = 0; i < t->columns; i++)
        output_print_cell(t->titles[i], strlen(t->titles[i]), widths[i], COLOR_BOLD,
                          i + 1 == t->columns);
    for (size_t i = 0; i < t->n; i++)
        output_print_cell(t->cells[i].text, t->cells[i].width, widths[i % t->columns],
                          t->cells[i].color, (i + 1) % t->columns == 0);
    free(widths);
}

uint64_t output_parse_time(const char *rfc3339)
{
    struct tm tm = {0};
    unsigned ms = 0;
    int n;

    if (!rfc3339)
        return 0;
    n = sscanf(rfc3339, "%d-%d-%dT%d:%d:%d.%3u", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, &ms);
    if (n < 6)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return (uint64_t)timegm(&tm) * USEC_PER_SEC + ms * USEC_PER_MSEC;
}

const char *output_age(const char *rfc3339, char buf[static AGE_MAX])
{
    uint64_t then = output_parse_time(rfc3339), now = time_wall(), s;

    if (!then) {
        snprintf(buf, AGE_MAX, "-");
        return buf;
    }
    s = now > then ? (now - then) / USEC_PER_SEC : 0;
    if (s < 60)
        snprintf(buf, AGE_MAX, "%us", (unsigned)s);
    else if (s < 3600)
        snprintf(buf, AGE_MAX, "%um", (unsigned)(s / 60));
    else if (s < 2 * 86400)
        snprintf(buf, AGE_MAX, "%uh", (unsigned)(s / 3600));
    else
        snprintf(buf, AGE_MAX, "%ud", (unsigned)(s / 86400));
    return buf;
}

const char *json_text_of(const json_t *obj, const char *key)
{
    return json_string_value(json_object_get(obj, key));
}

uint64_t json_number_of(const json_t *obj, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(obj, key));

    return v > 0 ? (uint64_t)v : 0;
}
