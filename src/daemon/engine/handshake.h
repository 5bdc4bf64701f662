/*
 * The first messages on a supervisor's socket, exchanged by a worker before the socket becomes a
 * struct supervisor_conn: HELLO both ways and, after a start, READY or FAILED. Blocking, with a
 * deadline; the socket may be in either mode.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

struct sandbox_request;
struct engine_sandbox;

/*
 * Sends HELLO, reads the peer's and checks that the major versions agree (ERR_UNSUPPORTED) and that
 * it serves sandbox `id`. Fills ret's id, state, pid and hash as far as the peer sends them.
 * ERR_ENGINE: the peer closed the connection or sent an invalid message; ERR_TIMEOUT: it sent
 * nothing.
 */
int handshake_hello(int fd, const char *id, const struct deadline *by, struct engine_sandbox *ret,
                    struct err *err);

/*
 * The same with a supervisor that was just started, and then READY (0; ret's unenforced is filled)
 * or FAILED (the supervisor's own error). The request's first exec is sent right after HELLO
 * (ret->first_sent), so that it is ready before the sandbox.
 */
int handshake_start(int fd, const struct sandbox_request *req, const struct deadline *by,
                    struct engine_sandbox *ret, struct err *err);
