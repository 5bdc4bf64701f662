/*
 * What the parts of the builder share: build.c makes an image of stages, step.c a layer of a step.
 */
#pragma once

#include "image/build/build.h"
#include "image/build/plan.h"
#include "image/build/workspace.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/* What a stage has come to so far. */
struct builder_state {
    char **layers; /* owned, bottom first */
    char key[DIGEST_MAX];
    char *created; /* owned: of the last thing that was made; NULL: nothing was */
    json_t *base;  /* owned: the history of the image it is built on; NULL: it is on a stage */
    json_t *done;  /* owned: what its steps have come to: [{"layer": true, "created": TIME}] */
};

struct builder {
    struct images *store;
    const struct builder_request *request;
    struct daemon_conn *daemon_conn; /* of this process */
    struct workspace workspace;
    struct build_plan plan;
    struct builder_state *states; /* of the plan's stages */
    char *epoch;    /* owned: when all of it was made, by SOURCE_DATE_EPOCH; or NULL */
    char **brought; /* owned: images that were asked for */
};

/* The layers that files come from; arg: the builder. */
int builder_layers(void *arg, const struct build_from *from, char ***ret, struct err *err);
json_t *builder_texts(char *const *v); /* an array of them */
char *builder_now(void);               /* as an image's times are written; new */
