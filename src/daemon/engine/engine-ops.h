/*
 * The interface that each backend implements, for backends and for engine.c. Core includes
 * engine.h.
 *
 * A backend is a `const struct engine_ops` of straight-line blocking functions with a deadline;
 * engine.c runs each call on that engine's own worker pool, so that a hung backend holds only its
 * own workers. Input is a copy, output is a value: no call sees a live object of core. Unless its
 * comment says otherwise, a function runs on a worker and several may run at once.
 *
 * A difference between backends becomes a capability or a flag here. Code above this folder never
 * asks which backend it talks to.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

struct build;
struct build_request;
struct cache_mount_op;
struct doctor_report;
struct engine;
struct engine_caches;
struct engine_config;
struct engine_object;
struct engine_objects;
struct engine_opener;
struct engine_sandbox;
struct engine_usage;
struct image_op;
struct sandbox_request;
struct sandbox_spec;

enum engine_caps {
    ENGINE_CAP_PAUSE = 1 << 0,
    ENGINE_CAP_PTY = 1 << 1,
    ENGINE_CAP_STATS = 1 << 2,
    ENGINE_CAP_MEMORY_LIMIT = 1 << 3,
    ENGINE_CAP_CPU_LIMIT = 1 << 4,
    ENGINE_CAP_PIDS_LIMIT = 1 << 5,
    ENGINE_CAP_DISK_LIMIT = 1 << 6,
    ENGINE_CAP_NET_OPEN = 1 << 7,
    ENGINE_CAP_RUNTIME = 1 << 8,
    ENGINE_CAP_IMAGES = 1 << 9, /* images by reference, not only the machine's own programs */
    ENGINE_CAP_NET_ISOLATED = 1 << 10, /* sandboxes with network 'open' do not reach each other */
    ENGINE_CAP_NET_PACKAGES = 1 << 11, /* network 'packages' leads to the package cache */
    ENGINE_CAP_STRICT = 1 << 12,       /* isolation 'strict' */
    ENGINE_CAP_CONFINED = 1 << 13,     /* isolation 'confined' */
};

struct engine_ops {
    const char *name;
    const char *default_image;
    bool default_is_fixed;   /* `default_image` needs no `resolve` */
    bool connects_closed;    /* `connect` works while the backend cannot be reached */
    bool removes_running;    /* `remove` of a running sandbox is cheaper than a stop before it */
    bool builds_digest_only; /* `build` accepts digest-only contexts (proto/digest-context.h) */
    bool starts_fast;        /* in milliseconds: the doctor tries each feature by a start */

    /* Allocates the engine, copies the configuration and sets exec_root; touches nothing else. On
     * the loop. */
    struct engine *(*make)(const struct engine_config *config);
    /* Reaches the backend and finds out its capabilities. Called before the first other call, and
     * again for each later one until it has succeeded; never twice at once. */
    int (*open)(struct engine *e, const struct deadline *by, struct err *err);
    /* The engine may never have been open; NULL is fine. On the loop. */
    void (*close)(struct engine *e);

    /* Why this capability is missing here, as reason and hint of *ret. The reason stays empty where
     * no more is known. NULL: never more. Any thread. */
    void (*lack)(const struct engine *e, uint32_t cap, struct err *ret);
    /* Lines about the machine and the backend that starts of sandboxes do not show; also when the
     * backend is not open. wanted: people expect the backend to work. NULL: none. */
    void (*doctor)(struct engine *e, bool wanted, struct doctor_report *ret);
    /* The capabilities that the backend would have now: they change with the machine, for example
     * when a program is installed. NULL: those of `open` stay. */
    uint32_t (*look_again)(const struct engine *e);

    /* Whether the spec can be carried out here, as far as that is known without asking the backend.
     * On the loop. NULL: the capabilities are enough. */
    int (*check)(const struct engine *e, const struct sandbox_spec *spec, struct err *err);
    /* *ret is a text that changes with the contents of the spec's image. NULL: the only image is
     * `default_image`. */
    int (*resolve)(struct engine *e, const struct sandbox_spec *spec, const struct deadline *by,
                   char **ret, struct err *err);
    /* Images (engine-images.h). *ret_json is a document. NULL: the backend keeps its images
     * itself. A backend without `stores_images` only shows and pulls them. */
    bool stores_images;
    int (*image)(struct engine *e, const struct image_op *req, const struct deadline *by,
                 char **ret_json, struct err *err);
    /* Cache mounts of builds (engine-images.h). *ret_json is a document. NULL: the backend keeps
     * them itself. */
    int (*cache_mounts)(struct engine *e, const struct cache_mount_op *req,
                        const struct deadline *by, char **ret_json, struct err *err);
    /* Builds an image (build.h). *ret is {"id":"sha256:…","names":[…]}. After a failure or a
     * cancellation only cached layers are left. NULL: the backend has no builder. */
    int (*build)(struct engine *e, const struct build_request *req, struct build *b,
                 const struct deadline *by, char **ret, struct err *err);

    /* Whether a sandbox of this request could start now, as far as that can be found out without a
     * change: mount sources, the user, names that the backend knows. NULL: `check` is enough. */
    int (*verify)(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err);
    /* Makes the sandbox's files; idempotent for one id. On failure nothing new is left. For an
     * existing sandbox with another hash, replaces everything except its home; with req->keep the
     * previous state stays beside the new one until `settle`. */
    int (*create)(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err);
    /* Brings the sandbox up; ret->supervisor_fd is connected and has sent READY. On failure nothing
     * of the start is left. */
    int (*start)(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                 struct engine_sandbox *ret, struct err *err);
    /* Connects to the supervisor of a sandbox that an earlier daemon started. ERR_NOT_FOUND: no
     * supervisor lives. */
    int (*connect)(struct engine *e, const char *id, const struct deadline *by,
                   struct engine_sandbox *ret, struct err *err);
    /* The backend's view of the sandbox: state, hash, warnings. ENGINE_SANDBOX_ABSENT is an answer,
     * not an error. NULL: the connection to the supervisor already reports everything. */
    int (*look)(struct engine *e, const char *id, const struct deadline *by,
                struct engine_sandbox *ret, struct err *err);
    /* Ends the rest of a run (processes, cgroups, sockets) after the supervisor's connection has
     * closed, or when the supervisor hangs; keeps files. */
    int (*cleanup)(struct engine *e, const char *id, const struct deadline *by, struct err *err);
    /* Removes the whole sandbox in any state; fine when there is nothing. */
    int (*remove)(struct engine *e, const char *id, const struct deadline *by, struct err *err);
    /* Ends a re-creation: of the present state and of the one that was kept, the one with req->hash
     * stays (without such a one, the present if it is whole), and the other is removed. The sandbox
     * does not run, or is the one that stays. ret->hash: req->hash if that is there and whole. Fine
     * when nothing was kept. */
    int (*settle)(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct engine_sandbox *ret, struct err *err);
    /* Replaces the spec_text of an existing sandbox. NULL: the backend keeps no spec_text. */
    int (*note)(struct engine *e, const char *id, const char *spec_text, struct err *err);
    /* What the sandbox has on the disk. After a failure *ret holds the part that was seen. NULL:
     * cannot be measured. */
    int (*usage)(struct engine *e, const char *id, const struct deadline *by,
                 struct engine_usage *ret, struct err *err);
    /* Everything that carries our root id, however broken, and the objects that the configuration
     * calls legacy. On failure *ret may be half filled. */
    int (*list)(struct engine *e, bool specs, const struct deadline *by, struct engine_objects *ret,
                struct err *err);
    /* How many commands run in an object without a supervisor. NULL: always 0. */
    int (*live)(struct engine *e, const struct engine_object *o, const struct deadline *by,
                unsigned *ret, struct err *err);
    /* Ends the processes of a sandbox that is to be removed. False: they may run until its removal.
     * NULL: removals do not get cheaper when all sandboxes were ended first. */
    bool (*end)(struct engine *e, const char *id, const struct deadline *by);
    /* Removes a legacy object; fine when it is not there. NULL: `list` never shows one. */
    int (*remove_legacy)(struct engine *e, const struct engine_object *o, const struct deadline *by,
                         struct err *err);

    /* Package caches that several sandboxes share. All three are NULL where there are none. */
    /* Makes a new shared base in which `tool` has the contents of the archive, one folder with the
     * tool's name. Sandboxes that run on the old base keep it. On failure it stays the base. */
    int (*cache_publish)(struct engine *e, const char *tool, int tar_fd, const struct deadline *by,
                         struct err *err);
    /* Adds the caches to the list (engine-caches.h). */
    int (*cache_list)(struct engine *e, const struct deadline *by, struct engine_caches *ret,
                      struct err *err);
    /* Removes a tool's files from the base and from the shared stores; "": those of all tools. */
    int (*cache_drop)(struct engine *e, const char *tool, const struct deadline *by,
                      struct err *err);
};

/* The first member of each backend's own struct. */
struct engine {
    const struct engine_ops *ops;
    /* Set by the backend in `make`: */
    char *exec_root; /* folder that holds <sandbox id>/<exec id>/ journals; owned */
    /* and in `open`; the loop reads them only when engine_is_open(): */
    _Atomic uint32_t caps; /* enum engine_caps; engine_doctor() looks again */
    uint32_t cache_modes;  /* 1 << enum spec_cache_mode */
    char *about;           /* the backend's description, for people; owned, or NULL */
    /* Set by engine.c: */
    unsigned at_once; /* of the configuration */
    struct engine_opener *opener;
};

/* A change that the daemon did not make. It is a reason to look again (`look`), not the state
 * itself. */
enum engine_news_kind {
    ENGINE_NEWS_SANDBOX,  /* one sandbox has changed */
    ENGINE_NEWS_BACK,     /* the backend is open now, or was restarted: look at all sandboxes */
    ENGINE_NEWS_PACKAGES, /* a step of a build listens for the package cache, or has ended */
};

struct engine_news {
    enum engine_news_kind kind;
    char id[33]; /* ENGINE_NEWS_SANDBOX, ENGINE_NEWS_PACKAGES */
    int fd;      /* ENGINE_NEWS_PACKAGES: the listening socket; -1: the step has ended.
                    engine_send_news() takes it, the listener borrows it. */
};

/* For backends, from any thread: the listener of engine_listen() gets it on the loop. */
void engine_send_news(struct engine *e, const struct engine_news *news);

extern const struct engine_ops engine_native_ops;
extern const struct engine_ops engine_docker_ops;
extern const struct engine_ops engine_fake_ops;
