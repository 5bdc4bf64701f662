/*
 * What the daemon does to its own process before anything else, and its signs of life to others.
 */
#pragma once

#include "lib/base/err.h"

/* Clean environment, cwd /, umask 077, no core dumps, not traceable, a small malloc, no inherited
 * descriptor but stdio and `keep_fd` (or -1). */
int process_harden(int keep_fd, struct err *err);

/* The lock of this run folder, held until the process ends. A second daemon is ERR_CONFLICT, with
 * the first one's pid. */
int process_lock(int run_dirfd, const char *run_dir, int *ret_fd, struct err *err);

/* Tells a service manager (NOTIFY_SOCKET, read by process_harden()); nothing without one. */
void process_notify(const char *message);
/* Writes "ready\n" to the descriptor and closes it; fine with -1. */
void process_ready(int fd);

/* Where ripcord-shim lies: beside this program, else where it was to be installed. Owned. */
char *process_libexec_dir(void);
