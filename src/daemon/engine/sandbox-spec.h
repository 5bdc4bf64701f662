/*
 * The specification of a sandbox: everything that its files and its limits are made from.
 * daemon/core/sandbox/spec.c fills and checks it; each backend carries it out. A plain value: every
 * pointer in it is owned, and copies are deep. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/limits.h"

enum spec_network { SPEC_NETWORK_NONE, SPEC_NETWORK_PACKAGES, SPEC_NETWORK_OPEN };

/*
 * Strict: the sandbox shares no file of its image or of a cache with another sandbox, and every
 * command runs in a Landlock domain of its own. Confined: no namespaces; Landlock and the filter of
 * system calls alone hold the commands. docs/threat-model.md has both.
 */
enum spec_isolation { SPEC_ISOLATION_SHARED, SPEC_ISOLATION_STRICT, SPEC_ISOLATION_CONFINED };

struct spec_mount {
    char *source, *target;
    bool read_only;
    bool no_root_squash; /* files made in a folder of root belong to root */
};

/* How a tool's package cache is kept; caches.h has the tools. */
enum spec_cache_mode { CACHE_OFF, CACHE_PRIVATE, CACHE_SHARED, CACHE_LAYERED, CACHE_READONLY };
#define CACHE_MODES (CACHE_READONLY + 1)

struct spec_cache {
    char *tool;
    enum spec_cache_mode mode;
    char *group; /* CACHE_SHARED: the trust group; NULL: the group without a name */
};

struct sandbox_spec {
    char *image;        /* NULL: the engine's default */
    char *image_digest; /* of `image` when the sandbox was made; NULL: not resolved yet */
    char *runtime;      /* Docker: name of the runtime; NULL: the engine's default */
    uint64_t memory;    /* bytes */
    uint32_t cpu_milli; /* thousandths of a CPU */
    uint32_t pids;
    uint32_t nofile;
    uint64_t disk;  /* bytes; 0: no cap */
    uint32_t asked; /* enum limit_bit bits of the limits that the user asked for. A start fails when
                       one of them cannot be enforced. */
    enum spec_network network;
    enum spec_isolation isolation;
    uint64_t tmp_size, run_size, scratch_size; /* tmpfs, bytes */
    char *user;                                /* "agent" */
    char *workdir;                             /* "/home/agent" */
    char **env;                                /* K=V */
    char **labels;                             /* K=V */
    char **hashed_labels; /* labels in the hash of a sandbox of an older version; else NULL */
    struct spec_mount *mounts;
    size_t n_mounts;
    uint16_t *ports; /* SPEC_ISOLATION_CONFINED: that commands may listen on */
    size_t n_ports;
    enum spec_cache_mode cache_mode; /* for tools that are not named in `caches` */
    struct spec_cache *caches;
    size_t n_caches;
    uint64_t idle_stop, max_life, rm_after; /* usec; 0: never */
};

void sandbox_spec_done(struct sandbox_spec *spec); /* NULL is fine */
void sandbox_spec_copy(struct sandbox_spec *dst, const struct sandbox_spec *src);

/* Whether a folder of the host is mounted writable: no call inside may then set set-id bits. */
bool sandbox_spec_writes_to_host(const struct sandbox_spec *spec);
/* Whether one of these folders must not get files of root. */
bool sandbox_spec_squashes_root(const struct sandbox_spec *spec);
/* Isolation 'confined'. */
bool sandbox_spec_is_confined(const struct sandbox_spec *spec);
/* "root", "0" or "0:GID". Another name of the image may also be uid 0. */
bool spec_user_is_root(const char *user);

/*
 * The environment of the sandbox's commands: the variables that every program expects, then `more`
 * (the image's; may be NULL), then ~/.local/bin in front of PATH, then `own` (the spec's). A new
 * strv.
 */
char **spec_environment(const char *user, char *const *own, char *const *more);
/* The same with other folders: the user's home, and PATH. */
char **spec_environment_at(const char *home, const char *path, const char *user, char *const *own,
                           char *const *more);
#define SPEC_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
