/*
 * Internals of the Docker engine, shared by its files. There is one struct docker_engine per root.
 * Every call runs on one of the engine's worker threads, so fields that change after open are
 * protected by `lock`.
 *
 * Objects on the engine: container <prefix>-<name>, volume <prefix>-home-<name> (both with our
 * labels), volumes of caches, and the network <prefix>-net (ensure.h). Our own files:
 *
 * - <state>/docker/execs/<id>/<exec>/: journals and end records; <id>/spec: the sandbox's spec
 * - <state>/docker/engine: the address of the engine that has the sandboxes
 * - <run>/docker/<id>/: shim.sock, relay.log and registry.sock of one run
 *
 * A sandbox is found on the engine by its labels, whatever the database says. After that,
 * containers are addressed by id, because another container may get the same name.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/docker/ensure.h"
#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine-objects.h"
#include "daemon/engine/engine-ops.h"
#include "daemon/engine/sandbox-request.h"
#include "daemon/engine/supervisors.h"
#include "dockerapi/docker.h"
#include "lib/base/map.h"
#include "lib/os/seccomp-table.h"

#define LABEL_ROOT "ripcord.root"       /* id of the root that created the object */
#define LABEL_ID "ripcord.id"           /* id of the sandbox */
#define LABEL_NAME "ripcord.name"       /* its name */
#define LABEL_HASH "ripcord.hash"       /* hash of its configuration */
#define LABEL_WITHOUT "ripcord.without" /* warnings about missing caches, one per line */
#define LABEL_SPEC "ripcord.spec"       /* its spec, without environment variables */
#define SPEC_FILE "spec"                /* in execs/<id>: the whole spec */

struct docker_watcher;

/* struct engine_legacy_config, owned. */
struct legacy {
    char **containers, **networks, **volumes, *label;
};

struct docker_engine {
    struct engine engine;
    char *state_dir, *run_dir, *root_id, *libexec_dir;
    char *host, *prefix, *image, *label;
    struct legacy legacy;
    uint64_t timeout;
    bool cache_required;
    uint64_t journal_budget;
    char *profiles[SECCOMP_VARIANTS]; /* seccomp profiles: profile.h */
    /* The next four are set by open. */
    uint32_t cpus; /* of the engine's machine */
    bool near;     /* its containers run under the daemon's kernel */
    bool plain;    /* its default runtime uses namespaces (docker_runtime_is_plain()) */
    bool own_ids;  /* its containers have a user namespace: root inside is not root outside */
    struct supervisors supervisors;
    struct ensured ensured;
    struct docker_watcher *watcher; /* events.c; NULL before the first open */
    pthread_mutex_t lock;           /* protects the fields below */
    int execs, runs, devnull;
    struct docker **clients; /* the last one is current; workers may still use older ones */
    size_t n_clients;
    char *data_dir;        /* the engine's own folder if it is on this machine; never mounted */
    struct map containers; /* sandbox id -> (char *) container id; saves a search */
};

static inline struct docker_engine *docker_of(struct engine *e)
{
    return container_of(e, struct docker_engine, engine);
}

/* A string field of the engine's JSON; "" if it is missing. */
static inline const char *docker_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

/* backend.c */
const struct docker *docker_client(struct docker_engine *d);
/* The deadline for one answer: `docker.timeout`, or the end of the whole call if that is sooner. */
struct deadline docker_by(const struct docker_engine *d, const struct deadline *by);
/* Whether the labels are those of this root and sandbox. Podman treats several labels of a filter
 * as alternatives, so items of a list must be checked with this. */
bool docker_owns(const struct docker_engine *d, const char *id, const json_t *labels);
/* docker_call() with the deadline of docker_by(). */
int docker_ask(struct docker_engine *d, const char *method, const char *path, const json_t *body,
               const struct deadline *by, struct docker_reply *ret, struct err *err);
/* Connects again after the engine was away: reads its version and forgets what was cached. */
int docker_reconnect(struct docker_engine *d, const struct deadline *by, struct err *err);
/* Whether a runtime uses namespaces. Others (gVisor, Kata) have their own network stack inside, and
 * nothing is assumed about unknown ones. */
bool docker_runtime_is_plain(const char *name);
/* Whether the `/info` of an engine says that a runtime (NULL: its default one) is gVisor. */
bool docker_runtime_is_gvisor(const json_t *info, const char *name);
/* gVisor opens a program for reading to run it, unlike Linux. NULL: the default runtime. */
int docker_needs_readable_programs(struct docker_engine *d, const char *runtime,
                                   const struct deadline *by, bool *ret, struct err *err);
/* engine_ops.note */
int docker_note(struct engine *e, const char *id, const char *spec_text, struct err *err);
/* Opens our own folders. Works without the engine. */
int docker_folders(struct docker_engine *d, struct err *err);

/* container.c */
/* *ret is the id of the sandbox's container, the caller's to free. ERR_NOT_FOUND: there is none. */
int container_find(struct docker_engine *d, const char *id, const struct deadline *by, char **ret,
                   struct err *err);
void container_remember(struct docker_engine *d, const char *id, const char *container);
/* Like container_remember(), but a known id wins: the list it comes from may be older. */
void container_seen(struct docker_engine *d, const char *id, const char *container);
void container_forget(struct docker_engine *d, const char *id);
int container_inspect(struct docker_engine *d, const char *container, const struct deadline *by,
                      json_t **ret, struct err *err);
int docker_create(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err);
/* A short sleep, to wait for a state that is about to change. */
void container_nap(void);
/* Kills a container of this machine with a signal. True: the container is not running now. */
bool container_kill_here(struct docker_engine *d, const char *container, const struct deadline *by);
/* Removes a container and waits until it is gone. A missing container is success. */
int container_remove(struct docker_engine *d, const char *container, const struct deadline *by,
                     struct err *err);
int docker_look(struct engine *e, const char *id, const struct deadline *by,
                struct engine_sandbox *ret, struct err *err);

/* verify.c */
int docker_verify(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err);
/* The part that does not ask the engine. */
int docker_verify_spec(struct docker_engine *d, const struct sandbox_spec *spec, struct err *err);
/* The hard limit of a resource (RLIMIT_…), at most `most`. */
uint64_t docker_hard_limit(int resource, uint64_t most);

/* launch.c */
int docker_start(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                 struct engine_sandbox *ret, struct err *err);
int docker_cleanup(struct engine *e, const char *id, const struct deadline *by, struct err *err);
int docker_remove(struct engine *e, const char *id, const struct deadline *by, struct err *err);

/* objects.c */
void legacy_copy(struct legacy *dst, const struct engine_legacy_config *src);
void legacy_done(struct legacy *l);
/* Adds the configured label ("key=value"; "" or NULL: none), which all our objects get. */
void docker_add_label(const char *label, json_t *labels);
int docker_list(struct engine *e, bool specs, const struct deadline *by, struct engine_objects *ret,
                struct err *err);
bool docker_end(struct engine *e, const char *id, const struct deadline *by);
int docker_live(struct engine *e, const struct engine_object *o, const struct deadline *by,
                unsigned *ret, struct err *err);
int docker_remove_legacy(struct engine *e, const struct engine_object *o, const struct deadline *by,
                         struct err *err);

/* events.c: a thread that reads the engine's event stream. */
struct docker_watcher *watcher_new(struct docker_engine *d);
void watcher_free(struct docker_watcher *w); /* ends the thread; accepts NULL */
