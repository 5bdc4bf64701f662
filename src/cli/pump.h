/*
 * Copies bytes in both directions between a local peer and a socket. Each direction ends on its
 * own.
 */
#pragma once

#include "lib/base/buf.h"

enum { PUMP_SIZE = 128 << 10 };

/* Runs until both directions have ended or a peer is gone. in and out may be the same socket.
 * `early`: bytes that were already received from the socket, at most PUMP_SIZE. The function closes
 * `out` at the end of its direction if it is not a socket; it closes nothing else. */
void pump(int in, int out, int sock, const struct buf *early);
