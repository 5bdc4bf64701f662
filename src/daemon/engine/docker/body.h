/*
 * What a container is made from, as the engine's JSON: every hardening option is in here, and in
 * nothing else. Pure functions of their arguments.
 */
#pragma once

#include <stdbool.h>

#include "daemon/engine/sandbox-request.h"
#include "lib/base/buf.h"
#include "lib/base/json.h"

struct body_volume {
    const char *name, *target;
    bool shared;
};

struct body_parts {
    const struct sandbox_request *req;
    const char *prefix, *root_id;
    const char *network; /* id; NULL: none */
    const struct body_volume *volumes;
    size_t n_volumes;
    const char *label;   /* the configured one, "key=value"; "" or NULL: none */
    const char *without; /* LABEL_WITHOUT; "" when nothing is missing */
    const char *seccomp; /* the system call filter as the engine takes it; NULL: its own */
    bool podman;
    uint32_t caps;       /* enum engine_caps: limits beyond them are left out */
    uint32_t cpus;       /* of the engine's machine; 0: unknown */
    uint64_t nofile_max; /* hard limits of the engine's machine, as far as we know */
    uint64_t nproc_max;
};

/* For POST /containers/create. */
json_t *body_container(const struct body_parts *p);

/* The archive for "/": our program, and the folders that belong to the sandbox's user. */
int body_archive(const struct body_parts *p, const void *guest, size_t len, struct buf *ret,
                 struct err *err);
