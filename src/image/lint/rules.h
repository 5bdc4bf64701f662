/*
 * What the rules share. Inside of lint/ only.
 */
#pragma once

#include "image/dockerfile/config.h"
#include "image/lint/lint.h"
#include "image/lint/shell.h"
#include "lib/base/macro.h"

/* In the order of lint_rules[]. */
enum lint_rule_id {
    RULE_SYNTAX,
    RULE_CACHE_DEFEATED,
    RULE_CACHE_DOCKER_CLEAN,
    RULE_CACHE_OWNER,
    RULE_CACHE_UNUSED,
    RULE_NO_CACHE,
    RULE_UNPINNED_BASE,
    RULE_UNPINNED_PIP,
    RULE_UNPINNED_NPM,
    RULE_UNPINNED_APT,
    RULE_SECRET_VARIABLE,
    RULE_SECRET_FILE,
    RULE_PIPE_TO_SHELL,
    RULE_ADD_URL,
    RULE_ROOT_USER,
    RULE_COPY_BEFORE_INSTALL,
    RULE_NO_PIPEFAIL,
    RULE_NO_DOCKERIGNORE,
    RULE_DEPRECATED_MAINTAINER,
    RULE_DEPRECATED_KEY_VALUE,
    RULE_EMPTY_CONTINUATION,
};

/* Where a walk through the file stands: everything is borrowed. */
struct lint_walk {
    const struct dockerfile *df;
    const struct lint_context *context;
    struct lint_report *out;
    char *const *globals;
    size_t stage;
    const char *base;                   /* of the stage, expanded; "" when that fails */
    bool base_is_stage;                 /* of this file */
    const struct dockerfile_config *at; /* before the instruction */
    const struct dockerfile_instruction *in;
    const struct shell_script *script; /* of a RUN; else NULL */
};

/* A finding between two places of the source. The result can be given a fix until the next call. */
struct lint_finding *lint_find(const struct lint_walk *w, enum lint_rule_id rule, size_t at,
                               size_t end, const char *fmt, ...) _printf_(5, 6);
void lint_set_fix(struct lint_finding *f, const char *fmt, ...) _printf_(2, 3);
/* Takes the text. */
void lint_set_edit(struct lint_finding *f, size_t at, size_t end, char *text);

/* Each is called for every instruction of every stage. */
void rules_cache(const struct lint_walk *w);
void rules_pin(const struct lint_walk *w);
void rules_secret(const struct lint_walk *w);
void rules_shell(const struct lint_walk *w);
void rules_form(const struct lint_walk *w);
/* Called once for each stage, at its FROM. */
void rules_from(const struct lint_walk *w);
/* Called behind the last instruction of the last stage; w->in is that stage's FROM. */
void rules_end(const struct lint_walk *w);
