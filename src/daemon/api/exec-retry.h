/*
 * A request that starts a command and is sent again with its key (idempotency.h) follows the
 * command that the first one has started. All on the loop.
 */
#pragma once

#include "daemon/api/exec-events.h"
#include "daemon/api/exec-wait.h"

/* How the client wants its answer; for requests without an upgrade. */
struct exec_answer {
    enum exec_events_kind events;
    struct wait_config wait;
    bool waits;
};

struct exec_retry {
    const struct exec_answer *how; /* with the wire of the answer */
    bool run;
    const char *member; /* of the answer of a detached command: {member: EXEC} */
};

/* 0: there is no such command yet, start it with exec_retry_prepare(). 1: the call is taken over.
 * ERR_CONFLICT: there was one, and it is gone. */
int exec_retry(struct api_call *c, const struct exec_retry *what, struct err *err);
/* Before and after the exec is made. Nothing happens without a key. */
void exec_retry_prepare(const struct api_call *c, struct exec_request *req);
void exec_retry_made(const struct api_call *c, struct exec *x);
