/*
 * Starts a program from a process that may have threads (posix_spawn). The program gets a session
 * of its own, no blocked or ignored signals, and the descriptors of a table. It inherits 0, 1 and 2
 * when the table does not name them.
 */
#pragma once

#include <sys/types.h>

enum { PROCESS_FDS_MAX = 8, PROCESS_FD_MIN = 16 };

/* `to` is below PROCESS_FD_MIN. Entries with a negative `from` are ignored. Several entries may
 * have the same `from`, and a `from` may be the `to` of another entry. */
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

/* 0, or an errno, also when the program does not exist. */
int process_start(const struct process_spec *s, pid_t *ret);
/* Reaps a child: its status as of waitpid(2), or -1 when pid is not a child. */
int process_wait(pid_t pid);
