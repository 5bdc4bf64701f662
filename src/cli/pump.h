/*
 * Bytes both ways between a local peer and a socket, each way with its own end.
 */
#pragma once

#include "lib/base/buf.h"

enum { PUMP_SIZE = 128 << 10 };

/* Until both ways have ended or one peer has gone. in and out may be the same socket. `early` is
 * what the socket has said already, at most PUMP_SIZE. Closes nothing but `out` at its end, when
 * that is no socket. */
void pump(int in, int out, int sock, const struct buf *early);
