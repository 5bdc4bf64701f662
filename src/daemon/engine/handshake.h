/*
 * The first words on a supervisor's socket, said by a worker before the socket becomes a struct
 * supervisor_conn: HELLO both ways and, after a start, READY or FAILED. Blocking, with a deadline;
 * the socket may be in either mode.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

struct sandbox_request;
struct engine_sandbox;

/*
 * Sends HELLO, takes the peer's and checks that the major versions agree (ERR_UNSUPPORTED) and that
 * it serves sandbox `id`. Fills ret's id, state, pid and hash as far as the peer tells them.
 * ERR_ENGINE: the peer closed or talks nonsense; ERR_TIMEOUT: it says nothing.
 */
int handshake_hello(int fd, const char *id, const struct deadline *by, struct engine_sandbox *ret,
                    struct err *err);

/*
 * The same with a supervisor that was just started, and then READY (0; ret's unenforced is filled)
 * or FAILED (the supervisor's own error). The request's first exec is sent right behind HELLO, so
 * that it waits for the sandbox and not the sandbox for it: ret->first_sent.
 */
int handshake_start(int fd, const struct sandbox_request *req, const struct deadline *by,
                    struct engine_sandbox *ret, struct err *err);
