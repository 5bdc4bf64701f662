/*
 * Sends the bytes that another process writes into a pipe as the body of an answer. The slower side
 * holds the faster one back. The writer's result arrives separately, with drain_end(), before or
 * after its bytes. While no byte has arrived, a failure is an ordinary error answer.
 */
#pragma once

#include <stdbool.h>

#include "daemon/api/call.h"

struct drain;

struct drain_config {
    const char *type; /* the body's Content-Type */
    const char *what; /* the subject of the log message if it ends early; copied */
    /* True: the body is JSON lines, and the result or the error is the last line. False: after a
     * failure the body is cut off, so that the peer sees it is incomplete. */
    bool lines;
};

/* *ret_fd is the write end of the pipe; the caller owns it. The drain takes the request and frees
 * the call. On failure it returns NULL with *err, and the call is unchanged. */
struct drain *drain_start(struct api_call *call, const struct drain_config *config, int *ret_fd,
                          struct err *err);
/* The writer's result: an error, or NULL. `json` is the last line, with `lines`. Call it once, also
 * if the peer has disconnected. The drain frees itself when everything is sent. */
void drain_end(struct drain *d, const struct err *err, const char *json);
