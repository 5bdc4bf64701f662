/*
 * What is wrong with a Dockerfile that a build would not say, or only after minutes: caches that
 * are mounted and not used, secrets that end in the image, versions that change under one's feet.
 * Works on the text alone: no file is read, nothing runs.
 *
 * docs/lint.md has a section for each rule. A comment takes a rule away:
 *
 *   # ripcord: ignore=RULE[,RULE...]        for the instruction that follows, or in its lines
 *   # ripcord: ignore-file=RULE[,RULE...]   for the file, anywhere in it
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
    char *fix;              /* owned: what to do, a sentence; NULL when the message says it */
    struct lint_edit *edit; /* owned: does it; NULL when a person has to */
};

struct lint_report {
    struct lint_finding *findings; /* in the order of the file */
    size_t n;
};

struct lint_context {
    bool has_ignore_file; /* there is a .dockerignore for this Dockerfile */
};

extern const struct lint_rule lint_rules[];
extern const size_t lint_n_rules;

/* The text need not be a valid Dockerfile: that is a finding as well. */
void lint_check(const char *text, size_t len, const struct lint_context *context,
                struct lint_report *ret);
void lint_report_done(struct lint_report *r);
/* The worst of the findings, or -1 without any. */
int lint_worst(const struct lint_report *r);
const char *lint_severity_name(enum lint_severity s);

/* The text with all edits made, NUL-terminated and owned by the caller; *ret_fixed is how many. */
char *lint_apply(const char *text, size_t len, const struct lint_report *r, size_t *ret_len,
                 size_t *ret_fixed);
/* The place of an offset, for text that did not parse either. */
struct dockerfile_pos lint_pos(const char *text, size_t at);
