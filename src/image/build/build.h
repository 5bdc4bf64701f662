/*
 * The builder: a context and a Dockerfile become an image of the store. It does all of it but run
 * commands and fetch images, which is asked of whoever started it (daemon-conn.h).
 */
#pragma once

#include "image/archive/confined.h"
#include "image/build/daemon-conn.h"
#include "image/store/images.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

struct builder_request {
    const char *dockerfile; /* path in the context */
    const char *target;     /* or NULL */
    char **tags, **args;    /* owned */
    char **agents;          /* owned: "ID=SOCKET", for RUN --mount=type=ssh */
    bool no_cache;
    bool digest_only;    /* files are left out of the context (proto/digest-context.h) */
    bool pull;           /* asks for images that are in the store, too */
    const char *network; /* of commands: "none", "packages" or "open" */
    const char *host;    /* generation of image `host`, or NULL */
};

/* The store is locked for adding. name: of its folder in tmp/. *ret: {"id", "names", "layers"}. */
int build_image(struct images *s, const struct confined_ids *ids, const char *name, int context,
                const struct builder_request *request, struct daemon_conn *daemon_conn,
                json_t **ret, struct err *err);
