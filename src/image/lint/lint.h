/*
 * The Dockerfile linter. It finds problems that a build does not show, or shows only after minutes:
 * caches that are mounted and not used, secrets that end in the image, versions that change over
 * time. It works on the text alone: it reads no file and runs nothing.
 *
 * docs/lint.md has a section for each rule. A comment switches a rule off:
 *
 *   # ripcord: ignore=RULE[,RULE...]        for the next instruction, or inside of one
 *   # ripcord: ignore-file=RULE[,RULE...]   for the whole file, anywhere in it
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "image/dockerfile/dockerfile.h"

enum lint_severity { LINT_INFO, LINT_WARNING, LINT_ERROR };

struct lint_rule {
    const char *id; /* "cache-defeated": also the anchor in docs/lint.md */
    enum lint_severity severity;
    const char *summary;
};

/* Replaces source bytes. */
struct lint_edit {
    size_t at, end;
    char *text; /* owned */
};

struct lint_finding {
    const struct lint_rule *rule;
    size_t at, end;         /* in the source */
    char *message;          /* owned */
    char *fix;              /* owned: an instruction, a sentence; NULL: the message is enough */
    struct lint_edit *edit; /* owned: the automatic fix; NULL: a person must do it */
};

struct lint_report {
    struct lint_finding *findings; /* in the order of the file */
    size_t n;
};

struct lint_context {
    bool has_ignore_file; /* a .dockerignore exists for this Dockerfile */
};

extern const struct lint_rule lint_rules[];
extern const size_t lint_n_rules;

/* A text that is not a valid Dockerfile gives one finding of the rule `syntax`. */
void lint_check(const char *text, size_t len, const struct lint_context *context,
                struct lint_report *ret);
void lint_report_done(struct lint_report *r);
/* The highest severity of the findings; -1: no findings. */
int lint_worst(const struct lint_report *r);
const char *lint_severity_name(enum lint_severity s);

/* The text with all edits applied, NUL-terminated, new. *ret_fixed is the number of edits. */
char *lint_apply(const char *text, size_t len, const struct lint_report *r, size_t *ret_len,
                 size_t *ret_fixed);
/* Line and column of an offset; works also for a text that does not parse. */
struct dockerfile_pos lint_pos(const char *text, size_t at);
