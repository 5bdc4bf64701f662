/*
 * The order: the engines' own lines (which also look at their capabilities again, so that a
 * program that was installed a minute ago counts), the plain start, then the features.
 * Without a plain start only features that need no namespaces are tried: the others would fail with
 * the same words.
 */
#include "daemon/core/doctor/doctor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/core/doctor/features.h"
#include "daemon/core/doctor/try.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/engine/doctor.h"
#include "daemon/engine/engine-check.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

enum { DOCTORS_MAX = 8 };

/* A question to an engine for its lines. */
struct doctor_question {
    struct doctor *doctor;
    size_t engine; /* its number */
};

struct doctor {
    struct doctor *next;
    struct manager *m;
    struct engine *engine; /* that starts sandboxes when a user names none */
    char *folder;
    struct doctor_question *questions;  /* one for each engine */
    size_t asked;                       /* engines that have not answered yet */
    json_t *lines;                      /* an array for each engine */
    json_t *start;                      /* line of the plain start */
    json_t *tried[DOCTOR_FEATURES_MAX]; /* lines of the features, in the order of the table */
    struct doctor_try *tries;           /* running */
    doctor_done_fn done;
    void *arg;
};

static void doctor_free(struct doctor *d)
{
    for (struct doctor **at = &d->m->doctors; *at; at = &(*at)->next) {
        if (*at != d)
            continue;
        *at = d->next;
        break;
    }
    while (d->tries)
        doctor_try_free(d->tries);
    for (size_t i = 0; i < ARRAY_SIZE(d->tried); i++)
        json_decref(d->tried[i]);
    json_decref(d->lines);
    json_decref(d->start);
    free(d->questions);
    free(d->folder);
    free(d);
}

void doctors_drop(struct manager *m)
{
    while (m->doctors)
        doctor_free(m->doctors);
}

void doctors_end(struct manager *m)
{
    const struct err why = {.code = ERR_ENGINE, .msg = (char *)"the daemon is shutting down"};

    for (struct doctor *d = m->doctors; d; d = d->next) {
        if (d->done)
            d->done(d->arg, &why, NULL);
        d->done = NULL;
        for (struct doctor_try *t = d->tries; t; t = doctor_try_next(t))
            doctor_try_stop(t);
    }
}

/* ---- the report ---- */

/* Says who looked: a start depends on the place of the daemon, not on that of the caller. */
static json_t *doctor_line_of_daemon(const struct manager *m)
{
    _cleanup_free_ char *text =
        xasprintf("pid %d, uid %d, state in '%s'", (int)getpid(), (int)geteuid(),
                  m->config.state_dir ? m->config.state_dir : "-");

    return doctor_line_to_json("daemon", DOCTOR_OK, text, NULL);
}

static bool doctor_line_failed(const json_t *line)
{
    const char *status = json_string_value(json_object_get(line, "status"));

    return status && STREQ(status, doctor_status_name(DOCTOR_FAIL));
}

static void doctor_report(struct doctor *d)
{
    _cleanup_json_ json_t *checks = json_array(), *report = NULL;
    bool ok = true;
    json_t *line, *lines;
    size_t i;

    if (d->m->closing) /* doctors_end() has answered */
        return;
    json_array_append_new(checks, doctor_line_of_daemon(d->m));
    json_array_append(checks, d->start);
    for (i = 0; i < ARRAY_SIZE(d->tried); i++)
        if (d->tried[i])
            json_array_append(checks, d->tried[i]);
    json_array_foreach (d->lines, i, lines)
        json_array_extend(checks, lines);
    json_array_foreach (checks, i, line)
        ok &= !doctor_line_failed(line);
    report = json_pack("{s:b, s:O}", "ok", ok, "checks", checks);
    d->done(d->arg, NULL, report);
    doctor_free(d);
}

/* ---- features ---- */

static void doctor_feature_tried(void *arg, size_t which, json_t *line)
{
    struct doctor *d = arg;

    d->tried[which] = line;
    if (!d->tries) /* this was the last one */
        doctor_report(d);
}

/* A feature that needs an image of its own cannot be tried on the default one: the engine's word
 * counts. */
static json_t *doctor_by_capability(const struct doctor *d, const struct doctor_feature *f)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (d->engine->caps & f->cap)
        return doctor_line_to_json(f->name, DOCTOR_OK, f->ok, NULL);
    err_set(&err, ERR_UNSUPPORTED, "not available");
    engine_check_lack(d->engine, f->cap, &err);
    return doctor_line_to_json(f->name, f->bad, err.msg, err.hint);
}

static void doctor_try_features(struct doctor *d, bool started)
{
    for (size_t i = 0; i < doctor_n_features; i++) {
        const struct doctor_feature *f = &doctor_features[i];

        if (!started && !f->always)
            continue;
        if (f->kind == DOCTOR_FEATURE_CAPABILITY)
            d->tried[i] = doctor_by_capability(d, f);
        else if (f->kind != DOCTOR_FEATURE_MOUNT || d->folder)
            doctor_try_begin(d->m, f, i, d->folder, &d->tries, doctor_feature_tried, d);
    }
    if (!d->tries)
        doctor_report(d);
}

/* ---- the plain start ---- */

static void doctor_started(void *arg, size_t which, json_t *line)
{
    struct doctor *d = arg;

    (void)which;
    d->start = line;
    if (d->engine->ops->starts_fast)
        doctor_try_features(d, !doctor_line_failed(d->start));
    else
        doctor_report(d);
}

static void doctor_asked(void *arg, const struct err *err, const char *json)
{
    const struct doctor_question *q = arg;
    struct doctor *d = q->doctor;
    json_t *lines = NULL;

    if (!err && json_parse("the engine's lines", json, strlen(json), &lines, NULL) >= 0)
        json_array_set_new(d->lines, q->engine, lines);
    d->m->background_calls--;
    if (--d->asked || d->m->closing)
        return;
    doctor_try_begin(d->m, &doctor_plain_start, 0, NULL, &d->tries, doctor_started, d);
}

static int doctor_check_room(const struct manager *m, struct err *err)
{
    int n = 0;

    for (const struct doctor *d = m->doctors; d; d = d->next)
        n++;
    return n < DOCTORS_MAX
               ? 0
               : err_set(err, ERR_LIMIT, "the doctor is running already (limit %d)", DOCTORS_MAX);
}

int manager_doctor(struct manager *m, const char *folder, doctor_done_fn done, void *arg,
                   struct err *err)
{
    const struct manager_config *c = &m->config;
    struct engine *engine;
    struct doctor *d;
    int r = doctor_check_room(m, err);

    if (r < 0)
        return r;
    engine = manager_engine(m, NULL, err);
    if (!engine)
        return -(int)err->code;
    d = xnew0(struct doctor);
    *d = (struct doctor){.next = m->doctors,
                         .m = m,
                         .engine = engine,
                         .folder = folder ? xstrdup(folder) : NULL,
                         .questions = xcalloc(c->n_engines, sizeof(*d->questions)),
                         .lines = json_array(),
                         .done = done,
                         .arg = arg};
    m->doctors = d;
    for (size_t i = 0; i < c->n_engines; i++, d->asked++, m->background_calls++) {
        json_array_append_new(d->lines, json_array());
        d->questions[i] = (struct doctor_question){d, i};
        engine_doctor(c->engines[i], c->engines[i] == engine, doctor_asked, &d->questions[i]);
    }
    return 0;
}
