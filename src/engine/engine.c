/*
 * Dispatch. A call of core becomes a struct call (a copy of its input, a deadline, room for the
 * result), is checked against the engine's capabilities, runs on the engine's own pool and is
 * answered on the loop. A call that fails before it reaches a worker is answered from the loop's
 * next turn, so that done() never runs inside the call that registered it.
 *
 * The deadline counts from the call, not from the worker: a queue that does not move is a timeout
 * too.
 */
#include "engine/engine.h"

#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/strv.h"
#include "base/xalloc.h"
#include "engine/spec.h"
#include "net/loop.h"
#include "net/pool.h"
#include "os/rmtree.h"

/* A start waits for its supervisor, so workers mostly sleep: more of them than cores pay. */
enum { ENGINE_WORKERS = 8, ENGINE_QUEUE_MAX = 4096 };

struct call;
typedef int (*call_fn)(struct call *c);

struct call_type {
    const char *verb;
    uint64_t timeout; /* usec */
    call_fn run;      /* on a worker */
    bool has_request; /* takes a whole box_request, not only an id */
};

struct call {
    struct engine *engine;
    const struct call_type *type;
    struct box_request req; /* only its id is set for calls that take an id */
    struct deadline by;
    engine_done_fn done;
    engine_list_fn list_done;   /* instead of done */
    engine_usage_fn usage_done; /* the same */
    void *arg;

    bool failed;
    struct err err;
    struct engine_box box;
    char **ids;
    uint64_t usage;
};

static int run_create(struct call *c)
{
    return c->engine->ops->create(c->engine, &c->req, &c->by, &c->err);
}

static int run_start(struct call *c)
{
    uint32_t unenforced = c->box.unenforced;
    int r;

    r = c->engine->ops->start(c->engine, &c->req, &c->by, &c->box, &c->err);
    c->box.unenforced |= unenforced; /* what we found, and what the backend found */
    return r;
}

static int run_cleanup(struct call *c)
{
    return c->engine->ops->cleanup(c->engine, c->req.id, &c->by, &c->err);
}

static int run_remove(struct call *c)
{
    return c->engine->ops->remove(c->engine, c->req.id, &c->by, &c->err);
}

static int run_connect(struct call *c)
{
    return c->engine->ops->connect(c->engine, c->req.id, &c->by, &c->box, &c->err);
}

static int run_forget(struct call *c)
{
    for (char **x = c->ids; x && *x; x++) {
        _cleanup_free_ char *path = xasprintf("%s/%s/%s", c->engine->exec_root, c->req.id, *x);

        if (rmtree(AT_FDCWD, path, &c->err) < 0)
            return err_wrap(&c->err, "delete the output of exec '%s'", *x);
    }
    return 0;
}

static int run_list(struct call *c)
{
    return c->engine->ops->list(c->engine, &c->by, &c->ids, &c->err);
}

static int run_usage(struct call *c)
{
    if (!c->engine->ops->usage)
        return err_set(&c->err, ERR_UNSUPPORTED, "engine '%s' does not measure sandboxes",
                       c->engine->ops->name);
    return c->engine->ops->usage(c->engine, c->req.id, &c->by, &c->usage, &c->err);
}

#define UNDO_TIMEOUT (30 * USEC_PER_SEC)

static int run_create_start(struct call *c)
{
    _cleanup_err_ struct err undo = ERR_INIT;
    struct deadline by;
    int r;

    r = run_create(c);
    if (r < 0)
        return r;
    r = run_start(c);
    if (r >= 0)
        return r;
    /* Its own deadline: the call's may be the very thing that has passed. */
    by = deadline_in(UNDO_TIMEOUT);
    if (c->engine->ops->remove(c->engine, c->req.id, &by, &undo) < 0)
        log_debug("sandbox %s: undo of a failed start: %s", c->req.id, undo.msg);
    return r;
}

/* clang-format off */
static const struct call_type call_create       = {"create",   60 * USEC_PER_SEC, run_create,       true};
static const struct call_type call_start        = {"start",    30 * USEC_PER_SEC, run_start,        true};
static const struct call_type call_create_start = {"start",    60 * USEC_PER_SEC, run_create_start, true};
static const struct call_type call_connect      = {"connect",   5 * USEC_PER_SEC, run_connect,      false};
static const struct call_type call_cleanup      = {"clean up", 30 * USEC_PER_SEC, run_cleanup,      false};
static const struct call_type call_remove       = {"remove",  120 * USEC_PER_SEC, run_remove,       false};
static const struct call_type call_forget       = {"forget",   60 * USEC_PER_SEC, run_forget,       false};
static const struct call_type call_list         = {"list",     30 * USEC_PER_SEC, run_list,         false};
static const struct call_type call_usage        = {"measure",  10 * USEC_PER_SEC, run_usage,        false};
/* clang-format on */

static void call_work(void *arg)
{
    struct call *c = arg;

    if (deadline_passed(&c->by)) {
        c->failed = true;
        err_set(&c->err, ERR_TIMEOUT, "%s sandbox '%s': no worker of engine '%s' was free in time",
                c->type->verb, c->req.id, c->engine->ops->name);
        return;
    }
    c->failed = c->type->run(c) < 0;
}

static void call_done(void *arg)
{
    struct call *c = arg;

    if (c->list_done)
        c->list_done(c->arg, c->failed ? &c->err : NULL, c->ids);
    else if (c->usage_done)
        c->usage_done(c->arg, c->failed ? &c->err : NULL, c->usage);
    else
        c->done(c->arg, c->failed ? &c->err : NULL, &c->box);
    err_done(&c->err);
    strv_free(c->ids);
    box_request_done(&c->req);
    free(c);
}

static const struct {
    uint32_t limit, cap;
    const char *name;
} limit_caps[] = {
    {SPEC_LIMIT_MEMORY, ENGINE_CAP_MEMORY_LIMIT, "memory"},
    {SPEC_LIMIT_CPUS, ENGINE_CAP_CPU_LIMIT, "cpus"},
    {SPEC_LIMIT_PIDS, ENGINE_CAP_PIDS_LIMIT, "pids"},
    {SPEC_LIMIT_DISK, ENGINE_CAP_DISK_LIMIT, "disk"},
};

/* Which of the spec's limits are set but beyond this engine. NOFILE is an rlimit: always there. */
static uint32_t limits_unenforced(const struct engine *e, const struct sandbox_spec *spec)
{
    uint32_t set = 0, out = 0;

    set |= spec->memory ? SPEC_LIMIT_MEMORY : 0;
    set |= spec->cpu_milli ? SPEC_LIMIT_CPUS : 0;
    set |= spec->pids ? SPEC_LIMIT_PIDS : 0;
    set |= spec->disk ? SPEC_LIMIT_DISK : 0;
    for (size_t i = 0; i < ARRAY_SIZE(limit_caps); i++)
        if (!(e->caps & limit_caps[i].cap))
            out |= set & limit_caps[i].limit;
    return out;
}

int engine_check_spec(const struct engine *e, const struct sandbox_spec *spec, struct err *err)
{
    uint32_t unenforced = limits_unenforced(e, spec);

    for (size_t i = 0; i < ARRAY_SIZE(limit_caps); i++) {
        if (!(spec->asked & unenforced & limit_caps[i].limit))
            continue;
        err_set(err, ERR_UNSUPPORTED, "engine '%s' cannot enforce a %s limit on this machine",
                e->ops->name, limit_caps[i].name);
        return err_hint(err, "Leave the %s limit out, or see 'ripcord doctor' for what is missing.",
                        limit_caps[i].name);
    }
    if (spec->network == SPEC_NETWORK_OPEN && !(e->caps & ENGINE_CAP_NET_OPEN)) {
        err_set(err, ERR_UNSUPPORTED, "engine '%s' has no network mode 'open' here", e->ops->name);
        return err_hint(err, "Use network 'none'; 'ripcord doctor' tells what 'open' would need.");
    }
    return 0;
}

static int call_check(struct call *c)
{
    if (c->type == &call_list)
        return 0;
    if (!box_id_is_valid(c->req.id))
        return err_set(&c->err, ERR_INVALID, "sandbox id '%s' is not 16 hex digits", c->req.id);
    snprintf(c->box.id, sizeof(c->box.id), "%s", c->req.id);
    if (!c->type->has_request)
        return 0;
    c->box.unenforced = limits_unenforced(c->engine, &c->req.spec);
    return engine_check_spec(c->engine, &c->req.spec, &c->err);
}

static void call_submit(struct call *c)
{
    c->by = deadline_in(c->type->timeout);
    c->box.link_fd = -1;
    if (call_check(c) >= 0 && pool_submit(c->engine->pool, call_work, call_done, c, &c->err) >= 0)
        return;
    c->failed = true;
    loop_defer(c->engine->loop, call_done, c);
}

static struct call *call_new(struct engine *e, const struct call_type *type, void *arg)
{
    struct call *c = xnew0(struct call);

    c->engine = e;
    c->type = type;
    c->arg = arg;
    return c;
}

static void submit_request(struct engine *e, const struct call_type *type,
                           const struct box_request *req, engine_done_fn done, void *arg)
{
    struct call *c = call_new(e, type, arg);

    c->done = done;
    box_request_copy(&c->req, req);
    call_submit(c);
}

static void submit_id(struct engine *e, const struct call_type *type, const char *id,
                      engine_done_fn done, void *arg)
{
    struct call *c = call_new(e, type, arg);

    c->done = done;
    snprintf(c->req.id, sizeof(c->req.id), "%s", id);
    call_submit(c);
}

void engine_create(struct engine *e, const struct box_request *req, engine_done_fn done, void *arg)
{
    submit_request(e, &call_create, req, done, arg);
}

void engine_start(struct engine *e, const struct box_request *req, engine_done_fn done, void *arg)
{
    submit_request(e, &call_start, req, done, arg);
}

void engine_create_start(struct engine *e, const struct box_request *req, engine_done_fn done,
                         void *arg)
{
    submit_request(e, &call_create_start, req, done, arg);
}

void engine_connect(struct engine *e, const char *id, engine_done_fn done, void *arg)
{
    submit_id(e, &call_connect, id, done, arg);
}

void engine_cleanup(struct engine *e, const char *id, engine_done_fn done, void *arg)
{
    submit_id(e, &call_cleanup, id, done, arg);
}

void engine_remove(struct engine *e, const char *id, engine_done_fn done, void *arg)
{
    submit_id(e, &call_remove, id, done, arg);
}

void engine_forget_execs(struct engine *e, const char *id, char *const *execs, engine_done_fn done,
                         void *arg)
{
    struct call *c = call_new(e, &call_forget, arg);

    c->done = done;
    c->ids = strv_copy(execs);
    snprintf(c->req.id, sizeof(c->req.id), "%s", id);
    call_submit(c);
}

void engine_list(struct engine *e, engine_list_fn done, void *arg)
{
    struct call *c = call_new(e, &call_list, arg);

    c->list_done = done;
    call_submit(c);
}

void engine_usage(struct engine *e, const char *id, engine_usage_fn done, void *arg)
{
    struct call *c = call_new(e, &call_usage, arg);

    c->usage_done = done;
    snprintf(c->req.id, sizeof(c->req.id), "%s", id);
    call_submit(c);
}

int engine_open(struct loop *loop, const struct engine_ops *ops, const struct engine_config *config,
                struct engine **ret, struct err *err)
{
    struct engine *e;
    int r;

    r = ops->open(&e, config, err);
    if (r < 0)
        return err_wrap(err, "open engine '%s'", ops->name);
    e->ops = ops;
    e->loop = loop;
    e->pool = pool_new(loop, ops->name, ENGINE_WORKERS, ENGINE_QUEUE_MAX);
    *ret = e;
    return 0;
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    pool_free(TAKE_PTR(e->pool));
    e->ops->close(e);
}
