/*
 * Child programs that do one job and end, each with a deadline: the machine's own (nft, mkfs),
 * whose output becomes the reason of the error, and ours (ripcord-image, -build, -transfer), which
 * answer in JSON.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/time.h"
#include "lib/os/process.h"

/* Absolute path of a program in the system folders (never the caller's PATH), or NULL; valid until
 * this thread's next call. */
const char *program_find(const char *name);

/* argv[0] is a bare name. input may be NULL. *ret_output (may be NULL) gets stdout and stderr
 * together, at most 16 KiB. A non-zero exit is ERR_SYSTEM. */
int program_run(const char *const *argv, const char *input, const struct deadline *by,
                char **ret_output, struct err *err);

/* A running program and its stdout. */
struct program {
    const char *name; /* borrowed */
    pid_t pid;        /* 0: never started, or reaped */
    int out;          /* -1: closed */
};

#define PROGRAM_INIT                                                                               \
    {                                                                                              \
        .out = -1                                                                                  \
    }

/* Starts a program of ours: argv[0] in the folder `libexec`. fds: the descriptors it gets beside
 * stdout; stderr is the daemon's. program_end() is also needed when this fails. */
int program_start(const char *libexec, const char *const *argv, const char *const *env,
                  const struct process_fd *fds, size_t n_fds, struct program *ret, struct err *err);
/* Reads its output to the end, drops what does not fit into the buffer, and reaps it.
 * ERR_TIMEOUT: it still runs. */
int program_finish(struct program *p, const struct deadline *by, struct buf *out, int *ret_status,
                   struct err *err);
/* The same for a program that writes one line of JSON: its answer, or its error. */
int program_answer(struct program *p, const struct deadline *by, char **ret, struct err *err);
/* Kills it if it still runs, reaps it and returns its status; 0 when it was never started. */
int program_end(struct program *p);

static inline void program_endp(struct program *p)
{
    (void)program_end(p);
}
#define _cleanup_program_ _cleanup_(program_endp)
