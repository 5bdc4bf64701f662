/*
 * The builder: makes an image of the store from a context and a Dockerfile. Commands, pulls and
 * downloads are done by the daemon, which started this process (daemon-conn.h).
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
    bool digest_only;    /* the context is digest-only (proto/digest-context.h) */
    bool pull;           /* pull images even if the store has them */
    const char *network; /* of commands: "none", "packages" or "open" */
    const char *host;    /* generation of image `host`, or NULL */
};

/*
 * The caller has locked the store for adding. name: of the workspace in tmp/. context: a file with
 * a tar. *ret: {"id", "names", "layers"}.
 */
int build_image(struct images *s, const struct confined_ids *ids, const char *name, int context,
                const struct builder_request *request, struct daemon_conn *daemon_conn,
                json_t **ret, struct err *err);
