/*
 * Evaluates a Dockerfile to the configuration of an image: expands variables, follows stages, and
 * applies instructions in order. It reads no file and runs nothing, so the linter uses it too, to
 * know the user and the environment of a RUN.
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
struct dockerfile_config {
    char **env, **labels;
    char **cmd, **entrypoint, **shell; /* NULL: not set */
    char **ports;                      /* "80/tcp" */
    char **volumes, **triggers;
    char *user, *workdir, *stop_signal, *author; /* owned; NULL: not set */
    struct config_health health;
    char **scope;    /* variables for expansion: ENV and ARG, K=V; not part of the image */
    bool cmd_is_own; /* this stage has a CMD, which ENTRYPOINT does not reset */
};

/* All fields are borrowed and can be NULL. */
struct config_inputs {
    char *const *build_args; /* K=V */
    const char *target;      /* a stage's name or index; NULL: the last one */
    const char *os, *arch;   /* of the machine; NULL: linux, amd64 */
};

void config_done(struct dockerfile_config *c);

/*
 * The ARGs before the first FROM and the predefined ones (TARGETARCH, …); a new strv of K=V. Here
 * and below, *ret_at is the offset of an error in the source.
 */
int config_globals(const struct dockerfile *df, const struct config_inputs *inputs, char ***ret,
                   size_t *ret_at, struct err *err);
/* The base image of a stage with its variables expanded; new. */
int config_base(const struct dockerfile *df, size_t stage, char *const *globals, char **ret,
                size_t *ret_at, struct err *err);
/* The configuration before the first instruction of a stage. base: that of the stage on which it is
 * built, or NULL. *copied counts the bytes that all stages have taken from others: -ERR_LIMIT if
 * these are too many, and *ret is empty. */
int config_begin(struct dockerfile_config *ret, const struct dockerfile_config *base,
                 size_t *copied, struct err *err);
/* Applies one instruction. COPY, ADD and RUN change nothing, but their variables are checked. */
int config_apply(struct dockerfile_config *c, const struct dockerfile *df,
                 const struct dockerfile_instruction *in, const struct config_inputs *inputs,
                 char *const *globals, size_t *ret_at, struct err *err);

/* Evaluates the whole file to the configuration of the target. */
int config_evaluate(const struct dockerfile *df, const struct config_inputs *inputs,
                    struct dockerfile_config *ret, size_t *ret_at, struct err *err);

/*
 * The same with callbacks for the stages that the target needs, in their order, and for their
 * instructions. Any callback can be NULL. A callback that fails ends the walk; the error is at the
 * stage or instruction of the call. Arguments are valid only during the call.
 */
struct config_visitor {
    /* Fills the configuration of a base image. Its triggers are applied after the call. */
    int (*image)(void *arg, size_t stage, const char *name, struct dockerfile_config *ret,
                 struct err *err);
    /* Called for each stage. base: the earlier stage on which it is built, or -1. image: the base
     * image, or NULL. Without both the stage is empty (FROM scratch). */
    int (*stage)(void *arg, size_t stage, long base, const char *image, struct err *err);
    /* Called for each instruction. c: the configuration after it. df: its Dockerfile, which is
     * another one for ONBUILD of an image. */
    int (*step)(void *arg, size_t stage, const struct dockerfile *df,
                const struct dockerfile_instruction *in, const struct dockerfile_config *c,
                size_t *ret_at, struct err *err);
};

int config_walk(const struct dockerfile *df, const struct config_inputs *inputs,
                const struct config_visitor *visitor, void *arg, struct dockerfile_config *ret,
                size_t *ret_target, struct err *err);

/* The value of a variable at this point, or NULL. */
const char *config_get(const struct dockerfile_config *c, const char *name);
/* Expands the variables of a word; *ret is new. */
int config_expand(const struct dockerfile_config *c, char escape, const char *word, char **ret,
                  struct err *err);
