/*
 * Inside of the native engine, shared by its files. There is one struct native_engine per root.
 * Calls run on the engine's workers at the same time, so `lock` protects all that changes after
 * open.
 *
 * The folders:
 *
 *   <state>/images/host/g-N/         generations of image `host` (host-image.h)
 *   <state>/images/store/            all other images (image/store/images.h)
 *   <state>/sandboxes/<id>/          files of one sandbox: root/ and home/ (made by the shim), the
 *                                    symlink `meta` with the text "<config hash>/<name>", the file
 *                                    `spec`, image-<hex>/ with isolation `strict`, and confined/
 *                                    with isolation `confined` (confined-home.h)
 *   <state>/execs/<id>/<exec>/       journals and end records
 *   <state>/caches/                  package caches that several sandboxes share (tool-caches.h)
 *   <state>/trash/                   folders that are being deleted (delete-queue.h)
 *   <state>/spares/, <run>/spares/   empty folders for future sandboxes (prewarmed.h)
 *   <run>/sandboxes/<id>/            files of one run: shim.sock, shim.log, and the link `lower` to
 *                                    its generation of image `host`
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/engine/engine-ops.h"
#include "daemon/engine/native/cache-base.h"
#include "daemon/engine/native/cgroups.h"
#include "daemon/engine/native/ids.h"
#include "daemon/engine/native/network.h"
#include "daemon/engine/sandbox-spec.h"
#include "daemon/engine/supervisors.h"
#include "lib/base/json.h"
#include "lib/os/seccomp-table.h"
#include "lib/os/submap.h"

struct cgroup_reaper;
struct prewarmed;
struct delete_queue;
struct mount_source;

#if defined(__aarch64__)
#define NATIVE_PLATFORM "linux/arm64"
#else
#define NATIVE_PLATFORM "linux/amd64"
#endif

/* For confined sandboxes: their common group, then users. count 0: they have the daemon's user. */
struct native_own_ids {
    uint32_t first, count;
};

struct native_engine {
    struct engine engine;
    char *state_dir, *run_dir, *root_id, *libexec_dir;
    int sandboxes, execs, runs; /* folders: <state>/sandboxes, <state>/execs, <run>/sandboxes */
    struct delete_queue *delete_queue;
    struct native_cgroups cgroups;
    struct cgroup_reaper *cgroup_reaper;
    struct prewarmed *prewarmed;
    int devnull;
    int shim;             /* sealed memfd of ripcord-shim */
    char *lower;          /* current generation of image `host` */
    bool ranges;          /* each sandbox gets an id range of its own */
    struct submap subids; /* without `ranges`: the user's subordinate ids; uid 0: none */
    struct native_own_ids own_ids;
    struct err no_confined; /* why isolation 'confined' is not possible; empty: it is */
    struct {
        void *code; /* seccomp filter for every exec: owned */
        size_t bytes;
    } filters[SECCOMP_VARIANTS];
    uint64_t journal_budget;
    uint64_t image_max;   /* bytes of an image */
    uint64_t disk_budget; /* bytes of a sandbox without a disk limit; 0: any number */
    bool disk_images;     /* hold it with an image where there is no project quota */
    bool quota;           /* the file system of `sandboxes` has project quotas */
    bool cache_required;
    struct cache_base base; /* of package caches */
    int shared_caches;      /* folder of the package caches in mode `shared` */

    pthread_mutex_t lock;
    struct ids ids;     /* with `ranges` */
    unsigned transfers; /* running transfers of images */
    char **steps;       /* ids of running build steps, which `list` does not show */
    struct {
        uint32_t uid;
        char **mirrors, *ca_file, *proxy, **add_hosts;
        uint64_t add_max;
    } transfer; /* as in struct engine_transfer_config */
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

/* A step of a build has these in place of an image and of the spec's mounts. */
struct native_step {
    char *lower_dir; /* holds the layers, or is the only layer */
    char **layers;   /* the topmost first */
    bool on_host;    /* the lowest layer is image `host` */
    struct spec_mount *mounts;
    size_t n_mounts;
};
int native_start_step(struct engine *e, const struct sandbox_request *req,
                      const struct native_step *step, const struct deadline *by,
                      struct engine_sandbox *ret, struct err *err);

/* sandbox-files.c: engine_ops.verify, .create and .settle. */
int native_verify(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err);
int native_create(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err);
int native_settle(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct engine_sandbox *ret, struct err *err);
/* Whether the state before a re-creation is still there. */
bool native_is_kept(const struct native_engine *n, const char *id);
/* Checks the sources of the spec's mounts; *ret has room for all of them. */
int native_check_mounts(const struct native_engine *n, const struct sandbox_spec *spec,
                        struct mount_source *ret, struct err *err);

/* native.c */
int native_remove(struct engine *e, const char *id, const struct deadline *by, struct err *err);

/* build.c: engine_ops.build. */
int native_build(struct engine *e, const struct build_request *req, struct build *b,
                 const struct deadline *by, char **ret, struct err *err);
/* The build that a request of ripcord-build belongs to; all borrowed. */
struct native_task {
    struct native_engine *n;
    const struct build_request *req;
    struct build *b;
    const struct deadline *by;
    int cancel_fd; /* readable: the request is cancelled */
};
/* Carries out a request of ripcord-build (`ask`) and reports its progress in `step`. *ret: the
 * answer; new. */
typedef int (*native_task_fn)(const struct native_task *t, unsigned step, const json_t *ask,
                              json_t **ret, struct err *err);
/* build-transfer.c: pulls an image that a Dockerfile names: {"name", "as"}, as in transfer.h. */
int native_build_pull(const struct native_task *t, unsigned step, const json_t *ask, json_t **ret,
                      struct err *err);
/* Downloads a file that a Dockerfile names: {"url", "etag", "to"}; "to" is a path below the store.
 * The answer is that of image/transfer/download.h. */
int native_build_fetch(const struct native_task *t, unsigned step, const json_t *ask, json_t **ret,
                       struct err *err);
/* build-run.c: runs the command of a RUN. */
int native_build_run(const struct native_task *t, unsigned step, const json_t *ask, json_t **ret,
                     struct err *err);

/* run.c: engine_ops.connect and .cleanup. */
int native_connect(struct engine *e, const char *id, const struct deadline *by,
                   struct engine_sandbox *ret, struct err *err);
/* Removes firewall rules that no run needs any more; a failure is tried again next time. */
void native_tidy_network(struct native_engine *n, const struct deadline *by);
int native_cleanup(struct engine *e, const char *id, const struct deadline *by, struct err *err);
/* As native_cleanup(), for a sandbox that is removed next. */
int native_end(struct native_engine *n, const char *id, const struct deadline *by, struct err *err);

/* shim-image.c: copies the program into a sealed memfd */
int native_seal_shim(const char *path, int *ret, struct err *err);
