/*
 * Podman's builder writes its own lines into the same stream as the output of the commands:
 *
 *   [2/3] STEP 2/4: RUN make        "[2/3]" only if there are several stages
 *   --> Using cache <id>            then "--> <id>" in both cases
 *   [3/3] COMMIT name
 *
 * A command may write similar lines. A heading therefore counts only if it is the next one in
 * order, and a cache mark only right after a heading. The result of the build never comes from
 * here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/build.h"
#include "daemon/engine/docker/build-lines.h"
#include "daemon/engine/docker/build.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

struct podman_place {
    unsigned stage, stages; /* 0: there is only one stage */
    unsigned n, of;
};

struct podman_log {
    struct build *build;
    const struct build_lines *lines;
    struct podman_place at;
    unsigned step; /* the current one; 0: none */
    bool fresh;    /* no line since its heading */
};

struct podman_log *podman_log_new(struct build *b, const struct build_lines *lines)
{
    struct podman_log *p = xnew0(struct podman_log);

    p->build = b;
    p->lines = lines;
    return p;
}

void podman_log_free(struct podman_log *p)
{
    free(p);
}

/* Parses "N/M" up to `end`. Returns the text behind it, or NULL. */
static const char *build_podman_take_count(const char *s, const char *end, unsigned *n,
                                           unsigned *of)
{
    size_t len = strcspn(s, end), slash = strcspn(s, "/");
    _cleanup_free_ char *first = NULL, *second = NULL;
    uint64_t a, b;

    if (slash >= len || s[len] == '\0')
        return NULL;
    first = xstrndup(s, slash);
    second = xstrndup(s + slash + 1, len - slash - 1);
    if (parse_u64(first, 1, BUILD_STEPS_MAX, &a, NULL) < 0 ||
        parse_u64(second, a, BUILD_STEPS_MAX, &b, NULL) < 0)
        return NULL;
    *n = (unsigned)a;
    *of = (unsigned)b;
    return s + len + 1;
}

/* Returns the instruction of a heading, or NULL. */
static const char *build_podman_parse_heading(const char *s, struct podman_place *ret)
{
    static const char word[] = "STEP ";

    *ret = (struct podman_place){0};
    if (*s == '[') {
        s = build_podman_take_count(s + 1, "]", &ret->stage, &ret->stages);
        if (!s || *s++ != ' ')
            return NULL;
    }
    if (strncmp(s, word, sizeof(word) - 1) != 0)
        return NULL;
    s = build_podman_take_count(s + sizeof(word) - 1, ":", &ret->n, &ret->of);
    return s && *s == ' ' ? s + 1 : NULL;
}

static bool build_podman_is_due(const struct podman_log *p, const struct podman_place *next)
{
    if (p->at.stage == next->stage && p->at.stages == next->stages && p->at.n < p->at.of)
        return next->n == p->at.n + 1 && next->of == p->at.of;
    return next->n == 1 && (next->stage > p->at.stage || !p->at.of);
}

static void build_podman_end_step(struct podman_log *p, const char *words)
{
    if (p->step)
        build_step_end(p->build, p->step, words);
    p->step = 0;
}

static void build_podman_begin_step(struct podman_log *p, const struct podman_place *at,
                                    const char *text)
{
    char stage[32] = "";
    struct build_step_info step = {.stage = stage, .n = at->n, .of = at->of, .text = text};

    build_podman_end_step(p, NULL);
    if (at->stages)
        snprintf(stage, sizeof(stage), "stage-%u", at->stage - 1);
    step.line = build_lines_find(p->lines, stage, at->n, at->of, true);
    p->at = *at;
    p->step = build_step_begin(p->build, &step);
    p->fresh = true;
}

/* True: the line is the builder's own, about the current step. */
static bool build_podman_take_mark(struct podman_log *p, const char *text)
{
    static const char mark[] = "--> ", cached[] = "--> Using cache ";

    if (strncmp(text, mark, sizeof(mark) - 1) != 0)
        return false;
    if (p->fresh && strncmp(text, cached, sizeof(cached) - 1) == 0)
        build_step_cached(p->build, p->step);
    return strspn(text + sizeof(mark) - 1, "0123456789abcdef") == strlen(text) - sizeof(mark) + 1 ||
           strncmp(text, cached, sizeof(cached) - 1) == 0;
}

void podman_log_take(struct podman_log *p, const char *text, size_t len)
{
    size_t n = len && text[len - 1] == '\n' ? len - 1 : len;
    _cleanup_free_ char *line = memchr(text, '\n', n) ? NULL : xstrndup(text, n);
    struct podman_place at;
    const char *what = line ? build_podman_parse_heading(line, &at) : NULL;

    if (what && build_podman_is_due(p, &at)) {
        build_podman_begin_step(p, &at, what);
        return;
    }
    if (p->step && !(line && build_podman_take_mark(p, line)))
        build_step_output(p->build, p->step, BUILD_STDOUT, text, len);
    p->fresh = false;
}

void podman_log_end(struct podman_log *p, const char *words)
{
    build_podman_end_step(p, words);
}
