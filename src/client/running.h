/*
 * The daemon as a process: which one answers on a socket, how it was started, and its end.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

struct running {
    pid_t pid;
    int pidfd; /* owned; -1: none */
};

#define RUNNING_INIT                                                                               \
    {                                                                                              \
        .pidfd = -1                                                                                \
    }
#define _cleanup_running_ __attribute__((cleanup(running_done)))
void running_done(struct running *r);

/*
 * The process that listens on the other end of this unix socket. It may have ended and its pid may
 * have been given to another process before we hold the pidfd: the caller asks the daemon for its
 * pid over the same connection afterwards and compares.
 */
int running_find(int fd, struct running *ret, struct err *err);
/* Whether it was started with options that a start on demand does not have, such as --listen. Such
 * a daemon cannot be started again as it was. */
bool running_has_options(const struct running *r);
/* Sends SIGTERM and waits for the end. */
int running_end(const struct running *r, const struct deadline *by, struct err *err);
