/*
 * The state of one build, shared by the parts of the builder: build.c makes an image of stages,
 * step.c a layer of a step. A stage that is built in a child (stages.h) has its own copy.
 */
#pragma once

#include "image/build/build.h"
#include "image/build/plan.h"
#include "image/build/workspace.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/* The result of a stage after the steps so far. */
struct builder_state {
    char **layers;        /* owned, bottom first */
    char key[DIGEST_MAX]; /* cache key of the last step (step.h) */
    char *created;        /* owned: time of the newest layer; NULL: unknown */
    json_t *base;         /* owned: history of the base image; NULL: the base is a stage */
    json_t *done;         /* owned: one entry per step: [{"layer": true, "created": TIME}] */
};

struct builder {
    struct images *store;                  /* borrowed */
    const struct builder_request *request; /* borrowed */
    struct daemon_conn *daemon_conn;       /* borrowed: the connection of this process */
    struct workspace workspace;
    struct build_plan plan;
    struct builder_state *states; /* owned: one per stage of the plan */
    char *epoch;                  /* owned: the time SOURCE_DATE_EPOCH for all layers; or NULL */
    char **pulled;                /* owned: names of images that this build has pulled */
};

/* The layers of a stage or an image. arg: the builder (mounts_from_fn). */
int builder_layers(void *arg, const struct build_from *from, char ***ret, struct err *err);
char *builder_now(void); /* the time in RFC 3339; the caller frees */
