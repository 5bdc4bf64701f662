/*
 * Starts a program from a process that may have threads (posix_spawn): a session of its own, no
 * signal blocked or ignored, and of descriptors those of its table, with 0, 1 and 2 as they are
 * where the table does not name them.
 */
#pragma once

#include <sys/types.h>

enum { PROCESS_FDS_MAX = 8, PROCESS_FD_MIN = 16 };

/* `to` lies below PROCESS_FD_MIN. A negative `from` is left out. One `from` may be named often, and
 * may lie where another is to go. */
struct process_fd {
    int from, to;
};

struct process_spec {
    const char *path;
    const char *const *argv;
    const char *const *env; /* NULL: empty */
    struct process_fd fds[PROCESS_FDS_MAX];
    size_t n_fds;
};

/* 0, or an errno; a program that is not there is told here, too. */
int process_start(const struct process_spec *s, pid_t *ret);
/* Reaps a child of ours: its status as of waitpid(2), or -1 when it is none. */
int process_wait(pid_t pid);
