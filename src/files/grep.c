/*
 * grep: lines that match, with the lines around them. A file is read once, in pieces, and a line
 * longer than GREP_LINE_MAX is searched in pieces of that size. Text is shown from a little before
 * its match, at most GREP_SHOWN bytes. Files with a NUL near their beginning are not text.
 */
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/folder.h"
#include "files/match.h"
#include "lib/base/cleanup.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"

enum {
    GREP_LINE_MAX = 64 << 10,
    GREP_READ = 64 << 10,
    GREP_SHOWN = 1024,
    GREP_BEFORE = 200, /* shown bytes before a match in a long line */
    GREP_BINARY = 8 << 10,
    GREP_BYTES_MAX = FILES_ANSWER_MAX / 4,
};

struct grep_line {
    char text[GREP_SHOWN];
    size_t len;
    bool cut;
};

struct files_grepper {
    struct files_task *job;
    regex_t regex;
    bool has_regex;
    uint64_t sent, searched, binary;
    char *last; /* owned: the last path below the top that was searched */
    /* Of the present file: */
    const char *shown;
    struct buf text;
    uint64_t line, in_file;
    size_t waiting; /* context lines still to be sent */
    struct grep_line before[FILES_CONTEXT_MAX];
    size_t n_before; /* lines put into the ring since the last match */
    bool inside;     /* the next piece continues the line */
    bool matched;    /* the line, in an earlier piece */
};

/* ---- the pattern ---- */

static char *files_grep_escape(const char *pattern)
{
    char *out = xmalloc(2 * strlen(pattern) + 1), *to = out;

    for (const char *p = pattern; *p; p++) {
        if (strchr("\\.[]*^$+?(){}|", *p))
            *to++ = '\\';
        *to++ = *p;
    }
    *to = '\0';
    return out;
}

static int files_grep_compile(struct files_grepper *g, struct err *err)
{
    const struct files_task *j = g->job;
    bool regex = files_has(j, FILES_TAG_REGEX), icase = files_has(j, FILES_TAG_IGNORE_CASE);
    _cleanup_free_ char *plain = NULL;
    char why[128];
    int r;

    if (memchr(j->pattern, '\n', j->pattern_len) || strlen(j->pattern) != j->pattern_len)
        return err_set(err, ERR_INVALID, "field 'pattern': must not contain a line break or a NUL");
    if (!regex && !icase)
        return 0;
    plain = regex ? NULL : files_grep_escape(j->pattern);
    r = regcomp(&g->regex, plain ? plain : j->pattern, REG_EXTENDED | (icase ? REG_ICASE : 0));
    if (r) {
        regerror(r, &g->regex, why, sizeof(why));
        return err_set(err, ERR_INVALID, "field 'pattern': %s", why);
    }
    g->has_regex = true;
    return 0;
}

/* The offset of the first match, or -1. */
static ssize_t files_grep_match(const struct files_grepper *g, const char *text, size_t len)
{
    regmatch_t at = {0, (regoff_t)len};
    const char *found;

    if (g->has_regex)
        return regexec(&g->regex, text, 1, &at, REG_STARTEND) == 0 ? (ssize_t)at.rm_so : -1;
    found = memmem(text, len, g->job->pattern, g->job->pattern_len);
    return found ? found - text : -1;
}

/* ---- answers ---- */

/* Cuts where no UTF-8 character is broken. */
static size_t files_grep_whole(const char *text, size_t len)
{
    size_t back = 0;

    while (back < 3 && back < len && ((unsigned char)text[len - 1 - back] & 0xC0) == 0x80)
        back++;
    if (back < len && ((unsigned char)text[len - 1 - back] & 0xC0) == 0xC0)
        return len - 1 - back;
    return len;
}

static void files_grep_show(struct grep_line *ret, const char *text, size_t len, size_t at)
{
    size_t from = len > GREP_SHOWN && at > GREP_BEFORE ? at - GREP_BEFORE : 0;
    size_t n = MIN(len - from, (size_t)GREP_SHOWN);

    while (from && n && ((unsigned char)text[from] & 0xC0) == 0x80) {
        from++;
        n--;
    }
    ret->cut = from || n < len - from;
    if (n < len - from)
        n = files_grep_whole(text + from, n);
    ret->len = n;
    memcpy(ret->text, text + from, n);
}

/* column 0: a line of context. */
static int files_grep_send(struct files_grepper *g, uint64_t line, const struct grep_line *l,
                           size_t column, struct err *err)
{
    struct files_task *j = g->job;

    files_answer(j, FILES_ITEM);
    files_put_str(&j->out, FILES_TAG_PATH, g->shown);
    files_put_u64(&j->out, FILES_TAG_LINE, line);
    if (column)
        files_put_u64(&j->out, FILES_TAG_COLUMN, column);
    files_put_bytes(&j->out, FILES_TAG_TEXT, l->text, l->len);
    files_put_flag(&j->out, FILES_TAG_CUT, l->cut);
    files_put_flag(&j->out, FILES_TAG_IS_CONTEXT, !column);
    return files_send(j, err);
}

static int files_grep_send_before(struct files_grepper *g, struct err *err)
{
    size_t n = MIN(g->n_before, (size_t)g->job->context);
    int r = 0;

    for (size_t i = n; i > 0 && r >= 0; i--)
        r = files_grep_send(g, g->line - i, &g->before[(g->line - i) % FILES_CONTEXT_MAX], 0, err);
    g->n_before = 0;
    return r;
}

/* ---- lines ---- */

static int files_grep_found(struct files_grepper *g, const char *text, size_t len, size_t at,
                            struct err *err)
{
    struct grep_line l;
    int r = files_grep_send_before(g, err);

    if (r < 0)
        return r;
    files_grep_show(&l, text, len, at);
    g->sent++;
    g->in_file++;
    g->waiting = g->job->context;
    return files_grep_send(g, g->line, &l, at + 1, err);
}

/* One line, or a piece of a long one; `ends`: its line break follows. */
static int files_grep_line(struct files_grepper *g, const char *text, size_t len, bool ends,
                           struct err *err)
{
    struct grep_line *l;
    ssize_t at;
    int r = 0;

    g->line += !g->inside;
    at = g->matched ? -1 : files_grep_match(g, text, len);
    l = &g->before[g->line % FILES_CONTEXT_MAX];
    if (at >= 0) {
        g->n_before -= g->inside && g->n_before; /* this line's own beginning */
        r = files_grep_found(g, text, len, (size_t)at, err);
    } else if (!g->inside) {
        files_grep_show(l, text, len, 0);
        if (g->waiting) {
            g->waiting--;
            r = files_grep_send(g, g->line, l, 0, err);
        } else {
            g->n_before++;
        }
    }
    g->matched = !ends && (g->matched || at >= 0);
    g->inside = !ends;
    return r;
}

static bool files_grep_full(const struct files_grepper *g)
{
    return g->in_file >= g->job->limit && !g->waiting;
}

/* The whole lines in g->text; everything at the end of the file. 1: the time is over. */
static int files_grep_lines(struct files_grepper *g, bool last, struct err *err)
{
    while (g->text.len && !files_grep_full(g)) {
        const char *text = buf_data(&g->text), *end = memchr(text, '\n', g->text.len);
        size_t len = end ? (size_t)(end - text) : g->text.len;
        int r = files_tick(g->job, err);

        if (r != 0)
            return r;
        if (!end && !last && len < GREP_LINE_MAX)
            return 0;
        len = MIN(len, (size_t)GREP_LINE_MAX);
        end = end && (size_t)(end - text) == len ? end : NULL;
        r = files_grep_line(g, text, len, end || (last && len == g->text.len), err);
        if (r < 0)
            return r;
        buf_consume(&g->text, len + (end ? 1 : 0));
    }
    return 0;
}

/* ---- files ---- */

static int files_grep_read(struct files_grepper *g, int fd, struct err *err)
{
    bool first = true;

    for (;;) {
        char *p = buf_reserve(&g->text, GREP_READ);
        ssize_t n = p ? read(fd, p, GREP_READ) : 0;
        int r;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return 0; /* as a file that ends here */
        if (first && memchr(p, 0, MIN((size_t)n, (size_t)GREP_BINARY))) {
            g->binary++;
            return 0;
        }
        first = false;
        buf_commit(&g->text, (size_t)n);
        r = files_grep_lines(g, n == 0, err);
        if (r > 0) {
            g->binary++; /* not searched to its end */
            return 0;
        }
        if (r < 0 || n == 0 || files_grep_full(g))
            return r;
    }
}

static int files_grep_open(int dirfd, const char *name, const char *shown, struct files_grepper *g,
                           struct err *err)
{
    _cleanup_close_ int fd =
        openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        g->binary++;
        return 0;
    }
    g->shown = shown;
    g->line = g->in_file = 0;
    g->waiting = g->n_before = 0;
    g->inside = g->matched = false;
    buf_clear(&g->text);
    g->searched++;
    return files_grep_read(g, fd, err);
}

/* A page ends behind a whole file, so no match is seen twice. */
static int files_grep_visit(void *arg, const struct files_node *n, struct err *err)
{
    struct files_grepper *g = arg;
    const struct files_task *j = g->job;
    int r;

    if (!S_ISREG(n->st.st_mode) || (j->glob && !files_match_path(j->glob, n->rel, n->name)))
        return FILES_GO_ON;
    r = files_grep_open(n->dirfd, n->name, n->path, g, err);
    if (r < 0)
        return r;
    free(g->last);
    g->last = xstrdup(n->rel);
    return g->sent >= j->limit || j->out_bytes >= GREP_BYTES_MAX || deadline_passed(&j->by)
               ? FILES_STOP
               : FILES_GO_ON;
}

/* `path` may be a file; then it is searched alone. */
static int files_grep_top(struct files_grepper *g, struct files_walk *w, struct err *err)
{
    struct files_task *j = g->job;
    _cleanup_close_ int fd = files_open(j->path, O_RDONLY | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return tree_err(err, errno, "open '%s'", j->path);
    if (S_ISDIR(st.st_mode))
        return files_walk_tree(w, j->path, err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_CONFLICT, "'%s' is not a regular file", j->path);
    g->shown = j->path;
    g->searched = 1;
    return files_grep_read(g, fd, err);
}

int files_grep(struct files_task *j, struct err *err)
{
    struct files_grepper *g = xnew0(struct files_grepper);
    struct files_walk w = {.job = j,
                           .visit = files_grep_visit,
                           .arg = g,
                           .depth_max =
                               files_has(j, FILES_TAG_DEPTH) ? (unsigned)j->depth : UINT32_MAX,
                           .after = j->after};
    int r;

    g->job = j;
    g->text = (struct buf)BUF_INIT(GREP_LINE_MAX + 2 * GREP_READ);
    r = files_grep_compile(g, err);
    if (r >= 0)
        r = files_grep_top(g, &w, err);
    if (r >= 0) {
        w.unreadable += g->binary;
        r = files_send_page(j, &w, g->last ? g->last : j->after, r, g->searched, err);
    }
    if (g->has_regex)
        regfree(&g->regex);
    buf_done(&g->text);
    free(g->last);
    free(g);
    return r;
}
