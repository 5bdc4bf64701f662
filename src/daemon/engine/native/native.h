/*
 * Inside of the native engine, shared by its files. One of these per root; every call runs on one
 * of the engine's workers, so what is not constant after open stands behind `lock`.
 *
 * - <state>/images/host/g-N: generations of image `host`; <state>/images/store:
 * image/store/images.h
 * - <state>/sandboxes/<id>/: files of one sandbox: root/ and home/ (made by the shim), `meta`, a
 * symlink that holds "<config hash>/<name>", and image-<hex>/ of a strict one
 * - <state>/execs/<id>/<exec>/: journals and end records
 * - <state>/caches/: package caches that are more than one sandbox's (tool-caches.h)
 * - <state>/trash/: what is being deleted
 * - <run>/sandboxes/<id>/: of one run: shim.sock, shim.log, `lower` (link to its generation)
 * - <state>/spares/ and <run>/spares/: empty folders for sandboxes to come
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/engine/engine-ops.h"
#include "daemon/engine/native/cache-base.h"
#include "daemon/engine/native/ids.h"
#include "daemon/engine/native/network.h"
#include "daemon/engine/sandbox-spec.h"
#include "daemon/engine/supervisors.h"
#include "lib/base/json.h"
#include "lib/os/submap.h"

struct cgroup_reaper;
struct prewarmed;
struct delete_queue;

#if defined(__aarch64__)
#define NATIVE_PLATFORM "linux/arm64"
#else
#define NATIVE_PLATFORM "linux/amd64"
#endif

/* First folder of ours below each cgroup hierarchy. */
#define NATIVE_CGROUP_PARENT "ripcord"

struct native_engine {
    struct engine engine;
    char *state_dir, *run_dir, *root_id, *libexec_dir;
    int boxes, execs, runs; /* the folders above */
    struct delete_queue *delete_queue;
    struct cgroup_reaper *cgroup_reaper;
    struct prewarmed *prewarmed;
    int devnull;
    int shim;             /* sealed memfd of ripcord-shim */
    char *lower;          /* present generation of image `host` */
    bool ranges;          /* id ranges can be mapped; else only our own id, */
    struct submap subids; /* and these, when they are there */
    void *filter;         /* of system calls, for every exec */
    size_t filter_bytes;
    uint64_t journal_budget;
    bool cache_required;
    struct cache_base base; /* of package caches, */
    int shared_caches;      /* and the folder of those in mode `shared` */

    pthread_mutex_t lock;
    struct ids ids;     /* with `ranges` */
    unsigned transfers; /* of images, at work */
    char **steps;       /* of builds, at work: they are no sandboxes that anybody lists */
    struct {
        uint32_t uid;
        char **mirrors, *ca_file, *proxy, **add_hosts;
        uint64_t add_max;
    } transfer; /* as in engine_config */
    struct network net;
    struct supervisors supervisors;
};

static inline struct native_engine *native_of(struct engine *e)
{
    return container_of(e, struct native_engine, engine);
}

/* launch.c */
int native_start(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                 struct engine_sandbox *ret, struct err *err);

/* A step of a build takes these in place of an image and of its spec's mounts. */
struct native_step {
    char *lower_dir; /* holds the layers, or is the only one */
    char **layers;   /* the topmost first */
    bool on_host;    /* the lowest is that of image `host` */
    struct spec_mount *mounts;
    size_t n_mounts;
};
int native_start_step(struct engine *e, const struct sandbox_request *req,
                      const struct native_step *step, const struct deadline *by,
                      struct engine_sandbox *ret, struct err *err);

/* native.c */
int native_create(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err);
int native_remove(struct engine *e, const char *id, const struct deadline *by, struct err *err);

/* build.c: engine_ops.build. */
int native_build(struct engine *e, const struct build_request *req, struct build *b,
                 const struct deadline *by, char **ret, struct err *err);
/* What is done for a build; all borrowed. */
struct native_task {
    struct native_engine *n;
    const struct build_request *req;
    struct build *b;
    const struct deadline *by;
    int cancel_fd; /* readable: it is not wanted any more */
};
/* All of them take what ripcord-build asks for, and tell `step` how it goes. *ret: what is
 * answered; new. */
typedef int (*native_task_fn)(const struct native_task *t, unsigned step, const json_t *ask,
                              json_t **ret, struct err *err);
/* build-transfer.c: an image that a Dockerfile names: {"name", "as"}, as native_pull() takes them.
 */
int native_build_pull(const struct native_task *t, unsigned step, const json_t *ask, json_t **ret,
                      struct err *err);
/* A file that it names: {"url", "etag", "to"}; the last is where it goes, below the store. Answered
 * is what image/transfer/download.h says. */
int native_build_fetch(const struct native_task *t, unsigned step, const json_t *ask, json_t **ret,
                       struct err *err);
/* build-run.c: a RUN. */
int native_build_run(const struct native_task *t, unsigned step, const json_t *ask, json_t **ret,
                     struct err *err);

/* run.c: the supervisor of a sandbox that may or may not be ours to wait for */
int native_connect(struct engine *e, const char *id, const struct deadline *by,
                   struct engine_sandbox *ret, struct err *err);
/* Firewall rules that no run needs any more go; what cannot be removed is tried again next time. */
void native_tidy_network(struct native_engine *n, const struct deadline *by);
int native_cleanup(struct engine *e, const char *id, const struct deadline *by, struct err *err);
/* The same for one that is being removed. */
int native_end(struct native_engine *n, const char *id, const struct deadline *by, struct err *err);

/* shim-image.c: the program, copied into a memfd that nobody can write any more */
int native_seal_shim(const char *path, int *ret, struct err *err);
