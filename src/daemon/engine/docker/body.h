/*
 * The JSON from which the engine creates a container. All hardening options are here and nowhere
 * else. The functions are pure: their results depend only on their arguments.
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
    const char *without; /* LABEL_WITHOUT; "" if no cache is missing */
    const char *seccomp; /* profile text (Docker) or file (Podman); NULL: the engine's default */
    bool no_root;        /* the guest refuses to run commands as root */
    bool podman;
    uint32_t caps;       /* enum engine_caps: limits that the engine cannot enforce are left out */
    uint32_t cpus;       /* of the engine's machine; 0: unknown */
    uint64_t nofile_max; /* hard limits of the engine's machine, as far as known */
    uint64_t nproc_max;
};

/* The file of ripcord-guest. */
struct body_program {
    const void *data;
    size_t len;
    bool readable; /* the runtime can only run readable files (docker_needs_readable_programs()) */
};

/* The body of POST /containers/create. NULL: a value is not valid UTF-8. */
json_t *body_container(const struct body_parts *p);

/* The tar archive for "/" with ripcord-guest alone. */
int body_guest(const struct body_program *guest, struct buf *ret, struct err *err);
/* The one for a new container: ripcord-guest, and the folders of the sandbox's user. */
int body_archive(const struct body_parts *p, const struct body_program *guest, struct buf *ret,
                 struct err *err);
