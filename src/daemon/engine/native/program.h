/*
 * Programs that do one job and end, each with a deadline: the machine's own (nft, mkfs), whose last
 * words become the error's reason, and those that belong to us (ripcord-image, -build, -hub).
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

/* One at work, and its stdout. */
struct program {
    const char *name; /* borrowed */
    pid_t pid;        /* 0: never started, or reaped */
    int said;         /* -1: closed */
};

#define PROGRAM_INIT                                                                               \
    {                                                                                              \
        .said = -1                                                                                 \
    }

/* One of ours, argv[0] in the folder `libexec`. fds: what it gets beside stdout; stderr is the
 * daemon's. *ret is filled also where this fails, for program_end. */
int program_start(const char *libexec, const char *const *argv, const char *const *env,
                  const struct process_fd *fds, size_t n_fds, struct program *ret, struct err *err);
/* Its output until the end, what is beyond the buffer's maximum dropped, and its status; reaped,
 * but where it is late (ERR_TIMEOUT). */
int program_finish(struct program *p, const struct deadline *by, struct buf *out, int *ret_status,
                   struct err *err);
/* The same of one that says one line of JSON: the answer, or its error. */
int program_answer(struct program *p, const struct deadline *by, char **ret, struct err *err);
/* Killed if it is still there, reaped; its status. Nothing when it was never started. */
int program_end(struct program *p);

static inline void program_endp(struct program *p)
{
    (void)program_end(p);
}
#define _cleanup_program_ _cleanup_(program_endp)
