#include "daemon/core/doctor/try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/doctor/features.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/engine/doctor.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

#define DOCTOR_COMMAND_TIMEOUT (20 * USEC_PER_SEC)

/* If the daemon is killed meanwhile: a minute after its start it is stopped, and then removed. */
enum { DOCTOR_LEASE_MS = 60000 };

struct doctor_try {
    struct doctor_try *next;
    struct manager *m;
    const struct doctor_feature *f;
    size_t which;
    char name[SANDBOX_NAME_SIZE]; /* of a sandbox that is kept */
    struct exec *exec;            /* a reference, while it is watched */
    struct exec_watch watch;
    struct loop_timer *later; /* reports a failure that is known at once */
    uint64_t began;
    struct err err;
    struct doctor_try **list;
    doctor_try_fn fn;
    void *arg;
};

struct doctor_try *doctor_try_next(const struct doctor_try *t)
{
    return t->next;
}

void doctor_try_stop(struct doctor_try *t)
{
    if (!t->exec)
        return;
    exec_watch_remove(t->exec, &t->watch);
    exec_unref(TAKE_PTR(t->exec));
}

void doctor_try_free(struct doctor_try *t)
{
    struct doctor_try **list = t->list;

    while (*list != t)
        list = &(*list)->next;
    *list = t->next;
    doctor_try_stop(t);
    loop_timer_free(t->later);
    err_done(&t->err);
    free(t);
}

/* ---- the line ---- */

/* The name of a throw-away sandbox means nothing to a user: "start sandbox 'run-…': reason". */
static const char *doctor_try_reason(const char *msg)
{
    static const char prefix[] = "start sandbox '";
    const char *end = strncmp(msg, prefix, strlen(prefix)) == 0 ? strstr(msg, "': ") : NULL;

    return end ? end + 3 : msg;
}

/* A folder that no sandbox may have says nothing about mounts. */
static bool doctor_try_is_moot(const struct doctor_try *t)
{
    return t->f->kind == DOCTOR_FEATURE_MOUNT &&
           (t->err.code == ERR_DENIED || t->err.code == ERR_INVALID ||
            t->err.code == ERR_NOT_FOUND);
}

static json_t *doctor_try_line(const struct doctor_try *t)
{
    const struct doctor_feature *f = t->f;
    uint64_t ms = (time_mono() - t->began) / USEC_PER_MSEC;
    _cleanup_free_ char *text = NULL;

    if (!t->err.code) {
        text = f == &doctor_plain_start ? xasprintf("%s in %llu ms", f->ok, (unsigned long long)ms)
                                        : xstrdup(f->ok);
        return doctor_line_to_json(f->name, DOCTOR_OK, text, NULL);
    }
    if (doctor_try_is_moot(t)) {
        text = xasprintf("not tried here: %s", t->err.msg);
        return doctor_line_to_json(f->name, DOCTOR_OK, text, NULL);
    }
    return doctor_line_to_json(f->name, f->bad, doctor_try_reason(t->err.msg),
                               t->err.hint ? t->err.hint : "See the log of the daemon.");
}

static void doctor_try_report(void *arg)
{
    struct doctor_try *t = arg;
    json_t *line = doctor_try_line(t);
    doctor_try_fn fn = t->fn;
    void *owner = t->arg;
    size_t which = t->which;

    doctor_try_free(t);
    fn(owner, which, line);
}

/* Takes the failure, the first one counts. */
static void doctor_try_fail(struct doctor_try *t, const struct err *err)
{
    if (!t->err.code)
        err_copy(&t->err, err);
}

/* Not from within the call that began the try. */
static void doctor_try_report_later(struct doctor_try *t)
{
    t->later = loop_timer_new(t->m->loop, doctor_try_report, t);
    loop_timer_set(t->later, 0, false);
}

/* ---- a run ---- */

static void doctor_try_check_end(const struct exec *x, struct err *err)
{
    const struct end_record *end = &x->end;

    if (x->start_err.code) {
        err_copy(err, &x->start_err);
    } else if (end->cause == END_START_FAILED) {
        err_set(err, end->error, "%s", end->message);
        if (*end->hint)
            err_hint(err, "%s", end->hint);
    } else if (end->cause != END_EXITED || end->exit_code != 0) {
        err_set(err, ERR_ENGINE, "the command 'true' ended with status %d (%s)",
                end_record_status(end), end_cause_name(end->cause));
    }
}

static void doctor_try_on_exec(void *arg, enum exec_event event)
{
    struct doctor_try *t = arg;

    if (event != EXEC_EVENT_ENDED)
        return;
    doctor_try_check_end(t->exec, &t->err);
    doctor_try_stop(t);
    doctor_try_report(t);
}

/* The spec of a run: that of the feature, or one with the mount. */
static json_t *doctor_try_spec(const struct doctor_try *t, const char *folder)
{
    json_t *spec = NULL;

    if (t->f->kind == DOCTOR_FEATURE_MOUNT)
        return json_pack("{s:[{s:s, s:s}]}", "mounts", "source", folder, "target", "/mnt/doctor");
    json_parse("feature", t->f->spec, strlen(t->f->spec), &spec, NULL);
    return spec;
}

static void doctor_try_run(struct doctor_try *t, const char *folder)
{
    _cleanup_json_ json_t *spec = doctor_try_spec(t, folder);
    struct exec_request req = {.timeout = DOCTOR_COMMAND_TIMEOUT};
    int r;

    strv_add(&req.argv, "true");
    r = manager_run(t->m, spec, &req, &t->exec, &t->err);
    exec_request_done(&req);
    if (r < 0) {
        doctor_try_report_later(t);
        return;
    }
    t->watch = (struct exec_watch){.fn = doctor_try_on_exec, .arg = t};
    exec_watch_add(t->exec, &t->watch);
}

/* ---- a sandbox that is kept ---- */

static void doctor_try_removed(void *arg, const struct err *err, const struct sandbox *sb,
                               enum manager_action action)
{
    struct doctor_try *t = arg;

    (void)sb;
    (void)action;
    if (t->m->closing)
        return;
    if (err && err->code != ERR_NOT_FOUND)
        doctor_try_fail(t, err);
    doctor_try_report(t);
}

static void doctor_try_remove(struct doctor_try *t)
{
    if (!t->m->closing && manager_remove(t->m, t->name, true, doctor_try_removed, t, NULL) < 0)
        doctor_try_report_later(t);
}

static void doctor_try_resumed(void *arg, const struct err *err, const struct sandbox *sb,
                               enum manager_action action)
{
    struct doctor_try *t = arg;

    (void)sb;
    (void)action;
    if (err)
        doctor_try_fail(t, err);
    doctor_try_remove(t);
}

static void doctor_try_paused(void *arg, const struct err *err, const struct sandbox *sb,
                              enum manager_action action)
{
    struct doctor_try *t = arg;

    (void)sb;
    (void)action;
    if (err)
        doctor_try_fail(t, err);
    if (err || t->m->closing ||
        manager_pause(t->m, t->name, false, doctor_try_resumed, t, &t->err) < 0)
        doctor_try_remove(t);
}

static void doctor_try_ensured(void *arg, const struct err *err, const struct sandbox *sb,
                               enum manager_action action)
{
    struct doctor_try *t = arg;

    (void)sb;
    (void)action;
    if (err)
        doctor_try_fail(t, err);
    if (err || t->m->closing || t->f->kind != DOCTOR_FEATURE_PAUSE ||
        manager_pause(t->m, t->name, true, doctor_try_paused, t, &t->err) < 0)
        doctor_try_remove(t);
}

static void doctor_try_keep(struct doctor_try *t)
{
    _cleanup_json_ json_t *spec =
        json_pack("{s:i, s:i}", "max_life_ms", DOCTOR_LEASE_MS, "rm_after_ms", DOCTOR_LEASE_MS);
    char id[SANDBOX_ID_LEN + 1];
    int r = random_hex(id, &t->err);

    if (r >= 0) {
        snprintf(t->name, sizeof(t->name), "doctor-%s", id);
        r = manager_ensure(t->m, t->name, spec, doctor_try_ensured, t, &t->err);
    }
    if (r < 0)
        doctor_try_report_later(t);
}

void doctor_try_begin(struct manager *m, const struct doctor_feature *f, size_t which,
                      const char *folder, struct doctor_try **list, doctor_try_fn fn, void *arg)
{
    struct doctor_try *t = xnew0(struct doctor_try);

    *t = (struct doctor_try){.next = *list,
                             .m = m,
                             .f = f,
                             .which = which,
                             .began = time_mono(),
                             .list = list,
                             .fn = fn,
                             .arg = arg};
    *list = t;
    if (f->kind == DOCTOR_FEATURE_KEPT || f->kind == DOCTOR_FEATURE_PAUSE)
        doctor_try_keep(t);
    else
        doctor_try_run(t, folder);
}
