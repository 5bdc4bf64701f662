#include "daemon/core/sandbox/manager.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "daemon/core/caches/sandbox-packages.h"
#include "daemon/core/caches/warm.h"
#include "daemon/core/doctor/doctor.h"
#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/exec/exec-linger.h"
#include "daemon/core/exec/output-retention.h"
#include "daemon/core/images/build.h"
#include "daemon/core/reconcile/reconcile.h"
#include "daemon/core/requests/request-key.h"
#include "daemon/core/sandbox/command-check.h"
#include "daemon/core/sandbox/copy-dial.h"
#include "daemon/core/sandbox/lease.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "daemon/core/session/session.h"
#include "daemon/engine/exec-request.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { SANDBOXES_MAX = 16384 };

void manager_warn(struct manager *m, const char *fmt, ...)
{
    _cleanup_free_ char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    text = xvasprintf(fmt, ap);
    va_end(ap);
    if (m->config.on_warning)
        m->config.on_warning(m->config.arg, text);
}

bool manager_asks_engine(const struct manager *m, const struct engine *e)
{
    return engine_is_open(e) || STREQ(e->ops->name, m->config.default_engine);
}

int random_hex(char *ret, struct err *err)
{
    uint64_t v;

    if (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
        return err_sys(err, errno, "get random bytes for an id");
    snprintf(ret, 17, "%016llx", (unsigned long long)v);
    return 0;
}

const char *manager_action_name(enum manager_action a)
{
    static const char *const names[] = {"unchanged", "changed", "created", "started", "recreated"};

    return names[a];
}

/* ---- sandboxes as objects ---- */

struct sandbox *sandbox_new(struct manager *m, const char *name)
{
    struct sandbox *sb = xnew0(struct sandbox);

    sb->m = m;
    sb->next_seq = 1;
    snprintf(sb->name, sizeof(sb->name), "%s", name);
    map_add(&m->sandboxes, sb->name, sb);
    return sb;
}

void sandbox_free(struct sandbox *sb)
{
    map_remove(&sb->m->sandboxes, sb->name);
    supervisor_conn_close(sb->conn);
    sandbox_packages_unlinked(sb);
    op_drop_all(sb);
    copy_dial_lost(sb, true);
    sandbox_spec_done(&sb->spec);
    strv_free(sb->warnings);
    free(sb->reason);
    sb->m = NULL;
    if (!sb->kicked) /* else op_kick_cb() frees it */
        free(sb);
}

void sandbox_maybe_free(struct sandbox *sb)
{
    if (sb->state == SANDBOX_ABSENT && !sb->ops && !sb->kicked && !sb->execs && !sb->readers)
        sandbox_free(sb);
}

void sandbox_expire(struct sandbox *sb)
{
    const struct op *last = op_last(sb);

    if (sb->n_execs || sb->readers)
        return;
    if (sb->state == SANDBOX_ABSENT)
        op_kick(sb);
    else if (!last || last->type != &op_remove)
        op_push(sb, &op_remove)->force = true;
}

int sandbox_make_id(struct sandbox *sb, struct err *err)
{
    /* The sandbox of a `run` gets its id at once, because its name contains it. */
    return sb->id[0] && sb->ephemeral ? 0 : random_hex(sb->id, err);
}

/* ---- the supervisor's connection ---- */

static void manager_on_started(void *arg, const char *exec, int pid, int stdin_fd)
{
    exec_on_started(arg, exec, pid, stdin_fd);
}

static void manager_on_start_failed(void *arg, const char *exec, const struct err *err)
{
    (void)arg; /* the end record follows and says the same */
    (void)exec;
    (void)err;
}

static void manager_on_refused(void *arg, const char *exec, const struct err *err)
{
    exec_on_refused(arg, exec, err);
}

static void manager_on_output(void *arg, const char *exec, uint64_t out, uint64_t err_end)
{
    exec_on_output(arg, exec, out, err_end);
}

static void manager_on_ended(void *arg, const char *exec, const struct end_record *rec)
{
    exec_on_ended(arg, exec, rec);
}

static void manager_on_closed(void *arg)
{
    struct sandbox *sb = arg;
    bool busy = sb->ops && sb->ops->running;

    sb->conn = NULL;
    sandbox_packages_unlinked(sb);
    exec_all_lost(sb);
    if (busy) /* after the operation, which may be the last one of the sandbox */
        exec_start_waiting(sb);
    if (op_conn_closed(sb))
        return;
    if (sb->ephemeral) {
        sandbox_expire(sb);
        return;
    }
    sandbox_set_state(sb, SANDBOX_STOPPED, SANDBOX_ENDED_ITSELF, NULL);
    op_push_front(sb, &op_reclaim);
    if (!busy)
        exec_start_waiting(sb);
    op_pause_lost(sb);
}

static const struct supervisor_events supervisor_events = {
    .started = manager_on_started,
    .start_failed = manager_on_start_failed,
    .output = manager_on_output,
    .ended = manager_on_ended,
    .closed = manager_on_closed,
    .refused = manager_on_refused,
};

void sandbox_take_warnings(struct sandbox *sb, const struct engine_sandbox *info)
{
    for (char **w = info->warnings; w && *w; w++)
        if (!strv_contains(sb->warnings, *w))
            manager_warn(sb->m, "sandbox %s: %s", sb->name, *w);
    strv_free(sb->warnings);
    sb->warnings = strv_copy(info->warnings);
}

void sandbox_connect(struct sandbox *sb, struct engine_sandbox *info)
{
    sb->unenforced = info->unenforced;
    sb->disk_held = info->disk_held;
    sb->unsettled = false;
    sandbox_take_warnings(sb, info);
    disk_budget_begin(sb);
    sb->conn = supervisor_conn_open(sb->m->loop, TAKE_FD(info->supervisor_fd), info->minor,
                                    &supervisor_events, sb);
    if (sb->spec.disk)
        supervisor_conn_settled(sb->conn);
    sandbox_packages_linked(sb);
}

void sandbox_unlink(struct sandbox *sb)
{
    supervisor_conn_close(TAKE_PTR(sb->conn));
    sandbox_packages_unlinked(sb);
    exec_all_lost(sb);
    exec_start_waiting(sb);
    copy_dial_lost(sb, false);
}

/* ---- the manager ---- */

struct manager *manager_new(const struct manager_config *config)
{
    struct manager *m = xnew0(struct manager);

    m->config = *config;
    sandbox_spec_copy(&m->config.defaults, &config->defaults);
    m->loop = config->loop;
    m->store = config->store;
    usage_totals_open(&m->usage_totals, m->store);
    exec_save_open(m);
    reconcile_init(m);
    for (size_t i = 0; i < config->n_engines; i++)
        engine_listen(config->engines[i], engine_watch_on_news, m);
    return m;
}

int manager_start(struct manager *m, struct err *err)
{
    int r = lease_clock_open(m->store, &m->lease_clock, err);

    return r < 0 ? r : recovery_start(m, err);
}

/* The watches of execs belong to the API and must be removed before. */
void manager_free(struct manager *m)
{
    void *value;

    if (!m)
        return;
    m->closing = true;
    warms_end(m);
    doctors_end(m);
    for (size_t i = 0; i < m->config.n_engines; i++)
        engine_listen(m->config.engines[i], NULL, NULL);
    for (size_t i = 0; map_next(&m->sandboxes, &i, NULL, &value);) {
        struct sandbox *sb = value;

        while (sb->execs) {
            struct exec *x = sb->execs;

            sb->execs = x->next;
            x->sb = NULL;
            exec_unref(x);
        }
        sandbox_free(sb);
    }
    exec_save_close(m);
    warms_drop(m);
    disk_budget_close(m);
    exec_linger_close(m);
    doctors_drop(m);
    recovery_free(m->recovery);
    usage_totals_close(&m->usage_totals);
    reconcile_free(m);
    map_done(&m->sandboxes);
    sandbox_spec_done(&m->config.defaults);
    free(m);
}

void manager_close(struct manager *m)
{
    m->closing = true;
    warms_end(m);
    doctors_end(m);
    builds_end(m);
}

bool manager_busy(const struct manager *m)
{
    void *value;

    for (size_t i = 0; map_next(&m->sandboxes, &i, NULL, &value);) {
        const struct sandbox *sb = value;

        if (sb->ops && sb->ops->running)
            return true;
    }
    return m->background_calls > 0;
}

void manager_when_recovered(struct manager *m, uint64_t limit, manager_fn fn, void *arg)
{
    recovery_wait(m->recovery, limit, fn, arg);
}

bool manager_is_recovered(const struct manager *m)
{
    return recovery_is_done(m->recovery);
}

const struct manager_config *manager_settings(const struct manager *m)
{
    return &m->config;
}

bool manager_next(struct manager *m, size_t *iter, struct sandbox **ret)
{
    void *value;

    while (map_next(&m->sandboxes, iter, NULL, &value)) {
        *ret = value;
        if ((*ret)->state != SANDBOX_ABSENT)
            return true;
    }
    return false;
}

static void manager_set_not_found(struct manager *m, const char *name, struct err *err)
{
    const char **names = xcalloc(m->sandboxes.used + 1, sizeof(*names));
    const char *near;
    struct sandbox *sb;
    size_t n = 0;

    for (size_t i = 0; manager_next(m, &i, &sb);)
        if (!sb->ephemeral)
            names[n++] = sb->name;
    near = strv_nearest(name, names, n);
    err_set(err, ERR_NOT_FOUND, "no sandbox '%s'", name);
    if (near)
        err_hint(err, "Did you mean '%s'?", near);
    else
        err_hint(err, "Run 'ripcord ls' to list the sandboxes, or 'ripcord up %s' to create it.",
                 name);
    free(names);
}

static int manager_lookup(struct manager *m, const char *name, struct sandbox **ret,
                          struct err *err)
{
    struct sandbox *sb;
    int r = parse_name("sandbox name", name, err);

    if (r < 0)
        return r;
    sb = map_get(&m->sandboxes, name);
    /* A sandbox whose creation is queued counts: the request is queued after that. */
    if (!sb || (sb->state == SANDBOX_ABSENT && !sb->ops)) {
        manager_set_not_found(m, name, err);
        return -ERR_NOT_FOUND;
    }
    *ret = sb;
    return 0;
}

struct sandbox *manager_find(struct manager *m, const char *name, struct err *err)
{
    struct sandbox *sb = NULL;

    return manager_lookup(m, name, &sb, err) < 0 ? NULL : sb;
}

struct sandbox *manager_find_id(struct manager *m, const char *id)
{
    struct sandbox *sb;

    for (size_t i = 0; manager_next(m, &i, &sb);)
        if (STREQ(sb->id, id))
            return sb;
    return NULL;
}

struct engine *manager_engine(struct manager *m, const char *name, struct err *err)
{
    const char *wanted = name ? name : m->config.default_engine, *near;
    _cleanup_strv_ char **names = NULL;
    _cleanup_free_ char *all = NULL;

    for (size_t i = 0; i < m->config.n_engines; i++) {
        if (STREQ(m->config.engines[i]->ops->name, wanted))
            return m->config.engines[i];
        strv_add(&names, m->config.engines[i]->ops->name);
    }
    all = strv_join(names, ", ");
    near = strv_nearest(wanted, (const char *const *)names, strv_len(names));
    err_set(err, ERR_INVALID, "unknown engine '%.60s'; supported: %s", wanted, all);
    if (near)
        err_hint(err, "Did you mean '%s'?", near);
    else
        err_hint(err, "Run 'ripcord doctor' to see the engines and their requirements.");
    return NULL;
}

void manager_tick(struct manager *m)
{
    struct sandbox *sb = NULL;

    for (size_t i = 0; manager_next(m, &i, &sb);) {
        op_check_deadline(sb);
    }
    lease_tick(m);
    recovery_tick(m->recovery);
    output_retention_tick(m);
    exec_linger_tick(m);
    request_keys_tick(m);
    disk_floor_tick(m);
    disk_budget_tick(m);
    engine_watch_tick(m);
    reconcile_tick(m);
}

/* ---- operations ---- */

/* Checks, before anything is queued, that the document is valid, that its engine exists, and
 * that the engine can carry it out. An engine that is closed checks it later. first: the command
 * that the sandbox is made for, or NULL. */
static int manager_check_spec(struct manager *m, const struct sandbox *sb, const json_t *patch,
                              const struct exec_request *first, struct err *err)
{
    _cleanup_(sandbox_spec_done) struct sandbox_spec scratch = {0};
    bool fresh = !sb || sb->state == SANDBOX_ABSENT;
    const struct engine *e;
    const char *name = NULL;
    int r;

    sandbox_spec_copy(&scratch, fresh ? &m->config.defaults : &sb->spec);
    r = spec_apply(&scratch, &name, patch, m->config.mount_roots, err);
    if (r < 0)
        return r;
    r = command_check_total(&scratch, first ? first->argv : NULL, first ? first->env : NULL, err);
    if (r < 0 || !fresh)
        return r;
    e = manager_engine(m, name, err);
    if (!e)
        return err_wrap(err, "field 'engine'");
    return engine_is_open(e) ? engine_check_spec(e, &scratch, err) : 0;
}

static int manager_check_room(const struct manager *m, struct err *err)
{
    if (m->sandboxes.used < SANDBOXES_MAX)
        return disk_floor_check(m, err);
    return err_set(err, ERR_LIMIT, "too many sandboxes (limit %d)", SANDBOXES_MAX);
}

int manager_ensure(struct manager *m, const char *name, const json_t *spec, manager_done_fn done,
                   void *arg, struct err *err)
{
    struct sandbox *sb = NULL;
    struct op *op;
    int r;

    r = parse_name("sandbox name", name, err);
    if (r < 0)
        return r;
    sb = map_get(&m->sandboxes, name);
    r = manager_check_spec(m, sb, spec, NULL, err);
    if (r < 0)
        return r;
    r = sb ? disk_floor_check(m, err) : manager_check_room(m, err);
    if (r < 0)
        return r;
    if (sb && sb->ephemeral)
        return err_set(err, ERR_CONFLICT, "sandbox '%s' is the throw-away sandbox of a 'run'",
                       name);
    if (!sb)
        sb = sandbox_new(m, name);
    op = op_last(sb);
    if (!op || op->type != &op_ensure || op->existing || !json_equal(op->patch, spec)) {
        op = op_push(sb, &op_ensure);
        op->patch = json_deep_copy(spec);
    }
    op_wait(op, done, arg);
    return 0;
}

int manager_stop(struct manager *m, const char *name, uint64_t grace, manager_done_fn done,
                 void *arg, struct err *err)
{
    struct sandbox *sb = NULL;
    struct op *op;
    int r = manager_lookup(m, name, &sb, err);

    if (r < 0)
        return r;
    op = op_last(sb);
    if (!op || op->type != &op_stop) {
        op = op_push(sb, &op_stop);
        op->grace = grace;
        op->why = xstrdup(STOPPED_ON_REQUEST);
    }
    op_wait(op, done, arg);
    return 0;
}

int manager_remove(struct manager *m, const char *name, bool force, manager_done_fn done, void *arg,
                   struct err *err)
{
    struct sandbox *sb = NULL;
    struct op *op;
    int r = manager_lookup(m, name, &sb, err);

    if (r < 0)
        return r;
    op = op_last(sb);
    if (!op || op->type != &op_remove || (force && !op->force)) {
        op = op_push(sb, &op_remove);
        op->force = force;
    }
    op_wait(op, done, arg);
    return 0;
}

int manager_lease(struct manager *m, const char *name, const json_t *leases, manager_done_fn done,
                  void *arg, struct err *err)
{
    struct sandbox_spec scratch = {0};
    struct sandbox *sb = NULL;
    struct op *op;
    int r = manager_lookup(m, name, &sb, err);

    if (r < 0)
        return r;
    r = spec_apply_leases(&scratch, leases, err);
    if (r < 0)
        return r;
    op = op_push(sb, &op_lease);
    op->patch = json_deep_copy(leases);
    op_wait(op, done, arg);
    return 0;
}

int manager_pause(struct manager *m, const char *name, bool on, manager_done_fn done, void *arg,
                  struct err *err)
{
    struct sandbox *sb = NULL;
    struct op *op;
    int r = manager_lookup(m, name, &sb, err);

    if (r < 0)
        return r;
    op = op_push(sb, &op_pause);
    op->on = on;
    op_wait(op, done, arg);
    return 0;
}

/* ---- exec and run ---- */

static void manager_exec_ready(void *arg, const struct err *err, const struct sandbox *sb,
                               enum manager_action action)
{
    struct exec *x = arg;

    (void)action;
    if (x->state != EXEC_STARTING || exec_is_sent(x)) { /* it was queued twice */
        exec_unref(x);
        return;
    }
    if (x->cancelled)
        exec_fail(x, &(struct err){.code = ERR_CONFLICT, .msg = (char *)"the client disconnected"});
    else if (!err && sb->conn)
        exec_launch(x);
    else if (err)
        exec_fail(x, err);
    else if (exec_may_wait(x)) /* it went down just after it was found running */
        manager_start_for(x);
    else
        exec_fail(x, &(struct err){.code = ERR_ENGINE, .msg = (char *)"the sandbox is gone"});
    exec_unref(x);
}

void manager_start_for(struct exec *x)
{
    struct op *op = op_push(x->sb, &op_ensure);

    op->existing = true;
    op_wait(op, manager_exec_ready, exec_ref(x));
}

int manager_exec(struct manager *m, const char *name, struct exec_request *req, struct exec **ret,
                 struct err *err)
{
    struct sandbox *sb = NULL;
    int r = manager_lookup(m, name, &sb, err);

    if (r < 0)
        return r;
    r = sb->ops ? 0 : sandbox_check_awake(sb, err);
    if (r < 0)
        return r;
    r = command_check_total(&sb->spec, req->argv, req->env, err);
    if (r < 0)
        return r;
    r = disk_floor_check(m, err);
    if (r < 0)
        return r;
    r = req->session && !req->concurrent ? session_check_free(sb, err) : 0;
    if (r < 0)
        return r;
    r = sb->conn && !sb->ops ? supervisor_conn_check_exec(sb->conn, req, err) : 0;
    if (r < 0)
        return r;
    r = exec_new(sb, req, ret, err);
    if (r < 0)
        return r;
    if (sb->state == SANDBOX_RUNNING && sb->conn && !sb->ops) {
        exec_launch(*ret); /* its events come from the loop: the caller has time to add a watch */
        return 0;
    }
    manager_start_for(*ret);
    return 0;
}

int manager_run(struct manager *m, const json_t *spec, struct exec_request *req, struct exec **ret,
                struct err *err)
{
    char id[SANDBOX_ID_LEN + 1], name[SANDBOX_NAME_SIZE];
    struct sandbox *sb = NULL;
    struct op *op;
    int r;

    r = manager_check_spec(m, NULL, spec, req, err);
    if (r < 0)
        return r;
    r = manager_check_room(m, err);
    if (r < 0)
        return r;
    r = random_hex(id, err);
    if (r < 0)
        return r;
    snprintf(name, sizeof(name), "run-%s", id);
    sb = sandbox_new(m, name);
    memcpy(sb->id, id, sizeof(sb->id));
    sb->ephemeral = true;
    r = exec_new(sb, req, ret, err);
    if (r < 0) {
        sandbox_free(sb);
        return r;
    }
    op = op_push(sb, &op_ensure);
    op->patch = json_deep_copy(spec);
    op_wait(op, manager_exec_ready, exec_ref(*ret));
    return 0;
}
