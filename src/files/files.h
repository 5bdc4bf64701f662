/*
 * File operations for the API, carried out inside a sandbox: by a helper that ripcord-shim has put
 * into the sandbox's namespaces, and by `ripcord-guest files` in a container. The process already
 * has the ids of the user that the operation acts as, and the sandbox's root folder. So the kernel
 * resolves links and checks rights as for a program of that user. Paths of a request may go through
 * links, as paths of any program; below such a path no link is followed, and every step is taken
 * from the descriptor of a folder, so a tree that changes meanwhile cannot lead anywhere else.
 *
 * One call serves one conversation (proto/files.h). It blocks.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "lib/base/err.h"

/* The connection to the daemon. */
struct files_io {
    ssize_t (*read)(void *arg, void *data, size_t len);    /* 0: the end; or -errno */
    int (*write)(void *arg, const void *data, size_t len); /* 0 or -errno; may be delayed */
    int (*flush)(void *arg);                               /* 0 or -errno */
    /* Waits until fd is readable (1), or the time is over (0). -EPIPE: the daemon has gone. fd -1:
     * only looks at the daemon. timeout_ms -1: no limit. */
    int (*wait)(void *arg, int fd, int timeout_ms);
    void *arg;
};

/* Before the confinement: limits the memory and CPU time that a request can cost. */
int files_limit(struct err *err);
int files_serve(const struct files_io *io, struct err *err);
