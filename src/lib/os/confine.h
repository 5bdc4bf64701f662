/*
 * The system calls that a helper inside a sandbox may still make: it reads hostile archives and
 * trees, and what it needs for that is a short list. No program can be started, no process seen or
 * signalled, no namespace made.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

int confine_helper(struct err *err);

/* What is left to a program that speaks with the network from threads of its own: no core, no
 * debugger, no listening socket, no process, and of files what it can open; and `more`, which may
 * be NULL. The caller has one thread yet. */
int confine_network_program(const int *more, size_t n, struct err *err);

/* The same with a list of one's own, at most 240; with `threads` further threads may be started,
 * never a process. The caller has one thread yet. */
int confine_to(const int *calls, size_t n, bool threads, struct err *err);
