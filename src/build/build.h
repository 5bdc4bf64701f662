/*
 * The builder: a context and a Dockerfile become an image of the store. It does all of it but run
 * commands and fetch images, which is asked of whoever started it (front.h).
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "build/front.h"
#include "image/confined.h"
#include "image/images.h"

struct build_ask {
    const char *dockerfile; /* path in the context */
    const char *target;     /* or NULL */
    char **tags, **args;    /* owned */
    char **agents;          /* owned: "ID=SOCKET", for RUN --mount=type=ssh */
    bool no_cache;
    bool thin;           /* files are left out of the context (base/thin.h) */
    bool pull;           /* asks for images that are in the store, too */
    const char *network; /* of commands: "none", "packages" or "open" */
    const char *host;    /* generation of image `host`, or NULL */
};

/* The store is locked for adding. name: of its folder in tmp/. *ret: {"id", "names", "layers"}. */
int build_image(struct images *s, const struct confined_ids *ids, const char *name, int context,
                const struct build_ask *ask, struct front *front, json_t **ret, struct err *err);
