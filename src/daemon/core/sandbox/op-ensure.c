/*
 * ensure: create, start, re-create or leave alone, after the engine was asked what the image is.
 *
 *   absent           create+start in one trip to the engine   created    (failure: nothing is left)
 *   stopped, same    start                                    started
 *   stopped, other   create (new root, /home stays), start    recreated
 *   running, same    nothing                                  unchanged
 *   running, other   down, clean up, create, start            recreated  (conflict with live execs)
 *   paused, same     resume                                   started
 */
#include "daemon/core/caches/sandbox-packages.h"
#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/sandbox/lease.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

/* A throw-away sandbox is not worth a note. */
static void note_spec(struct op *op)
{
    struct sandbox_spec open = op->sb->spec; /* shallow */

    if (op->sb->ephemeral)
        return;
    free(op->spec_text);
    free(op->spec_label);
    op->spec_text = spec_to_text(&op->sb->spec);
    open.env = NULL;
    op->spec_label = spec_to_text(&open);
}

static void fill_request(struct op *op, struct sandbox_request *req)
{
    const struct sandbox *sb = op->sb;

    *req =
        (struct sandbox_request){.ephemeral = sb->ephemeral, .fresh = op->action == ACTION_CREATED};
    snprintf(req->id, sizeof(req->id), "%s", sb->id);
    snprintf(req->name, sizeof(req->name), "%s", sb->name);
    snprintf(req->hash, sizeof(req->hash), "%s", sb->hash);
    req->spec = sb->spec; /* shallow: the engine copies before it returns */
    note_spec(op);
    req->spec_text = op->spec_text;
    req->spec_label = op->spec_label;
    req->first = exec_first_request(op->sb);
}

/* The engine undid the start; what is left is a stopped sandbox, or none when it was new. */
static void start_failed(struct op *op, const struct err *err)
{
    struct sandbox *sb = op->sb;

    /* A root that is half re-created must not pass for one of this spec at the next try. */
    if (op->action == ACTION_RECREATED)
        sandbox_forget_hash(sb);
    if (op->action != ACTION_CREATED || sandbox_set_state(sb, SANDBOX_ABSENT, err->msg, NULL) < 0)
        sandbox_set_state(sb, SANDBOX_FAILED, err->msg, NULL);
    op_fail(op, err);
}

static void started(void *arg, const struct err *err, struct engine_sandbox *box)
{
    struct op *op = arg;
    struct sandbox *sb = op->sb;

    if (err) {
        start_failed(op, err);
        return;
    }
    sb->want_running = true;
    sandbox_connect(sb, box);
    if (box->first_sent)
        exec_first_sent(sb);
    sandbox_set_state(sb, SANDBOX_RUNNING, NULL, NULL);
    op_done(op, op->action);
}

static void recreated(void *arg, const struct err *err, struct engine_sandbox *box)
{
    struct op *op = arg;
    struct sandbox_request req;

    if (err) {
        start_failed(op, err);
        return;
    }
    (void)box;
    if (op->down) {
        sandbox_set_state(op->sb, SANDBOX_STOPPED, "re-created: its configuration was stale", NULL);
        op_done(op, ACTION_RECREATED);
        return;
    }
    fill_request(op, &req);
    engine_start(op->sb->engine, &req, started, op);
}

/* The wanted spec becomes the sandbox's, in memory and on disk, before the engine sees it. */
static int take_spec(struct op *op, struct err *err)
{
    struct sandbox *sb = op->sb;

    sandbox_spec_done(&sb->spec);
    sb->spec = op->want;
    op->want = (struct sandbox_spec){0};
    memcpy(sb->hash, op->want_hash, sizeof(sb->hash));
    sb->hash_checked = true;
    return sandbox_set_state(sb, SANDBOX_CREATING, NULL, err);
}

static void create_new(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = op->sb;
    struct sandbox_request req;

    op->action = ACTION_CREATED;
    sb->created_at = time_wall();
    sb->next_seq = 1;
    sb->want_running = true;
    if (sandbox_make_id(sb, &err) < 0 || take_spec(op, &err) < 0) {
        op_fail(op, &err);
        return;
    }
    fill_request(op, &req);
    engine_create_start(sb->engine, &req, started, op);
}

static void create_again(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox_request req;

    op->action = ACTION_RECREATED;
    if (take_spec(op, &err) < 0) {
        op_fail(op, &err);
        return;
    }
    fill_request(op, &req);
    /* Not create_start: its undo would remove /home/agent as well. */
    engine_create(op->sb->engine, &req, recreated, op);
}

static void start_again(struct op *op)
{
    struct sandbox_request req;

    op->action = ACTION_STARTED;
    fill_request(op, &req);
    engine_start(op->sb->engine, &req, started, op);
}

static void replace_cleaned(void *arg, const struct err *err, struct engine_sandbox *box)
{
    struct op *op = arg;

    (void)box;
    if (err) {
        sandbox_set_state(op->sb, SANDBOX_FAILED, err->msg, NULL);
        op_fail(op, err);
        return;
    }
    sandbox_set_state(op->sb, SANDBOX_STOPPED, "to be re-created", NULL);
    create_again(op);
}

static void replace_down(struct op *op)
{
    engine_cleanup(op->sb->engine, op->sb->id, replace_cleaned, op);
}

static void replace_running(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = op->sb;

    if (sb->n_execs) {
        err_set(&err, ERR_CONFLICT, "sandbox '%s' runs %u exec(s) and its spec differs", sb->name,
                sb->n_execs);
        err_hint(&err, "It is re-created only when idle: wait for them, or stop it first.");
        op_fail(op, &err);
        return;
    }
    sandbox_set_state(sb, SANDBOX_STOPPING, "to be re-created", NULL);
    op_down(op, sb->m->config.stop_grace, replace_down);
}

static void resumed(void *arg, const struct err *err, int fd)
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

/* Limits that are now asked for by name must hold, even when their figures have not changed. */
static int keep_asked(struct op *op, struct err *err)
{
    struct sandbox *sb = op->sb;
    uint32_t added = op->want.asked & ~sb->spec.asked;

    if (!added)
        return 0;
    if (added & sb->unenforced)
        return err_set(err, ERR_UNSUPPORTED,
                       "sandbox '%s': a limit that is asked for cannot be enforced on this machine",
                       sb->name);
    sb->spec.asked |= added;
    return sandbox_save(sb, err);
}

/* Its files lie on a disk of that size, or on none: /home/agent could not stay. */
static int other_disk(const struct sandbox *sb, struct err *err)
{
    char size[FORMAT_MAX];

    if (sb->spec.disk)
        err_set(err, ERR_CONFLICT, "sandbox '%s' has a disk of %s, and that cannot change",
                sb->name, format_size(sb->spec.disk, size));
    else
        err_set(err, ERR_CONFLICT, "sandbox '%s' was made without a disk limit and cannot get one",
                sb->name);
    return err_hint(err, "Leave the disk limit as it is, or remove the sandbox first.");
}

static int choose_engine(struct op *op, const char *engine, struct err *err)
{
    struct sandbox *sb = op->sb;

    if (sb->state == SANDBOX_ABSENT) {
        sb->engine = manager_engine(sb->m, engine, err);
        return sb->engine ? 0 : -ERR_UNSUPPORTED;
    }
    if (!engine || STREQ(engine, sb->engine->ops->name))
        return 0;
    err_set(err, ERR_CONFLICT, "sandbox '%s' is on engine '%s', not '%s'", sb->name,
            sb->engine->ops->name, engine);
    return err_hint(err, "A sandbox does not change engines: remove it first.");
}

/* The spec after the patch, all but the digest of its image. */
static int wanted(struct op *op, struct err *err)
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
    if (r >= 0)
        r = choose_engine(op, engine, err);
    if (r < 0)
        return r;
    if (!op->want.image)
        op->want.image = xstrdup(sb->engine->ops->default_image);
    return absent || op->want.disk == sb->spec.disk ? 0 : other_disk(sb, err);
}

/* Who asks for it wants to use it. */
static void in_use(struct op *op)
{
    lease_touch(op->sb);
    op_done(op, ACTION_UNCHANGED);
}

static void ensure_up(struct op *op)
{
    struct sandbox *sb = op->sb;

    if (sb->state == SANDBOX_PAUSED)
        supervisor_conn_pause(sb->conn, false, resumed, op);
    else if (sb->state == SANDBOX_RUNNING)
        in_use(op);
    else
        start_again(op);
}

/* Only `up` wakes it. Whoever wants to use it may not have known when he asked. */
static void ensure_same(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if ((op->existing && sandbox_check_awake(op->sb, &err) < 0) || keep_asked(op, &err) < 0)
        op_fail(op, &err);
    else
        lease_apply(op, ensure_up);
}

static void ensure_checked(struct op *op)
{
    struct sandbox *sb = op->sb;

    if (sb->state == SANDBOX_ABSENT)
        create_new(op);
    else if (STREQ(sb->hash, op->want_hash) && sb->state != SANDBOX_CREATING)
        ensure_same(op);
    else if (sb->conn)
        replace_running(op);
    else
        create_again(op);
}

/* The engine is open and the image known. All that may be refused is, before the old one is given
 * up. */
static void ensure_go(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = op->sb;

    spec_hash(&op->want, sb->engine->ops->name, op->want_hash);
    if (engine_check_spec(sb->engine, &op->want, &err) < 0)
        op_fail(op, &err);
    else if (sb->conn && STREQ(sb->hash, op->want_hash))
        ensure_checked(op); /* it runs as wanted: nothing is to be started */
    else
        sandbox_packages_require(op, ensure_checked);
}

static void resolved(void *arg, const struct err *err, const char *digest)
{
    struct op *op = arg;

    if (err) {
        op_fail(op, err);
        return;
    }
    free(op->want.image_digest);
    op->want.image_digest = xstrdup(digest);
    ensure_go(op);
}

static void prepared(void *arg, const struct err *err, struct engine_sandbox *box)
{
    struct op *op = arg;

    (void)box;
    if (err)
        op_fail(op, err);
    else
        ensure_go(op);
}

/* Which image a name stands for is asked when somebody wants the sandbox as described, not when a
 * command needs the one that is there. */
static bool must_resolve(const struct op *op)
{
    return !op->existing || !op->want.image_digest;
}

static void ensure_run(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct engine *e;

    if (wanted(op, &err) < 0) {
        op_fail(op, &err);
        return;
    }
    e = op->sb->engine;
    if (engine_fixed_digest(e, &op->want)) {
        free(op->want.image_digest);
        op->want.image_digest = xstrdup(engine_fixed_digest(e, &op->want));
    } else if (must_resolve(op)) {
        engine_resolve(e, &op->want, resolved, op);
        return;
    }
    if (engine_is_open(e))
        ensure_go(op);
    else
        engine_prepare(e, prepared, op);
}

const struct op_type op_ensure = {"ensure", ensure_run};

/* ---- renew: the same spec, made as this version makes it ---- */

int op_renew_check(const struct sandbox *sb, struct err *err)
{
    if (sb->n_execs || sb->n_transfers)
        return err_set(err, ERR_CONFLICT, "%u command(s) run in it: it is re-created when idle",
                       sb->n_execs + sb->n_transfers);
    if (sb->state == SANDBOX_PAUSED)
        return err_set(err, ERR_CONFLICT, "it is paused: it is re-created when resumed and idle");
    return 0;
}

static void renew_go(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = op->sb;

    if (op_renew_check(sb, &err) < 0) { /* somebody came while the registry was waited for */
        sb->stale = true;
        op_fail(op, &err);
    } else if (sb->conn) {
        replace_running(op);
    } else {
        op->down = true;
        create_again(op);
    }
}

static void renew_run(struct op *op)
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
    spec_hash(&op->want, sb->engine->ops->name, op->want_hash);
    if (engine_is_open(sb->engine) && engine_check_spec(sb->engine, &op->want, &err) < 0)
        op_fail(op, &err);
    else if (sb->conn)
        sandbox_packages_require(op, renew_go);
    else
        renew_go(op);
}

const struct op_type op_renew = {"renew", renew_run};
