/*
 * Inside of the Docker engine, shared by its files. One of these per root; every call runs on one
 * of the engine's workers, so what is not constant after open stands behind `lock`.
 *
 * On the engine: container <prefix>-<name>, volume <prefix>-home-<name> (both with our labels),
 * volumes of caches and the network <prefix>-net (ensure.h). Of ours:
 *
 * - <state>/docker/execs/<id>/<exec>/: journals and end records; <id>/spec: what it was made from
 * - <state>/docker/engine: where the engine is that sandboxes were made on
 * - <run>/docker/<id>/: of one run: shim.sock, relay.log, registry.sock
 *
 * A sandbox on the engine is found by its labels, whatever the database says. Containers are named
 * by their id everywhere else: a name may have come to mean another one.
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

#define LABEL_ROOT "ripcord.root"       /* id of the root that made it */
#define LABEL_ID "ripcord.id"           /* of the sandbox */
#define LABEL_NAME "ripcord.name"       /* same */
#define LABEL_HASH "ripcord.hash"       /* config hash, read back */
#define LABEL_WITHOUT "ripcord.without" /* caches that could not be made, a line each */
#define LABEL_SPEC "ripcord.spec"       /* what it was made from, without its variables */
#define SPEC_FILE "spec"                /* in its folder of execs: all that it was made from */

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
    char *profile; /* of system calls: profile.h */
    uint32_t cpus; /* of the engine's machine; set by open */
    bool near;     /* same: its containers run under our own kernel */
    bool plain;    /* same: as namespaces, when it is not told by what runtime */
    struct supervisors supervisors;
    struct ensured ensured;
    struct docker_watcher *watcher; /* events.c; from the first open on */
    pthread_mutex_t lock;           /* over the next ones */
    int execs, runs, devnull;
    struct docker **clients; /* the last one is in use; older ones may be, by a worker */
    size_t n_clients;
    char *data_dir;        /* of the engine, when it is on this machine: never mounted */
    struct map containers; /* sandbox id -> (char *) container id: saves a search */
};

static inline struct docker_engine *docker_of(struct engine *e)
{
    return container_of(e, struct docker_engine, engine);
}

/* A string of the engine's JSON; "" when it is not there. */
static inline const char *docker_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

/* backend.c */
const struct docker *docker_client(struct docker_engine *d);
/* A deadline for one answer: `docker.timeout`, or what is left of the whole call. */
struct deadline docker_by(const struct docker_engine *d, const struct deadline *by);
/* Whether labels say that it is ours, and of that sandbox. Podman takes several labels of a filter
 * for alternatives, so what a list shows is to be looked at again. */
bool docker_owns(const struct docker_engine *d, const char *id, const json_t *labels);
/* docker_call() with that deadline. */
int docker_ask(struct docker_engine *d, const char *method, const char *path, const json_t *body,
               const struct deadline *by, struct docker_reply *ret, struct err *err);
/* Speaks with the engine anew after it was away: version and all that is remembered of it. */
int docker_reconnect(struct docker_engine *d, const struct deadline *by, struct err *err);
/* A runtime of namespaces. Others (gVisor, Kata) have a network of their own inside, and of unknown
 * ones nothing is assumed. */
bool docker_runtime_is_plain(const char *name);
/* Our own folders; they need no engine. */
int docker_folders(struct docker_engine *d, struct err *err);

/* container.c */
/* Id of the sandbox's container; ERR_NOT_FOUND. The caller frees it. */
int container_find(struct docker_engine *d, const char *id, const struct deadline *by, char **ret,
                   struct err *err);
void container_remember(struct docker_engine *d, const char *id, const char *container);
/* As container_remember(), but from a list that may be older than what is known. */
void container_seen(struct docker_engine *d, const char *id, const char *container);
void container_forget(struct docker_engine *d, const char *id);
int container_inspect(struct docker_engine *d, const char *container, const struct deadline *by,
                      json_t **ret, struct err *err);
int docker_create(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err);
/* As long as it makes sense to wait for a state that is about to change. */
void container_nap(void);
/* Gone when this returns; fine when it is not there. */
/* True: it does not run now. */
bool container_kill_here(struct docker_engine *d, const char *container, const struct deadline *by);
int container_remove(struct docker_engine *d, const char *container, const struct deadline *by,
                     struct err *err);
int docker_look(struct engine *e, const char *id, const struct deadline *by,
                struct engine_sandbox *ret, struct err *err);

/* launch.c */
int docker_start(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                 struct engine_sandbox *ret, struct err *err);
int docker_cleanup(struct engine *e, const char *id, const struct deadline *by, struct err *err);
int docker_remove(struct engine *e, const char *id, const struct deadline *by, struct err *err);

/* objects.c */
void legacy_copy(struct legacy *dst, const struct engine_legacy_config *src);
void legacy_done(struct legacy *l);
/* Adds the configured label ("key=value"; "" or NULL: none) of everything that we make. */
void docker_add_label(const char *label, json_t *labels);
int docker_list(struct engine *e, bool specs, const struct deadline *by, struct engine_objects *ret,
                struct err *err);
bool docker_end(struct engine *e, const char *id, const struct deadline *by);
int docker_live(struct engine *e, const struct engine_object *o, const struct deadline *by,
                unsigned *ret, struct err *err);
int docker_remove_legacy(struct engine *e, const struct engine_object *o, const struct deadline *by,
                         struct err *err);

/* events.c: a thread in the engine's event stream. */
struct docker_watcher *watcher_new(struct docker_engine *d);
void watcher_free(struct docker_watcher *w); /* ends the thread; NULL is fine */
