/*
 * One JSON answer for a whole exec: its end and, on request, its output. A client waits for it with
 * ?wait=DURATION; when that has passed, the answer is 202 with the exec as it is. All on the loop.
 */
#pragma once

#include "daemon/api/exec-wire.h"

struct wait_config {
    struct wire_config wire;
    uint64_t wait;    /* usec; 0: answer when the exec has started */
    bool output;      /* with both outputs */
    uint64_t out_max; /* bytes of each; a longer one loses its middle */
};

/* Reads ?wait=. 1: it is there. */
int wait_read_query(struct api_call *c, uint64_t *ret, struct err *err);

/* Takes the call, and the caller's reference to the exec. */
void wait_start(struct api_call *c, struct exec *x, const struct wait_config *config);
/* Adds the output of an exec that has ended to {"exec":EXEC}. */
int wait_add_stored(struct manager *m, struct sandbox *sb, json_t *doc,
                    const struct wait_config *config, struct err *err);
