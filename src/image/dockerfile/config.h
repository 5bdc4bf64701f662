/*
 * What an image's configuration becomes by a Dockerfile: variables expanded, stages followed,
 * instructions applied in order. No file is looked at and nothing runs, so this is also what a
 * linter knows of a RUN's user and environment.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "image/dockerfile/dockerfile.h"

struct config_health {
    char **test; /* owned; NULL without a health check */
    int64_t interval, timeout, start_period, start_interval; /* nanoseconds */
    int retries;
};

/* The arrays are owned strv; env and labels are K=V in the order of their first appearance. */
struct config {
    char **env, **labels;
    char **cmd, **entrypoint, **shell; /* NULL when not set */
    char **ports;                      /* "80/tcp" */
    char **volumes, **triggers;
    char *user, *workdir, *stop_signal, *author; /* owned; NULL when not set */
    struct config_health health;
    char **scope;    /* what expansion sees: ENV and ARG, K=V; not part of the image */
    bool cmd_is_own; /* a CMD of this stage: ENTRYPOINT leaves it alone */
};

/* For who only asks about the Dockerfile all may be NULL. */
struct config_inputs {
    char *const *build_args; /* K=V */
    const char *target;      /* a stage's name or index; NULL is the last */
    const char *os, *arch;   /* of the machine; NULL is linux, amd64 */
};

void config_done(struct config *c);

/*
 * The ARGs before the first FROM and the ones that are always there (TARGETARCH, …); a new strv of
 * K=V. *ret_at is the place of an error, here and below.
 */
int config_globals(const struct dockerfile *df, const struct config_inputs *inputs, char ***ret,
                   size_t *ret_at, struct err *err);
/* The image that a stage is built on, variables replaced; owned. */
int config_base(const struct dockerfile *df, size_t stage, char *const *globals, char **ret,
                size_t *ret_at, struct err *err);
/* A stage's configuration before its first instruction: that of the stage it is built on, or NULL.
 */
void config_begin(struct config *ret, const struct config *base);
/* One instruction of a stage. COPY, ADD and RUN change nothing, but their variables are checked. */
int config_apply(struct config *c, const struct dockerfile *df,
                 const struct dockerfile_instruction *in, const struct config_inputs *inputs,
                 char *const *globals, size_t *ret_at, struct err *err);

/* All of it: the configuration of the target. */
int config_evaluate(const struct dockerfile *df, const struct config_inputs *inputs,
                    struct config *ret, size_t *ret_at, struct err *err);

/*
 * The same, told as it goes: stages that the target needs, in their order, and their instructions.
 * Any function may be NULL; one that fails ends the walk, at the place of what it was told of. What
 * is handed over lives only during the call.
 */
struct config_visitor {
    /* Fills the configuration of an image that is no stage, its triggers included: they are run
     * here. `stage` wants it. */
    int (*image)(void *arg, size_t stage, const char *name, struct config *ret, struct err *err);
    /* A stage: built on an earlier one, or on an image, or on nothing (base -1, image NULL). */
    int (*stage)(void *arg, size_t stage, long base, const char *image, struct err *err);
    /* `c` is what it is after the instruction. `df` need not be the one of the walk. */
    int (*step)(void *arg, size_t stage, const struct dockerfile *df,
                const struct dockerfile_instruction *in, const struct config *c, size_t *ret_at,
                struct err *err);
};

int config_walk(const struct dockerfile *df, const struct config_inputs *inputs,
                const struct config_visitor *visitor, void *arg, struct config *ret,
                size_t *ret_target, struct err *err);

/* The value of a variable at this point, or NULL. */
const char *config_get(const struct config *c, const char *name);
/* A word with its variables replaced. */
int config_expand(const struct config *c, char escape, const char *word, char **ret,
                  struct err *err);
