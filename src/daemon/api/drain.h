/*
 * What another process writes into a pipe as the body of an answer, each side held back by the
 * slower one. The writer's verdict comes by another road than its bytes, before or after them; as
 * long as no byte has come, a failure is an ordinary error answer.
 */
#pragma once

#include <stdbool.h>

#include "daemon/api/call.h"

struct drain;

struct drain_config {
    const char *type; /* the body's Content-Type */
    const char *what; /* for the log, when it ends early; copied */
    /* The body is JSON lines and the verdict its last one: the answer's JSON, or the error. Else a
     * body that began and failed is cut off, for the peer to see that it is not whole. */
    bool lines;
};

/* The pipe's write end is *ret_fd, the caller's. The request is the drain's from here on: the call
 * is freed. NULL and *err: nothing was begun, the call is still there. */
struct drain *drain_start(struct call *call, const struct drain_config *config, int *ret_fd,
                          struct err *err);
/* The verdict, once: an error, or NULL; json: the last line, where there are lines. Frees the drain
 * when all is out. The peer may have gone. */
void drain_end(struct drain *d, const struct err *err, const char *json);
