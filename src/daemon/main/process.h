/*
 * The daemon's own process: hardening at start, the lock of the run folder, and readiness messages.
 */
#pragma once

#include "lib/base/err.h"

/*
 * Cleans the environment, changes to /, sets umask 077, forbids core dumps and tracing, tunes
 * malloc, and closes all inherited descriptors except stdio and `keep_fd` (-1: none).
 */
int process_harden(int keep_fd, struct err *err);

/* Locks the run folder until the process ends. A second daemon gets ERR_CONFLICT with the pid of
 * the first. */
int process_lock(int run_dirfd, const char *run_dir, int *ret_fd, struct err *err);

/* Sends a message to the service manager. Without NOTIFY_SOCKET (read by process_harden()) it does
 * nothing. */
void process_notify(const char *message);
/* Writes "ready\n" to the descriptor and closes it; does nothing with -1. */
void process_ready(int fd);
