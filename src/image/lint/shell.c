#include "image/lint/shell.h"

#include <ctype.h>
#include <string.h>

#include "image/dockerfile/word.h"
#include "lib/base/buf.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

struct shell_reader {
    const char *s; /* borrowed */
    size_t len, pos;
    const struct dockerfile_line *line; /* maps offsets to the source; NULL when base is all */
    size_t base;
    struct shell_script *out;
    struct shell_command now;
    bool piped, chained; /* how the next command is tied to the one before */
    bool skip_next;      /* the next word is a redirection's */
};

static size_t shell_source(const struct shell_reader *r, size_t off)
{
    return r->line ? line_source(r->line, r->base + off) : r->base + off;
}

static void shell_command_done(struct shell_command *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->words[i].text);
    free(c->words);
}

void shell_script_done(struct shell_script *s)
{
    for (size_t i = 0; i < s->n; i++)
        shell_command_done(&s->commands[i]);
    free(s->commands);
    *s = (struct shell_script){0};
}

/* ---- which word is the program ---- */

static bool shell_is_assignment(const char *s)
{
    const char *p = s;

    if (!isalpha((unsigned char)*p) && *p != '_')
        return false;
    while (isalnum((unsigned char)*p) || *p == '_')
        p++;
    return *p == '=';
}

static bool shell_is_one_of(const char *s, const char *const *words)
{
    for (; *words; words++)
        if (STREQ(*words, s))
            return true;
    return false;
}

/* Options of a wrapper that take a word of their own. */
static bool shell_takes_word(const char *wrapper, const char *option)
{
    static const char *const xargs[] = {"-a", "-n", "-P", "-I", "-L", "-d", "-s", NULL};
    static const char *const sudo[] = {"-u", "-g", "-C", "-h", "-p", NULL};

    return shell_is_one_of(option, STREQ(wrapper, "xargs") ? xargs : sudo);
}

static size_t shell_find_program(const struct shell_command *c)
{
    static const char *const keywords[] = {"if",    "then",  "else", "elif", "do",
                                           "while", "until", "!",    "time", NULL};
    static const char *const wrappers[] = {"sudo",  "env",  "exec",   "command", "nice",
                                           "xargs", "gosu", "chroot", NULL};
    const char *wrapper = NULL;
    size_t i = 0;

    for (; i < c->n; i++) {
        const char *w = c->words[i].text;

        if (shell_is_assignment(w) || shell_is_one_of(w, keywords))
            continue;
        if (wrapper && *w == '-') {
            i += shell_takes_word(wrapper, w);
            continue;
        }
        if (wrapper && (STREQ(wrapper, "gosu") || STREQ(wrapper, "chroot"))) {
            wrapper = NULL; /* its first word is a user or a folder */
            continue;
        }
        if (!shell_is_one_of(w, wrappers))
            return i;
        wrapper = w;
    }
    return c->n;
}

/* ---- reading ---- */

static void shell_end_command(struct shell_reader *r, bool pipes)
{
    struct shell_script *out = r->out;

    if (r->now.n && out->n < SHELL_COMMANDS_MAX) {
        r->now.first = shell_find_program(&r->now);
        r->now.from_pipe = r->piped;
        r->now.to_pipe = pipes;
        r->now.chained = r->chained;
        if (!(out->n & (out->n - 1)))
            out->commands =
                xreallocarray(out->commands, out->n ? out->n * 2 : 1, sizeof(*out->commands));
        out->commands[out->n++] = r->now;
    } else {
        shell_command_done(&r->now);
    }
    r->now = (struct shell_command){0};
    r->piped = pipes;
    r->chained = false;
    r->skip_next = false;
}

static void shell_add_word(struct shell_reader *r, char *owned, size_t start, size_t end)
{
    struct shell_command *c = &r->now;

    if (r->skip_next) {
        r->skip_next = false;
        free(owned);
        return;
    }
    if (!(c->n & (c->n - 1)))
        c->words = xreallocarray(c->words, c->n ? c->n * 2 : 1, sizeof(*c->words));
    c->words[c->n++] =
        (struct shell_word){owned, shell_source(r, start), shell_source(r, end - 1) + 1};
}

/* Behind $( … ) or ` … ` or ${ … } at pos, brackets counted. */
static size_t shell_skip_substitution(const struct shell_reader *r, size_t pos)
{
    size_t depth = 0;

    if (r->s[pos] == '`') {
        const char *end = memchr(r->s + pos + 1, '`', r->len - pos - 1);

        return end ? (size_t)(end - r->s) + 1 : r->len;
    }
    for (pos++; pos < r->len; pos++) {
        if (r->s[pos] == '(' || r->s[pos] == '{')
            depth++;
        if ((r->s[pos] == ')' || r->s[pos] == '}') && --depth == 0)
            return pos + 1;
    }
    return r->len;
}

static bool shell_begins_substitution(const struct shell_reader *r, size_t pos)
{
    return r->s[pos] == '`' ||
           (r->s[pos] == '$' && pos + 1 < r->len && (r->s[pos + 1] == '(' || r->s[pos + 1] == '{'));
}

static size_t shell_copy_to(struct shell_reader *r, struct buf *b, size_t to)
{
    (void)!buf_append(b, r->s + r->pos, to - r->pos); /* no longer than the script */
    return to;
}

/* The quoted part at pos, without its quotes. */
static void shell_read_quoted(struct shell_reader *r, struct buf *b)
{
    char quote = r->s[r->pos++];

    while (r->pos < r->len && r->s[r->pos] != quote) {
        if (quote == '"' && shell_begins_substitution(r, r->pos)) {
            r->pos = shell_copy_to(r, b, shell_skip_substitution(r, r->pos));
            continue;
        }
        if (quote == '"' && r->s[r->pos] == '\\' && r->pos + 1 < r->len)
            r->pos++;
        r->pos = shell_copy_to(r, b, r->pos + 1);
    }
    if (r->pos < r->len)
        r->pos++;
}

static bool shell_ends_word(char c)
{
    return strchr(" \t\r\n\v\f;&|()<>", c) != NULL;
}

static void shell_read_word(struct shell_reader *r)
{
    struct buf b = BUF_INIT(r->len + 1);
    size_t start = r->pos;

    while (r->pos < r->len && !shell_ends_word(r->s[r->pos])) {
        char c = r->s[r->pos];

        if (c == '\'' || c == '"') {
            shell_read_quoted(r, &b);
        } else if (shell_begins_substitution(r, r->pos)) {
            r->pos = shell_copy_to(r, &b, shell_skip_substitution(r, r->pos));
        } else if (c == '\\' && r->pos + 1 < r->len) {
            r->pos += 2;
            if (r->s[r->pos - 1] != '\n')
                (void)!buf_append_c(&b, r->s[r->pos - 1]);
        } else {
            r->pos = shell_copy_to(r, &b, r->pos + 1);
        }
    }
    shell_add_word(r, buf_steal(&b), start, r->pos);
}

/* > file, 2>&1, << EOF: what follows is no word of the command. A number before belongs to it. */
static void shell_read_redirection(struct shell_reader *r)
{
    struct shell_command *c = &r->now;

    if (c->n && shell_source(r, r->pos) == c->words[c->n - 1].end) {
        const char *last = c->words[c->n - 1].text;

        if (*last && strspn(last, "0123456789") == strlen(last))
            free(c->words[--c->n].text);
    }
    while (r->pos < r->len && strchr("<>&", r->s[r->pos]) && r->s[r->pos])
        r->pos++;
    if (r->pos < r->len && r->s[r->pos] == '-')
        r->pos++;
    r->skip_next = true;
}

static void shell_read_operator(struct shell_reader *r)
{
    char c = r->s[r->pos++];
    bool twice = r->pos < r->len && r->s[r->pos] == c;

    if (c == '|') {
        bool both = !twice && r->pos < r->len && r->s[r->pos] == '&'; /* |& */

        shell_end_command(r, !twice);
        r->pos += both;
    } else {
        shell_end_command(r, false);
        r->chained = (c == '&' && twice) || c == ';';
    }
    r->pos += twice && c != '\n';
}

static void shell_read_next(struct shell_reader *r)
{
    char c = r->s[r->pos];

    if (c == '#' && (!r->pos || strchr(" \t\n;", r->s[r->pos - 1]))) {
        while (r->pos < r->len && r->s[r->pos] != '\n')
            r->pos++;
    } else if (c == '\\' && r->pos + 1 < r->len && r->s[r->pos + 1] == '\n') {
        r->pos += 2;
    } else if (strchr(" \t\r\v\f", c)) {
        r->pos++;
    } else if (strchr(";|\n", c) ||
               (c == '&' && !(r->pos + 1 < r->len && r->s[r->pos + 1] == '>'))) {
        shell_read_operator(r);
    } else if (strchr("(){}", c) &&
               (c != '{' || r->pos + 1 == r->len || shell_ends_word(r->s[r->pos + 1]))) {
        r->pos++;
        shell_end_command(r, false);
    } else if (strchr("<>&", c)) {
        shell_read_redirection(r);
    } else {
        shell_read_word(r);
    }
}

static void shell_read_script(struct shell_reader *r)
{
    while (r->pos < r->len)
        shell_read_next(r);
    shell_end_command(r, false);
}

/* ---- RUN ---- */

static void shell_read_exec_form(const struct dockerfile_instruction *run, struct shell_script *ret)
{
    struct shell_reader r = {.out = ret};

    for (size_t i = 0; i < run->n_words; i++) {
        const struct dockerfile_word *w = &run->words[i];

        r.base = w->at;
        shell_add_word(&r, xstrdup(w->text), 0, w->end - w->at);
    }
    shell_end_command(&r, false);
}

/* A heredoc is a script when nothing but its mark stands in the command line, or a shell. */
static bool shell_runs_heredocs(const struct shell_script *s)
{
    const char *name = s->n ? shell_name(&s->commands[0]) : "";

    return s->n == 0 || (s->n == 1 && (STREQ(name, "sh") || STREQ(name, "bash") || !*name));
}

void shell_read(const struct dockerfile_instruction *run, struct shell_script *ret)
{
    struct shell_reader r = {.line = &run->line, .out = ret};
    size_t start = 0, end = run->line.len;

    *ret = (struct shell_script){0};
    if (run->json) {
        shell_read_exec_form(run, ret);
        return;
    }
    if (!run->n_words)
        return;
    word_trim(run->line.text, &start, &end);
    r.s = run->words[0].text;
    r.len = strlen(r.s);
    r.base = end - r.len; /* the command is the end of the line */
    shell_read_script(&r);
    for (size_t i = 0; i < run->n_heredocs && shell_runs_heredocs(ret); i++) {
        const struct dockerfile_heredoc *h = &run->heredocs[i];
        struct shell_reader body = {
            .s = h->content, .len = strlen(h->content), .base = h->at, .out = ret};

        shell_read_script(&body);
    }
}

/* ---- looking at commands ---- */

const char *shell_name(const struct shell_command *c)
{
    const char *name = c->first < c->n ? c->words[c->first].text : "", *slash = strrchr(name, '/');

    return slash ? slash + 1 : name;
}

const struct shell_word *shell_arg(const struct shell_command *c, size_t i)
{
    return c->first + 1 + i < c->n ? &c->words[c->first + 1 + i] : NULL;
}

const struct shell_word *shell_flag(const struct shell_command *c, const char *flag)
{
    size_t n = strlen(flag);

    for (size_t i = c->first + 1; i < c->n; i++) {
        const char *w = c->words[i].text;

        if (!strncmp(w, flag, n) && (!w[n] || w[n] == '='))
            return &c->words[i];
    }
    return NULL;
}

const char *shell_assigned(const struct shell_command *c, const char *name,
                           const struct shell_word **ret_word)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < c->first; i++)
        if (!strncmp(c->words[i].text, name, n) && c->words[i].text[n] == '=') {
            *ret_word = &c->words[i];
            return c->words[i].text + n + 1;
        }
    return NULL;
}
