/*
 * Confines our own programs that read hostile data: a seccomp filter allows a short list of system
 * calls; all others fail with EPERM. (The filter for commands in a sandbox is seccomp-filter.h.)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

/* For a helper inside a sandbox that reads archives and trees: it cannot start a program, see or
 * signal a process, or make a namespace. */
int confine_helper(struct err *err);

/* The same with the calls that change, search and watch files (files/files.h). */
int confine_files_helper(struct err *err);

/* For a program that uses the network from several threads: no core dump, no debugger, no listening
 * socket, no new process. `more` lists n further calls; it may be NULL. Call it before the first
 * thread starts. */
int confine_network_program(const int *more, size_t n, struct err *err);

/* Allows exactly these calls, at most 240. With `threads` the program may start threads, but no
 * process. Call it before the first thread starts. */
int confine_to(const int *calls, size_t n, bool threads, struct err *err);
