/*
 * Re-creates a sandbox for another spec, or returns to the one before.
 *
 *   verify   the engine checks the new spec; a refusal changes nothing
 *   down     a running sandbox is stopped
 *   create   the engine makes a new root and keeps the old one beside it; /home/agent stays
 *   start
 *   take     the new spec is stored: from here on the new sandbox counts
 *   settle   the engine removes the old root
 *
 * The store has the old spec until the new sandbox runs. So after a failure, or when the daemon is
 * killed, the stored hash shows which of both stays, and the engine settles for that one.
 */
#include "daemon/core/events/events.h"
#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

/* ---- settling ---- */

void op_settle_with(struct op *op, engine_done_fn done)
{
    struct sandbox_request req;

    op_fill_request(op, &op->sb->spec, op->sb->hash, &req);
    engine_settle(op->sb->engine, &req, done, op);
}

bool sandbox_settled(struct sandbox *sb, const struct engine_sandbox *info)
{
    bool whole = *sb->hash && STREQ(info->hash, sb->hash);

    sb->torn = false;
    if (!whole && *sb->hash) /* the next start creates it again */
        sandbox_forget_hash(sb);
    return whole;
}

enum sandbox_state sandbox_settled_state(struct sandbox *sb, const struct err *err,
                                         const struct engine_sandbox *info, const char **ret_why)
{
    if (err) {
        *ret_why = err->msg;
        return SANDBOX_FAILED;
    }
    if (!sandbox_settled(sb, info)) {
        *ret_why = ENDED_IN_CREATION;
        return SANDBOX_FAILED;
    }
    *ret_why = "the daemon ended while the sandbox was created or changed";
    return SANDBOX_STOPPED;
}

static void op_settle_done(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    if (err) {
        op_fail(op, err);
        return;
    }
    (void)sandbox_settled(op->sb, info);
    op_done(op, ACTION_UNCHANGED);
}

static void op_settle_run(struct op *op)
{
    if (op->sb->state == SANDBOX_ABSENT)
        op_done(op, ACTION_UNCHANGED);
    else
        op_settle_with(op, op_settle_done);
}

const struct op_type op_settle = {"settle", op_settle_run};

/* ---- back to the old one ---- */

/* The answer to the request is the failure of the new spec, whatever comes of the old one. */
static void op_recreate_fail(struct op *op, enum sandbox_state state, const char *why)
{
    sandbox_set_state(op->sb, state, why, NULL);
    op_fail(op, &op->failure);
}

static void op_recreate_reverted(struct op *op, enum sandbox_state state, const char *why)
{
    struct sandbox *sb = op->sb;
    json_t *message = json_string(op->failure.msg); /* NULL when an engine's text is not UTF-8 */

    events_emit(sb->m->config.events, "sandbox.reverted", sb, NULL,
                json_pack("{s:s, s:o}", "code", err_code_name(op->failure.code), "message",
                          message ? message : json_null()));
    op_recreate_fail(op, state, why);
}

static void op_recreate_cannot_revert(struct op *op, const char *reason)
{
    _cleanup_free_ char *why =
        xasprintf("cannot restore the previous spec after a failed change: %s", reason);

    op_recreate_fail(op, SANDBOX_FAILED, why);
}

static void op_recreate_old_started(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    if (err) {
        op_recreate_cannot_revert(op, err->msg);
        return;
    }
    sandbox_connect(op->sb, info);
    op_recreate_reverted(op, SANDBOX_RUNNING, NULL);
}

static void op_recreate_settled_back(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;
    struct sandbox *sb = op->sb;
    struct sandbox_request req;

    sb->torn = err != NULL;
    if (err) {
        op_recreate_cannot_revert(op, err->msg);
    } else if (!sandbox_settled(sb, info)) {
        op_recreate_cannot_revert(op, "its files are not there any more");
    } else if (op->was_up) {
        op_fill_request(op, &sb->spec, sb->hash, &req);
        req.first = NULL; /* the command that waits gets the failure */
        engine_start(sb->engine, &req, op_recreate_old_started, op);
    } else {
        op_recreate_reverted(op, op->was, op->was_why);
    }
}

/* A sandbox without a hash was not whole: there is nothing to return to. */
static void op_recreate_revert(struct op *op, const struct err *err)
{
    err_copy(&op->failure, err);
    if (*op->sb->hash)
        op_settle_with(op, op_recreate_settled_back);
    else
        op_recreate_fail(op, SANDBOX_FAILED, err->msg);
}

static void op_recreate_ended(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    (void)info;
    op->sb->torn = err != NULL;
    if (err)
        op_recreate_cannot_revert(op, err->msg);
    else
        op_settle_with(op, op_recreate_settled_back);
}

/* ---- forward ---- */

static void op_recreate_swap(struct op *op)
{
    struct sandbox *sb = op->sb;
    struct sandbox_spec spec = sb->spec;
    char hash[sizeof(sb->hash)];

    memcpy(hash, sb->hash, sizeof(hash));
    sb->spec = op->want;
    memcpy(sb->hash, op->want_hash, sizeof(sb->hash));
    op->want = spec;
    memcpy(op->want_hash, hash, sizeof(op->want_hash));
}

static int op_recreate_take(struct op *op, struct err *err)
{
    int r;

    op_recreate_swap(op);
    r = sandbox_save(op->sb, err);
    if (r < 0)
        op_recreate_swap(op);
    else
        op->sb->hash_checked = true;
    return r;
}

static void op_recreate_settled(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    (void)info;
    if (err) /* reconcile tries again */
        manager_warn(op->sb->m,
                     "sandbox %s: its state from before the re-creation cannot be removed: %s",
                     op->sb->name, err->msg);
    op_done(op, ACTION_RECREATED);
}

static void op_recreate_started(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;
    struct sandbox *sb = op->sb;

    if (err) {
        op_recreate_revert(op, err);
        return;
    }
    if (op_recreate_take(op, &op->failure) < 0) {
        info->supervisor_fd = fd_close(info->supervisor_fd);
        engine_cleanup(sb->engine, sb->id, op_recreate_ended, op);
        return;
    }
    sb->want_running = true;
    sandbox_connect(sb, info);
    if (info->first_sent)
        exec_first_sent(sb);
    sandbox_set_state(sb, SANDBOX_RUNNING, NULL, NULL);
    op_settle_with(op, op_recreate_settled);
}

static void op_recreate_created(void *arg, const struct err *err, struct engine_sandbox *info)
{
    _cleanup_err_ struct err why = ERR_INIT;
    struct op *op = arg;
    struct sandbox *sb = op->sb;
    struct sandbox_request req;

    (void)info;
    if (err) {
        op_recreate_revert(op, err);
    } else if (!op->down) {
        op_fill_request(op, &op->want, op->want_hash, &req);
        engine_start(sb->engine, &req, op_recreate_started, op);
    } else if (op_recreate_take(op, &why) < 0) {
        op_recreate_revert(op, &why);
    } else {
        sandbox_set_state(sb, SANDBOX_STOPPED, "re-created: its configuration was out of date",
                          NULL);
        op_settle_with(op, op_recreate_settled);
    }
}

static void op_recreate_create(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox_request req;

    if (sandbox_set_state(op->sb, SANDBOX_CREATING, NULL, &err) < 0) {
        op_fail(op, &err);
        return;
    }
    op_fill_request(op, &op->want, op->want_hash, &req);
    req.keep = true;
    /* Not create_start: on failure that would remove /home/agent as well. */
    engine_create(op->sb->engine, &req, op_recreate_created, op);
}

static void op_recreate_cleaned(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    (void)info;
    if (err) {
        sandbox_set_state(op->sb, SANDBOX_FAILED, err->msg, NULL);
        op_fail(op, err);
        return;
    }
    sandbox_set_state(op->sb, SANDBOX_STOPPED, "to be re-created", NULL);
    op_recreate_create(op);
}

static void op_recreate_down(struct op *op)
{
    engine_cleanup(op->sb->engine, op->sb->id, op_recreate_cleaned, op);
}

static int op_recreate_check_idle(const struct sandbox *sb, struct err *err)
{
    if (!sb->conn || !sb->n_execs)
        return 0;
    err_set(err, ERR_CONFLICT, "sandbox '%s': cannot change the spec while %u exec(s) run",
            sb->name, sb->n_execs);
    return err_hint(err, "Wait until they end, or stop the sandbox first.");
}

static void op_recreate_verified(void *arg, const struct err *err, struct engine_sandbox *info)
{
    _cleanup_err_ struct err busy = ERR_INIT;
    struct op *op = arg;
    struct sandbox *sb = op->sb;

    (void)info;
    if (err || op_recreate_check_idle(sb, &busy) < 0) {
        op_fail(op, err ? err : &busy);
        return;
    }
    op->was = sb->state;
    op->was_up = sb->conn;
    op->was_why = sb->reason ? xstrdup(sb->reason) : NULL;
    if (!sb->conn) {
        op_recreate_create(op);
        return;
    }
    sandbox_set_state(sb, SANDBOX_STOPPING, "to be re-created", NULL);
    op_down(op, sb->m->config.stop_grace, op_recreate_down);
}

void op_recreate(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox_request req;

    op->action = ACTION_RECREATED;
    if (op_recreate_check_idle(op->sb, &err) < 0) {
        op_fail(op, &err);
        return;
    }
    op_fill_request(op, &op->want, op->want_hash, &req);
    engine_verify(op->sb->engine, &req, op_recreate_verified, op);
}
