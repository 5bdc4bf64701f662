/*
 * Dispatch. A call of core becomes a struct engine_call: a copy of its input, a deadline, and room
 * for the answer. It is checked against the engine's capabilities, runs on the engine's own pool
 * and is answered on the loop. A call that fails before it reaches a worker is answered on the
 * loop's next turn, so that done() never runs inside the call that registered it.
 *
 * The deadline counts from the call, not from the worker: a queue that does not move is a timeout
 * too.
 */
#include "daemon/engine/engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/doctor.h"
#include "daemon/engine/engine-caches.h"
#include "daemon/engine/engine-check.h"
#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine-images.h"
#include "daemon/engine/engine-objects.h"
#include "daemon/engine/opener.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "lib/loop/pool.h"
#include "lib/os/rmtree.h"

/* A start waits for its supervisor, so workers mostly sleep: there are more of them than cores. */
enum {
    ENGINE_WORKERS = 8,
    ENGINE_QUEUE_MAX = 4096,
    ENGINE_AT_ONCE = 4,
    ENGINE_BUILDS = 2,
    ENGINE_BUILDS_MAX = 64
};

struct engine_call;
typedef int (*call_fn)(struct engine_call *c);

enum call_flags {
    CALL_ID = 1 << 0,      /* is about one sandbox */
    CALL_SPEC = 1 << 1,    /* carries out a spec, which must be possible here */
    CALL_OFFLINE = 1 << 2, /* needs no open backend */
};

/* Which members of struct call_answer and of union call_done count. */
enum call_answer_kind {
    ANSWER_SANDBOX,
    ANSWER_OBJECTS,
    ANSWER_USAGE,
    ANSWER_DIGEST,
    ANSWER_CACHES,
    ANSWER_JSON,
};

struct call_answer {
    enum call_answer_kind kind;
    union {
        struct engine_sandbox sandbox;
        struct engine_objects objects;
        struct engine_usage usage;
        char *digest; /* owned */
        struct engine_caches caches;
        char *json; /* owned */
    };
};

union call_done {
    engine_done_fn sandbox;
    engine_list_fn objects;
    engine_usage_fn usage;
    engine_digest_fn digest;
    engine_caches_fn caches;
    engine_json_fn json;
};

struct call_type {
    const char *verb;
    uint64_t timeout; /* usec */
    call_fn run;      /* on a worker */
    enum call_answer_kind answer;
    unsigned flags;
};

struct engine_call {
    struct engine *engine;
    const struct call_type *type;
    struct deadline by;
    union call_done done;
    void *arg;

    /* Input. Members that the type does not use stay empty. */
    struct sandbox_request req;  /* only its id is set for calls without a spec */
    bool specs;                  /* list */
    bool wanted;                 /* doctor */
    enum discard how;            /* discard */
    struct engine_object object; /* discard: owned, but for `spec` */
    char **execs;                /* forget */
    char *tool;                  /* publish, drop */
    int tar_fd;                  /* publish: owned; else -1 */
    struct image_op image;
    struct cache_mount_op mounts;

    /* Output. */
    bool failed;
    bool asked, unopened; /* the backend was needed; and could not be opened */
    struct err err;
    struct call_answer answer;
};

static int engine_run_create(struct engine_call *c)
{
    return c->engine->ops->create(c->engine, &c->req, &c->by, &c->err);
}

static int engine_run_start(struct engine_call *c)
{
    uint32_t unenforced = c->answer.sandbox.unenforced;
    int r;

    r = c->engine->ops->start(c->engine, &c->req, &c->by, &c->answer.sandbox, &c->err);
    c->answer.sandbox.unenforced |= unenforced; /* found here, and by the backend */
    return r;
}

static int engine_run_verify(struct engine_call *c)
{
    const struct engine_ops *ops = c->engine->ops;

    return ops->verify ? ops->verify(c->engine, &c->req, &c->by, &c->err) : 0;
}

static int engine_run_settle(struct engine_call *c)
{
    return c->engine->ops->settle(c->engine, &c->req, &c->by, &c->answer.sandbox, &c->err);
}

static int engine_run_cleanup(struct engine_call *c)
{
    return c->engine->ops->cleanup(c->engine, c->req.id, &c->by, &c->err);
}

static int engine_run_remove(struct engine_call *c)
{
    return c->engine->ops->remove(c->engine, c->req.id, &c->by, &c->err);
}

static int engine_run_end(struct engine_call *c)
{
    (void)c->engine->ops->end(c->engine, c->req.id, &c->by);
    return 0;
}

static int engine_run_connect(struct engine_call *c)
{
    return c->engine->ops->connect(c->engine, c->req.id, &c->by, &c->answer.sandbox, &c->err);
}

static int engine_run_look(struct engine_call *c)
{
    if (!c->engine->ops->look)
        return err_set(&c->err, ERR_UNSUPPORTED, "engine '%s' cannot inspect sandboxes",
                       c->engine->ops->name);
    return c->engine->ops->look(c->engine, c->req.id, &c->by, &c->answer.sandbox, &c->err);
}

static int engine_run_prepare(struct engine_call *c)
{
    (void)c; /* the backend was opened before */
    return 0;
}

#define DIGEST_OF_HOST "host-1"

const char *engine_fixed_digest(const struct engine *e, const struct sandbox_spec *spec)
{
    bool is_default = !spec->image || STREQ(spec->image, e->ops->default_image);

    return !e->ops->resolve || (e->ops->default_is_fixed && is_default) ? DIGEST_OF_HOST : NULL;
}

static int engine_run_resolve(struct engine_call *c)
{
    const char *fixed = engine_fixed_digest(c->engine, &c->req.spec);

    if (!fixed)
        return c->engine->ops->resolve(c->engine, &c->req.spec, &c->by, &c->answer.digest, &c->err);
    c->answer.digest = xstrdup(fixed);
    return 0;
}

static int engine_run_image(struct engine_call *c)
{
    const struct engine_ops *ops = c->engine->ops;

    if (!ops->image) {
        err_set(&c->err, ERR_UNSUPPORTED, "engine '%s' manages its images itself", ops->name);
        return err_hint(&c->err, "Use its own commands, such as `docker image ls`.");
    }
    return ops->image(c->engine, &c->image, &c->by, &c->answer.json, &c->err);
}

static int engine_run_cache_mounts(struct engine_call *c)
{
    const struct engine_ops *ops = c->engine->ops;

    if (!ops->cache_mounts)
        return err_set(&c->err, ERR_UNSUPPORTED, "engine '%s' manages its cache mounts itself",
                       ops->name);
    return ops->cache_mounts(c->engine, &c->mounts, &c->by, &c->answer.json, &c->err);
}

static int engine_run_forget(struct engine_call *c)
{
    for (char **x = c->execs; x && *x; x++) {
        _cleanup_free_ char *path = xasprintf("%s/%s/%s", c->engine->exec_root, c->req.id, *x);

        if (rmtree(AT_FDCWD, path, &c->err) < 0)
            return err_wrap(&c->err, "delete the output of exec '%s'", *x);
    }
    return 0;
}

static int engine_run_list(struct engine_call *c)
{
    return c->engine->ops->list(c->engine, c->specs, &c->by, &c->answer.objects, &c->err);
}

/* Counts the execs that have a folder without an end record. They live as long as their
 * supervisor. */
static unsigned engine_open_execs(const struct engine *e, const char *id)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", e->exec_root, id);
    _cleanup_closedir_ DIR *d = opendir(path);
    unsigned n = 0;

    for (const struct dirent *x; d && (x = readdir(d));) {
        char end[sizeof(x->d_name) + 8];

        snprintf(end, sizeof(end), "%s/end", x->d_name);
        n += x->d_name[0] != '.' && faccessat(dirfd(d), end, F_OK, 0) < 0 && errno == ENOENT;
    }
    return n;
}

static int engine_count_live(struct engine_call *c, unsigned *ret)
{
    struct engine_sandbox sandbox = {.supervisor_fd = -1};
    const struct engine_object *o = &c->object;
    _cleanup_err_ struct err why = ERR_INIT;
    int r = -ERR_NOT_FOUND;

    if (o->kind == OBJECT_SANDBOX)
        r = c->engine->ops->connect(c->engine, o->id, &c->by, &sandbox, &why);
    if (r < 0 && r != -ERR_NOT_FOUND) /* its supervisor may live all the same */
        return err_move(&c->err, &why);
    if (r != -ERR_NOT_FOUND) {
        fd_close(sandbox.supervisor_fd);
        *ret = engine_open_execs(c->engine, o->id);
        return 0;
    }
    return c->engine->ops->live ? c->engine->ops->live(c->engine, o, &c->by, ret, &c->err) : 0;
}

static int engine_run_discard(struct engine_call *c)
{
    unsigned live = 0;
    int r = c->how == DISCARD_ENDED ? 0 : engine_count_live(c, &live);

    if (r < 0)
        return r;
    if (live)
        return err_set(&c->err, ERR_CONFLICT, "%u command(s) are running", live);
    if (c->how == DISCARD_END && !c->engine->ops->end(c->engine, c->object.id, &c->by))
        return err_set(&c->err, ERR_CONFLICT, "its processes are still running");
    if (c->how < DISCARD_REMOVE)
        return 0;
    if (c->object.kind == OBJECT_SANDBOX)
        return c->engine->ops->remove(c->engine, c->object.id, &c->by, &c->err);
    return c->engine->ops->remove_legacy(c->engine, &c->object, &c->by, &c->err);
}

static int engine_run_note(struct engine_call *c)
{
    const struct engine_ops *ops = c->engine->ops;

    return ops->note ? ops->note(c->engine, c->req.id, c->req.spec_text, &c->err) : 0;
}

static int engine_run_usage(struct engine_call *c)
{
    if (!c->engine->ops->usage)
        return err_set(&c->err, ERR_UNSUPPORTED,
                       "engine '%s' cannot measure the disk usage of sandboxes",
                       c->engine->ops->name);
    return c->engine->ops->usage(c->engine, c->req.id, &c->by, &c->answer.usage, &c->err);
}

static int engine_no_base(struct engine_call *c)
{
    return err_set(&c->err, ERR_UNSUPPORTED, "engine '%s' has no shared package caches",
                   c->engine->ops->name);
}

static int engine_run_publish(struct engine_call *c)
{
    const struct engine_ops *ops = c->engine->ops;

    return ops->cache_publish ? ops->cache_publish(c->engine, c->tool, c->tar_fd, &c->by, &c->err)
                              : engine_no_base(c);
}

static int engine_run_drop(struct engine_call *c)
{
    const struct engine_ops *ops = c->engine->ops;

    return ops->cache_drop ? ops->cache_drop(c->engine, c->tool, &c->by, &c->err)
                           : engine_no_base(c);
}

static int engine_run_caches(struct engine_call *c)
{
    const struct engine_ops *ops = c->engine->ops;

    return ops->cache_list ? ops->cache_list(c->engine, &c->by, &c->answer.caches, &c->err) : 0;
}

static int engine_run_doctor(struct engine_call *c)
{
    const struct engine_ops *ops = c->engine->ops;
    struct doctor_report report = DOCTOR_REPORT_INIT;
    _cleanup_json_ json_t *lines = NULL;

    if (ops->look_again)
        c->engine->caps = ops->look_again(c->engine);
    if (ops->doctor)
        ops->doctor(c->engine, c->wanted, &report);
    lines = doctor_report_to_json(&report);
    c->answer.json = json_to_text(lines, false);
    doctor_report_done(&report);
    return 0;
}

#define UNDO_TIMEOUT (30 * USEC_PER_SEC)

static int engine_run_create_start(struct engine_call *c)
{
    _cleanup_err_ struct err undo = ERR_INIT;
    struct deadline by;
    int r;

    r = engine_run_create(c);
    if (r < 0)
        return r;
    r = engine_run_start(c);
    if (r >= 0)
        return r;
    /* Its own deadline: the call's may have passed. */
    by = deadline_in(UNDO_TIMEOUT);
    if (c->engine->ops->remove(c->engine, c->req.id, &by, &undo) < 0)
        log_debug("sandbox %s: cannot undo a failed start: %s", c->req.id, undo.msg);
    return r;
}

/* clang-format off */
static const struct call_type call_create       = {"create",   60 * USEC_PER_SEC, engine_run_create,       ANSWER_SANDBOX, CALL_ID | CALL_SPEC};
static const struct call_type call_start        = {"start",    30 * USEC_PER_SEC, engine_run_start,        ANSWER_SANDBOX, CALL_ID | CALL_SPEC};
static const struct call_type call_create_start = {"start",    60 * USEC_PER_SEC, engine_run_create_start, ANSWER_SANDBOX, CALL_ID | CALL_SPEC};
static const struct call_type call_verify       = {"check",    30 * USEC_PER_SEC, engine_run_verify,       ANSWER_SANDBOX, CALL_ID | CALL_SPEC};
static const struct call_type call_settle       = {"settle",   60 * USEC_PER_SEC, engine_run_settle,       ANSWER_SANDBOX, CALL_ID};
static const struct call_type call_connect      = {"connect",   5 * USEC_PER_SEC, engine_run_connect,      ANSWER_SANDBOX, CALL_ID};
static const struct call_type call_look         = {"inspect",  10 * USEC_PER_SEC, engine_run_look,         ANSWER_SANDBOX, CALL_ID};
static const struct call_type call_cleanup      = {"clean up", 30 * USEC_PER_SEC, engine_run_cleanup,      ANSWER_SANDBOX, CALL_ID};
static const struct call_type call_remove       = {"remove",  120 * USEC_PER_SEC, engine_run_remove,       ANSWER_SANDBOX, CALL_ID};
static const struct call_type call_end          = {"end",      60 * USEC_PER_SEC, engine_run_end,          ANSWER_SANDBOX, CALL_ID};
static const struct call_type call_forget       = {"forget",   60 * USEC_PER_SEC, engine_run_forget,       ANSWER_SANDBOX, CALL_ID | CALL_OFFLINE};
static const struct call_type call_note         = {"note",     10 * USEC_PER_SEC, engine_run_note,         ANSWER_SANDBOX, CALL_ID};
static const struct call_type call_usage        = {"measure",  60 * USEC_PER_SEC, engine_run_usage,        ANSWER_USAGE,   CALL_ID};
static const struct call_type call_list         = {"list",     30 * USEC_PER_SEC, engine_run_list,         ANSWER_OBJECTS, 0};
static const struct call_type call_discard      = {"discard", 120 * USEC_PER_SEC, engine_run_discard,      ANSWER_SANDBOX, 0};
static const struct call_type call_prepare      = {"open",     30 * USEC_PER_SEC, engine_run_prepare,      ANSWER_SANDBOX, 0};
static const struct call_type call_resolve      = {"resolve",  30 * USEC_PER_SEC, engine_run_resolve,      ANSWER_DIGEST,  0};
static const struct call_type call_publish      = {"publish", 600 * USEC_PER_SEC, engine_run_publish,      ANSWER_SANDBOX, 0};
static const struct call_type call_drop         = {"drop",    600 * USEC_PER_SEC, engine_run_drop,         ANSWER_SANDBOX, 0};
static const struct call_type call_caches       = {"measure",  60 * USEC_PER_SEC, engine_run_caches,       ANSWER_CACHES,  0};
static const struct call_type call_doctor       = {"examine",  30 * USEC_PER_SEC, engine_run_doctor,       ANSWER_JSON,    CALL_OFFLINE};
static const struct call_type call_image        = {"ask",    3600 * USEC_PER_SEC, engine_run_image,        ANSWER_JSON,    0};
static const struct call_type call_cache_mounts = {"ask",    3600 * USEC_PER_SEC, engine_run_cache_mounts, ANSWER_JSON,    0};
/* clang-format on */

/* On the worker: the capabilities are known once the backend is open. */
static int engine_call_check_spec(struct engine_call *c)
{
    if (!(c->type->flags & CALL_SPEC))
        return 0;
    c->answer.sandbox.unenforced = engine_check_unenforced(c->engine, &c->req.spec);
    return engine_check_spec(c->engine, &c->req.spec, &c->err);
}

static void engine_call_work(void *arg)
{
    struct engine_call *c = arg;

    if (deadline_passed(&c->by)) {
        c->failed = true;
        err_set(&c->err, ERR_TIMEOUT, "engine '%s': no worker was free in time",
                c->engine->ops->name);
        if (*c->req.id)
            err_wrap(&c->err, "%s sandbox '%s'", c->type->verb, c->req.id);
        return;
    }
    c->asked = !(c->type->flags & CALL_OFFLINE) &&
               !(c->type == &call_connect && c->engine->ops->connects_closed);
    c->unopened = c->asked && opener_open(c->engine, &c->by, &c->err) < 0;
    c->failed = c->unopened || engine_call_check_spec(c) < 0 || c->type->run(c) < 0;
}

static void engine_call_report(struct engine_call *c, const struct err *err)
{
    struct call_answer *a = &c->answer;

    switch (a->kind) {
    case ANSWER_SANDBOX:
        c->done.sandbox(c->arg, err, &a->sandbox);
        strv_free(a->sandbox.warnings);
        return;
    case ANSWER_OBJECTS:
        c->done.objects(c->arg, err, &a->objects);
        engine_objects_done(&a->objects);
        return;
    case ANSWER_USAGE:
        c->done.usage(c->arg, err, &a->usage);
        return;
    case ANSWER_DIGEST:
        c->done.digest(c->arg, err, a->digest);
        free(a->digest);
        return;
    case ANSWER_CACHES:
        c->done.caches(c->arg, err, &a->caches);
        engine_caches_done(&a->caches);
        return;
    case ANSWER_JSON:
        c->done.json(c->arg, err, a->json);
        free(a->json);
        return;
    }
}

static void engine_call_done(void *arg)
{
    struct engine_call *c = arg;
    const struct err *err = c->failed ? &c->err : NULL;

    if (c->asked)
        opener_settle(c->engine, c->unopened ? err : NULL);
    engine_call_report(c, err);
    err_done(&c->err);
    sandbox_request_done(&c->req);
    free(c->object.name);
    free(c->object.ref);
    strv_free(c->execs);
    free(c->tool);
    fd_close(c->tar_fd);
    image_op_done(&c->image);
    cache_mount_op_done(&c->mounts);
    free(c);
}

static int engine_call_check_id(struct engine_call *c)
{
    if (!(c->type->flags & CALL_ID))
        return 0;
    if (!sandbox_id_is_valid(c->req.id))
        return err_set(&c->err, ERR_INVALID, "sandbox id '%s' is not 16 hex digits", c->req.id);
    if (c->answer.kind == ANSWER_SANDBOX)
        snprintf(c->answer.sandbox.id, sizeof(c->answer.sandbox.id), "%s", c->req.id);
    return 0;
}

static void engine_call_submit(struct engine_call *c)
{
    const struct engine_opener *f = c->engine->opener;

    c->by = deadline_in(c->type->timeout);
    if (engine_call_check_id(c) >= 0 &&
        pool_submit(f->pool, engine_call_work, engine_call_done, c, &c->err) >= 0)
        return;
    c->failed = true;
    loop_defer(f->loop, engine_call_done, c);
}

static struct engine_call *engine_call_new(struct engine *e, const struct call_type *type,
                                           void *arg)
{
    struct engine_call *c = xnew0(struct engine_call);

    c->engine = e;
    c->type = type;
    c->arg = arg;
    c->tar_fd = -1;
    c->answer.kind = type->answer;
    if (type->answer == ANSWER_SANDBOX)
        c->answer.sandbox.supervisor_fd = -1;
    return c;
}

static void engine_submit_request(struct engine *e, const struct call_type *type,
                                  const struct sandbox_request *req, engine_done_fn done, void *arg)
{
    struct engine_call *c = engine_call_new(e, type, arg);

    c->done.sandbox = done;
    sandbox_request_copy(&c->req, req);
    engine_call_submit(c);
}

static void engine_submit_id(struct engine *e, const struct call_type *type, const char *id,
                             engine_done_fn done, void *arg)
{
    struct engine_call *c = engine_call_new(e, type, arg);

    c->done.sandbox = done;
    snprintf(c->req.id, sizeof(c->req.id), "%s", id);
    engine_call_submit(c);
}

void engine_create(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                   void *arg)
{
    engine_submit_request(e, &call_create, req, done, arg);
}

void engine_start(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                  void *arg)
{
    engine_submit_request(e, &call_start, req, done, arg);
}

void engine_create_start(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                         void *arg)
{
    engine_submit_request(e, &call_create_start, req, done, arg);
}

void engine_verify(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                   void *arg)
{
    engine_submit_request(e, &call_verify, req, done, arg);
}

void engine_settle(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                   void *arg)
{
    engine_submit_request(e, &call_settle, req, done, arg);
}

void engine_connect(struct engine *e, const char *id, engine_done_fn done, void *arg)
{
    engine_submit_id(e, &call_connect, id, done, arg);
}

void engine_cleanup(struct engine *e, const char *id, engine_done_fn done, void *arg)
{
    engine_submit_id(e, &call_cleanup, id, done, arg);
}

bool engine_ends_first(const struct engine *e)
{
    return e->ops->end;
}

void engine_end(struct engine *e, const char *id, engine_done_fn done, void *arg)
{
    engine_submit_id(e, &call_end, id, done, arg);
}

void engine_remove(struct engine *e, const char *id, engine_done_fn done, void *arg)
{
    engine_submit_id(e, &call_remove, id, done, arg);
}

void engine_forget_execs(struct engine *e, const char *id, char *const *execs, engine_done_fn done,
                         void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_forget, arg);

    c->done.sandbox = done;
    c->execs = strv_copy(execs);
    snprintf(c->req.id, sizeof(c->req.id), "%s", id);
    engine_call_submit(c);
}

void engine_list(struct engine *e, bool specs, engine_list_fn done, void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_list, arg);

    c->done.objects = done;
    c->specs = specs;
    engine_call_submit(c);
}

void engine_discard(struct engine *e, const struct engine_object *o, enum discard how,
                    engine_done_fn done, void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_discard, arg);

    c->done.sandbox = done;
    c->how = how;
    c->object = *o;
    c->object.name = o->name ? xstrdup(o->name) : NULL;
    c->object.ref = o->ref ? xstrdup(o->ref) : NULL;
    c->object.spec = NULL;
    engine_call_submit(c);
}

void engine_note(struct engine *e, const char *id, const char *spec_text, engine_done_fn done,
                 void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_note, arg);

    c->done.sandbox = done;
    c->req.spec_text = xstrdup(spec_text);
    snprintf(c->req.id, sizeof(c->req.id), "%s", id);
    engine_call_submit(c);
}

void engine_usage(struct engine *e, const char *id, engine_usage_fn done, void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_usage, arg);

    c->done.usage = done;
    snprintf(c->req.id, sizeof(c->req.id), "%s", id);
    engine_call_submit(c);
}

void engine_cache_publish(struct engine *e, const char *tool, int tar_fd, engine_done_fn done,
                          void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_publish, arg);

    c->done.sandbox = done;
    c->tool = xstrdup(tool);
    c->tar_fd = tar_fd;
    engine_call_submit(c);
}

void engine_cache_drop(struct engine *e, const char *tool, engine_done_fn done, void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_drop, arg);

    c->done.sandbox = done;
    c->tool = xstrdup(tool);
    engine_call_submit(c);
}

void engine_cache_list(struct engine *e, engine_caches_fn done, void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_caches, arg);

    c->done.caches = done;
    engine_call_submit(c);
}

void engine_look(struct engine *e, const char *id, engine_done_fn done, void *arg)
{
    engine_submit_id(e, &call_look, id, done, arg);
}

void engine_prepare(struct engine *e, engine_done_fn done, void *arg)
{
    engine_submit_id(e, &call_prepare, "", done, arg);
}

void engine_resolve(struct engine *e, const struct sandbox_spec *spec, engine_digest_fn done,
                    void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_resolve, arg);

    c->done.digest = done;
    sandbox_spec_copy(&c->req.spec, spec);
    engine_call_submit(c);
}

void engine_image(struct engine *e, const struct image_op *req, engine_json_fn done, void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_image, arg);

    c->done.json = done;
    image_op_copy(&c->image, req);
    engine_call_submit(c);
}

void engine_cache_mounts(struct engine *e, const struct cache_mount_op *req, engine_json_fn done,
                         void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_cache_mounts, arg);

    c->done.json = done;
    cache_mount_op_copy(&c->mounts, req);
    engine_call_submit(c);
}

void engine_doctor(struct engine *e, bool wanted, engine_json_fn done, void *arg)
{
    struct engine_call *c = engine_call_new(e, &call_doctor, arg);

    c->done.json = done;
    c->wanted = wanted;
    engine_call_submit(c);
}

struct engine *engine_new(struct loop *loop, const struct engine_ops *ops,
                          const struct engine_config *config)
{
    struct engine *e = ops->make(config);

    e->ops = ops;
    e->at_once = config->at_once ? config->at_once : ENGINE_AT_ONCE;
    e->opener = opener_new(e, loop, pool_new(loop, ops->name, ENGINE_WORKERS, ENGINE_QUEUE_MAX));
    e->opener->builds = pool_new(loop, "build", ENGINE_BUILDS, ENGINE_BUILDS_MAX);
    return e;
}

int engine_open_now(struct engine *e, struct err *err)
{
    struct deadline by = deadline_in(call_prepare.timeout);
    _cleanup_err_ struct err why = ERR_INIT;
    int r = opener_open(e, &by, &why);

    opener_settle(e, r < 0 ? &why : NULL);
    return r < 0 ? err_move(err, &why) : 0;
}

int engine_open(struct loop *loop, const struct engine_ops *ops, const struct engine_config *config,
                struct engine **ret, struct err *err)
{
    struct engine *e = engine_new(loop, ops, config);
    int r = engine_open_now(e, err);

    if (r < 0)
        engine_close(e);
    else
        *ret = e;
    return r;
}

/* The backend's own threads may send news until it is closed, so the opener is freed last. */
void engine_close(struct engine *e)
{
    struct engine_opener *f;

    if (!e)
        return;
    f = e->opener;
    pool_free(TAKE_PTR(f->builds));
    pool_free(TAKE_PTR(f->pool));
    e->ops->close(e);
    opener_free(f);
}
