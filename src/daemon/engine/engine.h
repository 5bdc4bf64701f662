/*
 * The engine interface: what core knows of a backend. A backend is a `const struct engine_ops` of
 * straight-line blocking functions; engine.c runs each call on that engine's own worker pool and
 * answers on the loop, so that a hung backend holds only its own workers. Input is a copy, output
 * is a value: no call sees a live object.
 *
 * Execs are event-driven instead: every running sandbox has a supervisor process (native: the shim,
 * Docker: the relay) that speaks proto/supervisor.h on a seqpacket socket. `connect` yields that
 * socket, and struct supervisor_conn (supervisor-conn.c) is its daemon side on the loop. The end of
 * that socket *is* the news that the sandbox has gone.
 *
 * No `if (engine is docker)` above this folder: a difference is a capability.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/limits.h"
#include "lib/base/map.h"
#include "lib/base/time.h"
#include "lib/journal/journal.h"
#include "lib/journal/record.h"

struct build;
struct build_request;
struct loop;

/* ---- what a sandbox is made from; filled and checked by daemon/core/sandbox/spec.c ---- */

enum spec_network { SPEC_NETWORK_NONE, SPEC_NETWORK_PACKAGES, SPEC_NETWORK_OPEN };

/* Strict: no file of the image or of a cache is another sandbox's too, and every command is in a
 * Landlock domain of its own (docs/threat-model.md). */
enum spec_isolation { SPEC_ISOLATION_SHARED, SPEC_ISOLATION_STRICT };

struct spec_mount {
    char *source, *target;
    bool read_only;
};

/* How a tool's package cache is kept: daemon/engine/caches.h has the tools. */
enum spec_cache_mode { CACHE_OFF, CACHE_PRIVATE, CACHE_SHARED, CACHE_LAYERED, CACHE_READONLY };
#define CACHE_MODES (CACHE_READONLY + 1)

struct spec_cache {
    char *tool;
    enum spec_cache_mode mode;
    char *group; /* CACHE_SHARED: with whom; NULL: all who name none */
};

struct sandbox_spec {
    char *image;        /* NULL: the engine's own default */
    char *image_digest; /* what `image` was when the sandbox was made; NULL: not resolved yet */
    char *runtime;      /* of Docker, by name; NULL: the engine's own default */
    uint64_t memory;    /* bytes */
    uint32_t cpu_milli;
    uint32_t pids;
    uint32_t nofile;
    uint64_t disk;  /* bytes; 0: no cap */
    uint32_t asked; /* enum limit_bit bits: asked for by the user, so refused when they cannot be
                       enforced */
    enum spec_network network;
    enum spec_isolation isolation;
    uint64_t tmp_size, run_size, scratch_size; /* tmpfs, bytes */
    char *user;                                /* "agent" */
    char *workdir;                             /* "/home/agent" */
    char **env;                                /* K=V */
    char **labels;                             /* K=V */
    struct spec_mount *mounts;
    size_t n_mounts;
    enum spec_cache_mode cache_mode; /* of tools that are not named in: */
    struct spec_cache *caches;
    size_t n_caches;
    uint64_t idle_stop, max_life, rm_after; /* usec; 0: never */
};

void sandbox_spec_done(struct sandbox_spec *spec);
void sandbox_spec_copy(struct sandbox_spec *dst, const struct sandbox_spec *src);

/* ---- what an engine tells about a sandbox ---- */

enum engine_sandbox_state {
    ENGINE_SANDBOX_ABSENT,
    ENGINE_SANDBOX_STOPPED,
    ENGINE_SANDBOX_RUNNING,
    ENGINE_SANDBOX_PAUSED
};

struct engine_sandbox {
    char id[33]; /* sandbox id: 16 hex digits */
    enum engine_sandbox_state state;
    char hash[65];       /* config hash read back from the object, "" when unknown */
    uint32_t unenforced; /* enum limit_bit bits that hold only on paper here */
    int supervisor_fd;   /* start: the supervisor's socket, owned by the receiver; else -1 */
    int pid;             /* supervisor's pid, for people */
    bool first_sent;     /* start: the request's first exec is on its way */
    char **warnings;     /* start, look: what it does without, in the engine's words; owned by the
                            call, which frees it after done() */
};

enum engine_cache_kind { ENGINE_CACHE_BASE, ENGINE_CACHE_SHARED, ENGINE_CACHE_PRIVATE };

struct engine_cache {
    enum engine_cache_kind kind;
    char *tool;       /* owned; "" when it is all of a sandbox's */
    char *owner;      /* owned; SHARED: the trust group or "", PRIVATE: the sandbox's id */
    uint64_t bytes;   /* UINT64_MAX: cannot be told */
    uint64_t changed; /* usec, wall clock; 0: cannot be told */
};

struct engine_caches {
    struct engine_cache *items;
    size_t n;
};

/* What an engine needs to know beside the spec. Strings are copies. */
struct exec_request;

struct sandbox_request {
    char id[33];
    char name[64];
    char hash[65];
    bool ephemeral; /* goes away by itself when its first exec ends */
    bool fresh;     /* nothing of it exists yet: a create that fails leaves nothing at all */
    struct sandbox_spec spec;
    char *spec_text;  /* opaque: kept in a private file for `list`; NULL: not worth keeping */
    char *spec_label; /* the same without what others must not see: may be put on objects */
    struct exec_request *first; /* start: run as soon as it is up, or NULL */
};

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
    ENGINE_CAP_NET_PACKAGES = 1 << 11, /* network 'packages' leads to the package registry */
    ENGINE_CAP_STRICT = 1 << 12,       /* isolation 'strict' */
};

struct engine;

/* Objects of an earlier system that are to be cleaned up: shell patterns of their names. */
struct engine_legacy_config {
    char *const *containers, *const *networks, *const *volumes;
    const char *label; /* "key" or "key=value" that the containers must carry too; "": none */
};

struct engine_docker_config {
    const char *host;   /* "" : found by the environment and the usual sockets */
    const char *prefix; /* of the names of containers, volumes and the network */
    const char *image;  /* what image `default` stands for */
    const char *label;  /* "key=value" on everything we make, beside our own labels; "": none */
    uint64_t timeout;   /* usec: for one answer of the engine */
    struct engine_legacy_config legacy;
};

/* Borrowed until `make` has returned: a backend copies what it keeps. */
/* How registries of images are reached; all borrowed. */
struct engine_transfer_config {
    uint32_t uid;           /* of ripcord-transfer, when we are root */
    char *const *mirrors;   /* "docker.io=https://…" */
    const char *ca_file;    /* "": the system's */
    const char *proxy;      /* "": none */
    char *const *add_hosts; /* "host" or "host:port": may have private addresses */
    uint64_t add_max;       /* bytes of a file that a Dockerfile ADDs */
};

struct engine_config {
    const char *state_dir, *run_dir; /* absolute; the backend makes its own folders below */
    const char *root_id;             /* 16 hex digits: in the name of every kernel object */
    const char *libexec_dir;         /* where ripcord-shim lies */
    uint64_t journal_budget;         /* bytes per stream */
    bool cache_required;             /* a cache that cannot be made ready is an error */
    unsigned at_once;                /* objects that reconcile works on at a time; 0: a few */
    struct engine_docker_config docker;
    struct engine_transfer_config transfer;
};

/* ---- what is on a backend, whatever the store says ---- */

enum object_kind { OBJECT_SANDBOX, OBJECT_CONTAINER, OBJECT_NETWORK, OBJECT_VOLUME };

struct engine_object {
    enum object_kind kind; /* others than OBJECT_SANDBOX are legacy ones */
    char id[33];           /* of the sandbox; "" for legacy */
    char *name;            /* as the object has it; NULL: unknown */
    char *ref;             /* legacy: what the backend knows it by; else NULL */
    char hash[65];         /* config hash read back, "" when unknown */
    char *spec;            /* sandbox_request.spec_text, when it was asked for and is there */
    bool whole;            /* its main part is there, not only leftovers around it */
    bool up;               /* it runs, or something of a run is left */
};

struct engine_objects {
    struct engine_object **v; /* owned */
    size_t n;
    struct map by_id; /* those of sandboxes */
};

void engine_objects_done(struct engine_objects *l);
/* The sandbox of that id, added when it is new; NULL: no sandbox has such an id. */
struct engine_object *engine_objects_add(struct engine_objects *l, const char *id);
struct engine_object *engine_objects_get(const struct engine_objects *l, const char *id);
struct engine_object *engine_objects_add_legacy(struct engine_objects *l, enum object_kind kind,
                                                const char *name, const char *ref);
const char *object_kind_name(enum object_kind k);

/* What happened to a sandbox behind our back, or to the backend as a whole. It is a reason to look,
 * not the truth itself: that is `look`. */
enum engine_news_kind {
    ENGINE_NEWS_SANDBOX,  /* one sandbox has changed: look at it */
    ENGINE_NEWS_BACK,     /* the backend is open now, or was restarted: look at all of them */
    ENGINE_NEWS_PACKAGES, /* a step of a build looks for packages behind a socket, or has ended */
};

struct engine_news {
    enum engine_news_kind kind;
    char id[33]; /* ENGINE_NEWS_SANDBOX, ENGINE_NEWS_PACKAGES */
    int fd;      /* ENGINE_NEWS_PACKAGES: listens; -1: no more. engine_tell() takes it, the listener
                    borrows it */
};

/* What is asked of a backend's images. */
enum image_verb {
    IMAGE_LIST,
    IMAGE_SHOW,
    IMAGE_IMPORT,
    IMAGE_EXPORT,
    IMAGE_PULL,
    IMAGE_PUSH,
    IMAGE_REMOVE,
    IMAGE_PRUNE,
    IMAGE_MOUNTS, /* cache mounts of builds: list, */
    IMAGE_MOUNT_REMOVE,
    IMAGE_MOUNTS_TRIM
};

struct image_ask {
    enum image_verb verb;
    char *name;   /* SHOW, EXPORT, PUSH, REMOVE; IMPORT, PULL: what it is to be called, or NULL;
                     MOUNT_REMOVE: its id */
    char *detail; /* EXPORT: "oci" or "docker"; PULL, PUSH: JSON, may hold credentials
                     (image/transfer/settings.h) */
    char **used;  /* REMOVE, PRUNE: digests of the images that sandboxes are made of */
    uint64_t keep, unused; /* MOUNTS_TRIM: bytes to be kept at most; what was not used for so many
                              seconds goes too, 0: none for that */
    int fd; /* IMPORT: the archive, read to its end; EXPORT: takes it; PULL, PUSH: takes lines of
               JSON that tell how far it is; else -1 */
};

struct engine_ops {
    const char *name;
    const char *default_image;
    bool default_is_fixed;   /* `default_image` needs no `resolve` */
    bool connects_closed;    /* `connect` works while the backend cannot be reached */
    bool removes_running;    /* `remove` of what runs is cheaper than a stop before it */
    const char *strict_hint; /* what to do where ENGINE_CAP_STRICT is missing; NULL: nothing */
    /* Allocates, copies the configuration, touches nothing. exec_root is set. */
    struct engine *(*make)(const struct engine_config *config);
    /* Reaches the backend and finds out what it can do (caps). Called on a worker before the first
     * other call and again for each later one until it has succeeded; never twice at once. */
    int (*open)(struct engine *e, const struct deadline *by, struct err *err);
    void (*close)(struct engine *e); /* of one that may never have been open; NULL is fine */

    /* Whether the spec can be carried out here, as far as that is known without asking. On the
     * loop. NULL: capabilities say it all. */
    int (*check)(const struct engine *e, const struct sandbox_spec *spec, struct err *err);
    /* What the spec's image is at present: *ret is a text that changes with its contents. NULL: the
     * only image is `default_image`. */
    int (*resolve)(struct engine *e, const struct sandbox_spec *spec, const struct deadline *by,
                   char **ret, struct err *err);
    /* *ret is a document in JSON. NULL: the backend's images are not ours to keep. */
    int (*image)(struct engine *e, const struct image_ask *ask, const struct deadline *by,
                 char **ret, struct err *err);

    /* Builds an image (daemon/engine/build.h). *ret is {"id":"sha256:…","names":[…]}. On failure,
     * and when it is told to stop, nothing but what is cached is left. NULL: it has no builder. */
    int (*build)(struct engine *e, const struct build_request *req, struct build *b,
                 const struct deadline *by, char **ret, struct err *err);
    bool
        builds_digest_only; /* it knows contexts that files are left out of (proto/digest-context.h) */

    /* Makes the sandbox's files; idempotent for one id. On failure nothing new is left behind. */
    int (*create)(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err);
    /* Brings it up; ret->supervisor_fd is connected and has sent READY. On failure nothing of the start
     * is left. */
    int (*start)(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                 struct engine_sandbox *ret, struct err *err);
    /* Connects to the supervisor of a sandbox that an earlier daemon started. ERR_NOT_FOUND: none
     * lives. */
    int (*connect)(struct engine *e, const char *id, const struct deadline *by,
                   struct engine_sandbox *ret, struct err *err);
    /* What the backend says of it: state, hash, warnings. ENGINE_SANDBOX_ABSENT is an answer, not an error.
     * NULL: the supervisor's line tells all there is. */
    int (*look)(struct engine *e, const char *id, const struct deadline *by,
                struct engine_sandbox *ret, struct err *err);
    /* Ends whatever is left of a run (processes, cgroups, sockets) after the link has closed or
     * when it hangs; keeps files. */
    int (*cleanup)(struct engine *e, const char *id, const struct deadline *by, struct err *err);
    /* Removes all of it, whatever its state; fine when there is nothing. */
    int (*remove)(struct engine *e, const char *id, const struct deadline *by, struct err *err);
    /* Another sandbox_request.spec_text, of one that is there. NULL: none are kept. */
    int (*note)(struct engine *e, const char *id, const char *spec_text, struct err *err);
    /* Bytes that the sandbox takes on the disk, its journals included. NULL: cannot be told. */
    int (*usage)(struct engine *e, const char *id, const struct deadline *by, uint64_t *ret,
                 struct err *err);
    /* Everything that carries our root id, however broken, and what the configuration calls legacy.
     * On failure *ret may be half filled. */
    int (*list)(struct engine *e, bool specs, const struct deadline *by, struct engine_objects *ret,
                struct err *err);
    /* How many commands run in something without a supervisor. NULL: none ever do. */
    int (*live)(struct engine *e, const struct engine_object *o, const struct deadline *by,
                unsigned *ret, struct err *err);
    /* Ends what runs in a sandbox that is to be removed. False: it may run on, until its removal.
     * NULL: a removal is no dearer while others that are to go still run. */
    bool (*end)(struct engine *e, const char *id, const struct deadline *by);
    /* Removes a legacy object; fine when it is not there. NULL: `list` never shows one. */
    int (*remove_legacy)(struct engine *e, const struct engine_object *o, const struct deadline *by,
                         struct err *err);

    /* Package caches that are more than one sandbox's. NULL: there are none. */
    /* A new shared base in which `tool` has what the archive holds: one folder of that name. Those
     * who run on the old one keep it. On failure it stays the base. */
    int (*cache_publish)(struct engine *e, const char *tool, int tar_fd, const struct deadline *by,
                         struct err *err);
    /* Adds what there is. */
    int (*cache_list)(struct engine *e, const struct deadline *by, struct engine_caches *ret,
                      struct err *err);
    /* Forgets what the base and the shared stores have of a tool; "": of all. */
    int (*cache_drop)(struct engine *e, const char *tool, const struct deadline *by,
                      struct err *err);
};

struct engine_opener;

struct engine {
    const struct engine_ops *ops;
    /* Of the backend. Set by `make`: */
    char *exec_root; /* folder that holds <sandbox id>/<exec id>/ journals; owned */
    /* by `open`; read on the loop only when engine_is_open(): */
    uint32_t caps;        /* enum engine_caps */
    uint32_t cache_modes; /* 1 << enum spec_cache_mode */
    char *about;          /* what the backend is, for people; owned, or NULL */
    /* Of engine.c: */
    unsigned at_once; /* of the configuration */
    struct engine_opener *opener;
};

/* ---- calls for core: all run on the loop, done() is never called before they return ---- */

typedef void (*engine_done_fn)(void *arg, const struct err *err,
                               struct engine_sandbox *sandbox); /* err NULL: success */

/* A backend that is not open yet: the first call that needs it opens it. */
struct engine *engine_new(struct loop *loop, const struct engine_ops *ops,
                          const struct engine_config *config);
/* Opens it now, on this thread. */
int engine_open_now(struct engine *e, struct err *err);
/* Both; nothing is left on failure. */
int engine_open(struct loop *loop, const struct engine_ops *ops, const struct engine_config *config,
                struct engine **ret, struct err *err);
void engine_close(struct engine *e); /* waits for its workers */

bool engine_is_open(const struct engine *e);
/* Why the last try to open it failed; NULL: there was none, or it is open. */
const struct err *engine_trouble(const struct engine *e);
/* Opens it when it is not; box means nothing in the answer. */
void engine_prepare(struct engine *e, engine_done_fn done, void *arg);

/* One listener; told on the loop. */
typedef void (*engine_news_fn)(void *arg, struct engine *e, const struct engine_news *news);
void engine_listen(struct engine *e, engine_news_fn fn, void *arg);
/* For backends, from any thread. */
void engine_tell(struct engine *e, const struct engine_news *news);

/* ERR_UNSUPPORTED when the spec asks for what this engine cannot do here; the engine must be open.
 * The calls below refuse it too; this is for those who must know before they change anything. */
int engine_check_spec(const struct engine *e, const struct sandbox_spec *spec, struct err *err);

void engine_create(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                   void *arg);
void engine_start(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                  void *arg);
/* create then start in one trip to the worker; on failure nothing is left behind. */
void engine_create_start(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                         void *arg);
void engine_connect(struct engine *e, const char *id, engine_done_fn done, void *arg);
/* Unsupported without `look`. */
void engine_look(struct engine *e, const char *id, engine_done_fn done, void *arg);
/* The digest of an image that needs no asking: the only one of an engine without `resolve`, or its
 * default; else NULL. */
const char *engine_fixed_digest(const struct engine *e, const struct sandbox_spec *spec);
/* Of spec->image, or the engine's default image when that is NULL. */
typedef void (*engine_digest_fn)(void *arg, const struct err *err, const char *digest);
void engine_resolve(struct engine *e, const struct sandbox_spec *spec, engine_digest_fn done,
                    void *arg);
/* Takes ask->fd; copies the rest. json: the answer, borrowed. */
typedef void (*engine_image_fn)(void *arg, const struct err *err, const char *json);
void engine_image(struct engine *e, const struct image_ask *ask, engine_image_fn done, void *arg);
void engine_cleanup(struct engine *e, const char *id, engine_done_fn done, void *arg);
void engine_remove(struct engine *e, const char *id, engine_done_fn done, void *arg);
/* Many are removed sooner when all of them have been ended before; where that is not so there is no
 * engine_end(). It never fails: one that runs on is ended by its removal. */
bool engine_ends_first(const struct engine *e);
void engine_end(struct engine *e, const char *id, engine_done_fn done, void *arg);
/* Deletes the journals of execs that have ended; fine when they are not there. */
void engine_forget_execs(struct engine *e, const char *id, char *const *execs, engine_done_fn done,
                         void *arg);
/* What `list` tells of it from now on, in place of sandbox_request.spec_text. */
void engine_note(struct engine *e, const char *id, const char *spec_text, engine_done_fn done,
                 void *arg);
/* `specs`: with what they were made from. */
typedef void (*engine_list_fn)(void *arg, const struct err *err, const struct engine_objects *list);
void engine_list(struct engine *e, bool specs, engine_list_fn done, void *arg);
/* Something that nobody needs, unless commands run in it: ERR_CONFLICT. One that has been ended is
 * not asked for them again. */
enum discard { DISCARD_ASK, DISCARD_END, DISCARD_REMOVE, DISCARD_ENDED };
void engine_discard(struct engine *e, const struct engine_object *o, enum discard how,
                    engine_done_fn done, void *arg);
/* Takes tar_fd; box means nothing in the answer. */
void engine_cache_publish(struct engine *e, const char *tool, int tar_fd, engine_done_fn done,
                          void *arg);
void engine_cache_drop(struct engine *e, const char *tool, engine_done_fn done, void *arg);
typedef void (*engine_caches_fn)(void *arg, const struct err *err,
                                 const struct engine_caches *caches /* borrowed */);
void engine_cache_list(struct engine *e, engine_caches_fn done, void *arg);
void engine_caches_done(struct engine_caches *c);
/* For backends: one more; the strings are copied. */
struct engine_cache *engine_caches_add(struct engine_caches *c, enum engine_cache_kind kind,
                                       const char *tool, const char *owner);

typedef void (*engine_usage_fn)(void *arg, const struct err *err, uint64_t bytes);
void engine_usage(struct engine *e, const char *id, engine_usage_fn done, void *arg);

/* ---- the supervisor's line (supervisor-conn.c) ---- */

enum { EXEC_ID_LEN = 16 };

struct exec_secret {
    char *name, *value;
    size_t len;
    /* Of steps of a build alone: the file it is to be, and whose (proto/handover.h). */
    char *target;
    bool has_owner, has_mode;
    uint32_t uid, gid, mode;
};

struct exec_request {
    char id[EXEC_ID_LEN + 1];
    char **argv, **env;
    char *cwd, *user; /* NULL: the sandbox's */
    bool want_stdin, tty, attach;
    uint16_t rows, cols;
    uint64_t timeout, idle_timeout; /* usec, 0: none */
    char *input;                    /* what its stdin is, given by the supervisor; NULL: nothing */
    size_t input_len;
    struct exec_secret *secrets;
    size_t n_secrets;
    bool session,
        concurrent; /* core's own: an agent's turn, beside others (daemon/core/session/session.h) */
};

/* Forgets what must not be found in our memory once it was sent: environment, input, secrets. */
void exec_request_wipe(struct exec_request *r);
void exec_request_done(struct exec_request *r);

struct supervisor_conn;

/* Called on the loop, never from inside an engine_link_* call. `arg` is the one of
 * supervisor_conn_open(). */
struct supervisor_events {
    void (*started)(void *arg, const char *exec, int pid,
                    int stdin_fd /* owned by the callee, or -1 */);
    void (*start_failed)(
        void *arg, const char *exec,
        const struct err *err); /* an end record was written too: `ended` follows */
    void (*output)(void *arg, const char *exec, uint64_t stdout_end, uint64_t stderr_end);
    void (*ended)(void *arg, const char *exec, const struct end_record *rec);
    void (*closed)(void *arg); /* the supervisor has gone: last call; the link is freed after it */
    /* The sandbox goes down: nothing was begun or recorded, and nothing follows but `closed`. NULL:
     * told by start_failed. */
    void (*refused)(void *arg, const char *exec, const struct err *err);
};

/* Takes the fd. */
struct supervisor_conn *supervisor_conn_open(struct loop *loop, int fd,
                                             const struct supervisor_events *events, void *arg);
void supervisor_conn_close(struct supervisor_conn *l); /* no more calls after this; NULL is fine */

typedef void (*supervisor_result_fn)(void *arg, const struct err *err,
                                     int fd /* owned by the callee, or -1 */);

void supervisor_conn_exec(struct supervisor_conn *l, const struct exec_request *req);
void supervisor_conn_attach(struct supervisor_conn *l, const char *exec, uint64_t stdout_ack,
                            uint64_t stderr_ack, supervisor_result_fn done,
                            void *arg); /* fd: pty master */
void supervisor_conn_detach(struct supervisor_conn *l, const char *exec);
void supervisor_conn_ack(struct supervisor_conn *l, const char *exec, uint64_t stdout_ack,
                         uint64_t stderr_ack);
void supervisor_conn_signal(struct supervisor_conn *l, const char *exec, int sig,
                            supervisor_result_fn done, void *arg);
void supervisor_conn_kill(struct supervisor_conn *l, const char *exec, enum end_cause cause,
                          supervisor_result_fn done, void *arg);
void supervisor_conn_resize(struct supervisor_conn *l, const char *exec, uint16_t rows,
                            uint16_t cols);
void supervisor_conn_stdin_close(struct supervisor_conn *l, const char *exec);
/* `for_good`: the sandbox is removed next. */
void supervisor_conn_stop(struct supervisor_conn *l, uint64_t grace_usec, bool for_good,
                          supervisor_result_fn done, void *arg);
void supervisor_conn_pause(struct supervisor_conn *l, bool on, supervisor_result_fn done,
                           void *arg);
typedef void (*supervisor_stats_fn)(void *arg, const struct err *err,
                                    char **stats /* "name=value", borrowed */);
void supervisor_conn_stats(struct supervisor_conn *l, supervisor_stats_fn done, void *arg);
void supervisor_conn_dial(struct supervisor_conn *l, uint16_t port, supervisor_result_fn done,
                          void *arg); /* fd: connected socket */
/* fd: the listening socket behind which the sandbox looks for its package registry. */
void supervisor_conn_listener(struct supervisor_conn *l, supervisor_result_fn done, void *arg);
/* Streams a tar out of (into=false) or into the sandbox through `tar_fd` (taken). stats: entries,
 * bytes, skipped. */
void supervisor_conn_copy(struct supervisor_conn *l, const char *path, bool into, int tar_fd,
                          supervisor_stats_fn done, void *arg);

/* ---- backends ---- */

extern const struct engine_ops engine_native_ops;
extern const struct engine_ops engine_docker_ops;
extern const struct engine_ops engine_fake_ops;
