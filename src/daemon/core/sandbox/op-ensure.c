/*
 * ensure: creates, starts or re-creates a sandbox, or leaves it unchanged. The engine resolves the
 * image first.
 *
 *   absent           create and start in one engine call      created    (failure: nothing is left)
 *   stopped, same    start                                    started
 *   running, same    save other leases and labels             unchanged, changed
 *   paused, same     resume                                   started
 *   any, other       re-create (op-recreate.c)                recreated  (conflict with live execs)
 */
#include "daemon/core/caches/sandbox-packages.h"
#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/sandbox/lease.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

/* The spec for the engine to save beside the sandbox. A throw-away sandbox needs none. */
static void op_note_spec(struct op *op, const struct sandbox_spec *spec)
{
    struct sandbox_spec open = *spec; /* shallow copy */

    if (op->sb->ephemeral)
        return;
    free(op->spec_text);
    free(op->spec_label);
    op->spec_text = spec_to_text(spec);
    open.env = NULL;
    op->spec_label = spec_to_text(&open);
}

void op_fill_request(struct op *op, const struct sandbox_spec *spec, const char *hash,
                     struct sandbox_request *req)
{
    const struct sandbox *sb = op->sb;

    *req =
        (struct sandbox_request){.ephemeral = sb->ephemeral, .fresh = op->action == ACTION_CREATED};
    snprintf(req->id, sizeof(req->id), "%s", sb->id);
    snprintf(req->name, sizeof(req->name), "%s", sb->name);
    snprintf(req->hash, sizeof(req->hash), "%s", hash);
    req->spec = *spec; /* shallow copy: the engine copies it before it returns */
    op_note_spec(op, spec);
    req->spec_text = op->spec_text;
    req->spec_label = op->spec_label;
    req->first = exec_first_request(op->sb);
}

static void op_ensure_started(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;
    struct sandbox *sb = op->sb;

    if (err) { /* the engine has undone the start: a new sandbox is gone */
        if (op->action != ACTION_CREATED ||
            sandbox_set_state(sb, SANDBOX_ABSENT, err->msg, NULL) < 0)
            sandbox_set_state(sb, SANDBOX_FAILED, err->msg, NULL);
        op_fail(op, err);
        return;
    }
    sb->want_running = true;
    sandbox_connect(sb, info);
    if (info->first_sent)
        exec_first_sent(sb);
    sandbox_set_state(sb, SANDBOX_RUNNING, NULL, NULL);
    op_done(op, op->action);
}

/* The wanted spec becomes the sandbox's, in memory and in the store, before the engine gets it. */
static int op_ensure_take_spec(struct op *op, struct err *err)
{
    struct sandbox *sb = op->sb;

    sandbox_spec_done(&sb->spec);
    sb->spec = op->want;
    op->want = (struct sandbox_spec){0};
    memcpy(sb->hash, op->want_hash, sizeof(sb->hash));
    sb->hash_checked = true;
    return sandbox_set_state(sb, SANDBOX_CREATING, NULL, err);
}

static void op_ensure_create_new(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = op->sb;
    struct sandbox_request req;

    op->action = ACTION_CREATED;
    sb->created_at = time_wall();
    sb->next_seq = 1;
    sb->want_running = true;
    if (sandbox_make_id(sb, &err) < 0 || op_ensure_take_spec(op, &err) < 0) {
        op_fail(op, &err);
        return;
    }
    disk_budget_mark_new(sb);
    op_fill_request(op, &op->sb->spec, op->sb->hash, &req);
    engine_create_start(sb->engine, &req, op_ensure_started, op);
}

static void op_ensure_resumed(void *arg, const struct err *err, int fd)
{
    struct op *op = arg;

    fd_close(fd);
    if (err) {
        op_fail(op, err);
        return;
    }
    sandbox_set_state(op->sb, SANDBOX_RUNNING, NULL, NULL);
    op_done(op, ACTION_STARTED);
}

/* Limits that are now requested by name must be enforced, even when their values did not change. */
static int op_ensure_keep_asked(struct op *op, struct err *err)
{
    struct sandbox *sb = op->sb;
    uint32_t added = op->want.asked & ~sb->spec.asked;

    if (!added)
        return 0;
    if (added & sb->unenforced)
        return err_set(err, ERR_UNSUPPORTED,
                       "sandbox '%s': this machine cannot enforce a requested limit", sb->name);
    sb->spec.asked |= added;
    return sandbox_save(sb, err);
}

/* The disk cannot change without losing /home/agent, which is on it. */
static int op_ensure_other_disk(const struct sandbox *sb, struct err *err)
{
    char size[FORMAT_MAX];

    if (sb->spec.disk)
        err_set(err, ERR_CONFLICT, "sandbox '%s': the size of its disk (%s) cannot change",
                sb->name, format_size(sb->spec.disk, size));
    else
        err_set(err, ERR_CONFLICT, "sandbox '%s': a disk limit can only be set at creation",
                sb->name);
    return err_hint(err, "Keep the present disk limit, or remove the sandbox and create it again.");
}

/* Its files lie elsewhere, under paths of the machine. */
static int op_ensure_other_isolation(const struct sandbox *sb, const struct op *op, struct err *err)
{
    bool confined = sandbox_spec_is_confined(&sb->spec);

    if (sandbox_spec_is_confined(&op->want) == confined)
        return 0;
    err_set(err, ERR_CONFLICT, "sandbox '%s': isolation 'confined' can only be %s at creation",
            sb->name, confined ? "left out" : "chosen");
    return err_hint(err, "Remove the sandbox and create it again, or use another name.");
}

static int op_ensure_choose_engine(struct op *op, const char *engine, struct err *err)
{
    struct sandbox *sb = op->sb;

    if (sb->state == SANDBOX_ABSENT) {
        sb->engine = manager_engine(sb->m, engine, err);
        return sb->engine ? 0 : -ERR_INVALID;
    }
    if (!engine || STREQ(engine, sb->engine->ops->name))
        return 0;
    err_set(err, ERR_CONFLICT, "sandbox '%s' is on engine '%s', not '%s'", sb->name,
            sb->engine->ops->name, engine);
    return err_hint(err, "Remove the sandbox first: a sandbox cannot move to another engine.");
}

/* Computes the spec after the patch, except the digest of its image. */
static int op_ensure_wanted(struct op *op, struct err *err)
{
    struct sandbox *sb = op->sb;
    const struct manager_config *c = &sb->m->config;
    const char *engine = NULL;
    bool absent = sb->state == SANDBOX_ABSENT;
    int r;

    if (absent && op->existing)
        return err_set(err, ERR_NOT_FOUND, "no sandbox '%s'", sb->name);
    sandbox_spec_copy(&op->want, absent ? &c->defaults : &sb->spec);
    r = op->patch ? spec_apply(&op->want, &engine, op->patch, c->mount_roots, err) : 0;
    if (r < 0)
        return r;
    r = op_ensure_choose_engine(op, engine, err);
    if (r < 0)
        return r;
    if (!op->want.image)
        op->want.image = xstrdup(sb->engine->ops->default_image);
    if (absent)
        return 0;
    r = op_ensure_other_isolation(sb, op, err);
    if (r < 0)
        return r;
    return op->want.disk == sb->spec.disk ? 0 : op_ensure_other_disk(sb, err);
}

static void op_ensure_up(struct op *op)
{
    struct sandbox *sb = op->sb;
    struct sandbox_request req;

    if (sb->state == SANDBOX_PAUSED) {
        supervisor_conn_pause(sb->conn, false, op_ensure_resumed, op);
    } else if (sb->state == SANDBOX_RUNNING) {
        lease_touch(sb); /* a request for a sandbox counts as its use */
        op_done(op, op->action);
    } else {
        op->action = ACTION_STARTED;
        op_fill_request(op, &sb->spec, sb->hash, &req);
        engine_start(sb->engine, &req, op_ensure_started, op);
    }
}

/* Only `up` wakes a paused sandbox. It may have been paused after the request was queued. */
static void op_ensure_same(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if ((op->existing && sandbox_check_awake(op->sb, &err) < 0) ||
        op_ensure_keep_asked(op, &err) < 0)
        op_fail(op, &err);
    else
        op_change_apply(op, op_ensure_up);
}

static void op_ensure_checked(struct op *op)
{
    struct sandbox *sb = op->sb;

    if (sb->state == SANDBOX_ABSENT)
        op_ensure_create_new(op);
    else if (STREQ(sb->hash, op->want_hash) && sb->state != SANDBOX_CREATING)
        op_ensure_same(op);
    else
        op_recreate(op);
}

/* Labels that older versions hashed count only as long as nothing else changes. */
static void op_ensure_hash(struct op *op)
{
    struct sandbox *sb = op->sb;

    spec_hash(&op->want, sb->engine->ops->name, op->want_hash);
    if (!op->want.hashed_labels || STREQ(sb->hash, op->want_hash))
        return;
    strv_free(TAKE_PTR(op->want.hashed_labels));
    spec_hash(&op->want, sb->engine->ops->name, op->want_hash);
}

/* The engine is open and the image is known. All checks come before the old sandbox is given up. */
static void op_ensure_go(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = op->sb;

    op_ensure_hash(op);
    if (engine_check_spec(sb->engine, &op->want, &err) < 0)
        op_fail(op, &err);
    else if (sb->conn && STREQ(sb->hash, op->want_hash))
        op_ensure_checked(op); /* it runs as wanted: nothing has to start */
    else
        sandbox_packages_require(op, op_ensure_checked);
}

static void op_ensure_resolved(void *arg, const struct err *err, const char *digest)
{
    struct op *op = arg;

    if (err) {
        op_fail(op, err);
        return;
    }
    free(op->want.image_digest);
    op->want.image_digest = xstrdup(digest);
    op_ensure_go(op);
}

static void op_ensure_prepared(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    (void)info;
    if (err)
        op_fail(op, err);
    else
        op_ensure_go(op);
}

/* The image is resolved when the user describes the sandbox (`up`), not when a command uses an
 * existing one. */
static void op_ensure_begin(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct engine *e;

    if (op_ensure_wanted(op, &err) < 0) {
        op_fail(op, &err);
        return;
    }
    e = op->sb->engine;
    if (engine_fixed_digest(e, &op->want)) {
        free(op->want.image_digest);
        op->want.image_digest = xstrdup(engine_fixed_digest(e, &op->want));
    } else if (!op->existing || !op->want.image_digest) {
        engine_resolve(e, &op->want, op_ensure_resolved, op);
        return;
    }
    if (engine_is_open(e))
        op_ensure_go(op);
    else
        engine_prepare(e, op_ensure_prepared, op);
}

static void op_ensure_settled(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    if (err) {
        op_fail(op, err);
        return;
    }
    (void)sandbox_settled(op->sb, info);
    op_ensure_begin(op);
}

static void op_ensure_run(struct op *op)
{
    if (op->sb->torn)
        op_settle_with(op, op_ensure_settled);
    else
        op_ensure_begin(op);
}

const struct op_type op_ensure = {"ensure", op_ensure_run};

/* ---- renew: re-creates a sandbox with the same spec ---- */

int op_renew_check(const struct sandbox *sb, struct err *err)
{
    if (sb->n_execs || sb->n_transfers)
        return err_set(err, ERR_CONFLICT,
                       "%u command(s) are running: the sandbox is re-created when it is idle",
                       sb->n_execs + sb->n_transfers);
    if (sb->state == SANDBOX_PAUSED)
        return err_set(err, ERR_CONFLICT,
                       "the sandbox is paused: it is re-created when it is resumed and idle");
    return 0;
}

static void op_renew_go(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = op->sb;

    if (op_renew_check(sb, &err) < 0) { /* a command came while the package cache was asked */
        sb->stale = true;
        op_fail(op, &err);
    } else {
        op->down = !sb->conn;
        op_recreate(op);
    }
}

static void op_renew_run(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = op->sb;

    if (sb->state == SANDBOX_ABSENT || sb->ephemeral) {
        op_done(op, ACTION_UNCHANGED);
        return;
    }
    sb->stale = false;
    if (op_renew_check(sb, &err) < 0) {
        sb->stale = true;
        op_fail(op, &err);
        return;
    }
    sandbox_spec_copy(&op->want, &sb->spec);
    strv_free(TAKE_PTR(op->want.hashed_labels));
    spec_hash(&op->want, sb->engine->ops->name, op->want_hash);
    if (engine_is_open(sb->engine) && engine_check_spec(sb->engine, &op->want, &err) < 0)
        op_fail(op, &err);
    else if (sb->conn)
        sandbox_packages_require(op, op_renew_go);
    else
        op_renew_go(op);
}

const struct op_type op_renew = {"renew", op_renew_run};
