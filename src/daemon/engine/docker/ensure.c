/*
 * Creating a volume is idempotent: the engine answers with the existing one. Creating a network is
 * not even atomic: twenty parallel creates with CheckDuplicate make twenty networks on Docker. So a
 * process creates the network, lists all networks of that name, uses the oldest, and removes the
 * others. Each process lists after its own create, so the last one to list sees all of them.
 */
#include "daemon/engine/docker/ensure.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/created.h"
#include "daemon/engine/wait.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"

#define OPTION_ICC "com.docker.network.bridge.enable_icc"

struct ensured_object {
    bool ready, busy;
    bool stale; /* forgotten while a caller was creating it */
    unsigned tries;
    struct err failure;
    char *value;
};

/* ---- one request for all callers ---- */

void ensured_init(struct ensured *e)
{
    *e = (struct ensured){0};
    pthread_mutex_init(&e->lock, NULL);
    wait_cond_init(&e->changed);
}

void ensured_done(struct ensured *e)
{
    void *value;

    for (size_t i = 0; map_next(&e->objects, &i, NULL, &value);) {
        struct ensured_object *o = value;

        err_done(&o->failure);
        free(o->value);
        free(o);
    }
    map_done(&e->objects);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
}

static void ensure_forget(struct ensured_object *o)
{
    o->ready = false;
    o->stale = o->busy;
}

void ensured_forget(struct ensured *e, const char *kind, const char *name)
{
    _cleanup_free_ char *key = xasprintf("%s %s", kind, name);
    struct ensured_object *o;

    pthread_mutex_lock(&e->lock);
    o = map_get(&e->objects, key);
    if (o)
        ensure_forget(o);
    pthread_mutex_unlock(&e->lock);
}

void ensured_forget_all(struct ensured *e)
{
    void *value;

    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; map_next(&e->objects, &i, NULL, &value);)
        ensure_forget(value);
    pthread_mutex_unlock(&e->lock);
}

struct ensure_job {
    struct docker_engine *d;
    const char *kind, *name, *id;
    int (*make)(const struct ensure_job *job, const struct deadline *by, char **ret,
                struct err *err);
};

/* Called with the lock held; releases it while the engine works. */
static int ensure_run_job(const struct ensure_job *job, struct ensured_object *o,
                          const struct deadline *by, struct err *err)
{
    struct ensured *e = &job->d->ensured;
    _cleanup_err_ struct err why = ERR_INIT;
    char *value = NULL;
    int r;

    o->busy = true;
    o->stale = false;
    pthread_mutex_unlock(&e->lock);
    r = job->make(job, by, &value, &why);
    pthread_mutex_lock(&e->lock);
    o->busy = false;
    o->ready = r >= 0 && !o->stale;
    o->tries++;
    free(o->value);
    o->value = value;
    err_done(&o->failure);
    if (r < 0)
        err_copy(&o->failure, &why);
    pthread_cond_broadcast(&e->changed);
    return r < 0 ? err_move(err, &why) : 0;
}

/* Called with the lock held: waits for the result of another caller. */
static int ensure_await_job(const struct ensure_job *job, struct ensured_object *o,
                            const struct deadline *by, struct err *err)
{
    unsigned tries = o->tries;

    while (o->tries == tries) {
        if (deadline_passed(by))
            return err_set(err, ERR_TIMEOUT, "timed out while another request creates it");
        wait_a_slice(&job->d->ensured.changed, &job->d->ensured.lock);
    }
    return o->failure.code ? err_copy(err, &o->failure) : 0;
}

static int ensure(const struct ensure_job *job, const struct deadline *by, char **ret,
                  struct err *err)
{
    _cleanup_free_ char *key = xasprintf("%s %s", job->kind, job->name);
    struct ensured *e = &job->d->ensured;
    struct ensured_object *o;
    int r = 0;

    pthread_mutex_lock(&e->lock);
    o = map_get(&e->objects, key);
    if (!o) {
        o = xnew0(struct ensured_object);
        map_add(&e->objects, key, o);
    }
    if (!o->ready)
        r = o->busy ? ensure_await_job(job, o, by, err) : ensure_run_job(job, o, by, err);
    if (r == 0 && ret)
        *ret = xstrdup(o->value ? o->value : "");
    pthread_mutex_unlock(&e->lock);
    return r < 0 ? err_wrap(err, "%s '%s'", job->kind, job->name) : 0;
}

/* ---- checking existing objects ---- */

static int ensure_differs(const struct ensure_job *job, const char *what, const char *key,
                          const char *have, const char *want, struct err *err)
{
    err_set(err, ERR_CONFLICT,
            "exists but was not created by ripcord: %s%s%s is '%.200s', not '%s'", what,
            *key ? " " : "", key, have, want);
    return err_hint(err,
                    "Remove that %s, or choose other names with 'docker.prefix' in ripcord.yaml.",
                    job->kind);
}

static int ensure_check_label(const struct ensure_job *job, const json_t *doc, const char *key,
                              const char *want, struct err *err)
{
    const char *have = docker_text(json_object_get(doc, "Labels"), key);

    return STREQ(have, want) ? 0 : ensure_differs(job, "label", key, have, want, err);
}

static int ensure_check_driver(const struct ensure_job *job, const json_t *doc, const char *want,
                               struct err *err)
{
    const char *have = docker_text(doc, "Driver");

    return STREQ(have, want) ? 0 : ensure_differs(job, "driver", "", have, want, err);
}

static int ensure_check_owner(const struct ensure_job *job, const json_t *doc, struct err *err)
{
    int r;

    if (!job->id)
        return ensure_check_label(job, doc, LABEL_SHARED, job->d->prefix, err);
    r = ensure_check_label(job, doc, LABEL_ROOT, job->d->root_id, err);
    if (r < 0)
        return r;
    return ensure_check_label(job, doc, LABEL_ID, job->id, err);
}

static json_t *ensure_labels_of(const struct ensure_job *job)
{
    json_t *o = json_pack("{s:s}", LABEL_ROOT, job->d->root_id);

    if (job->id)
        json_object_set_new(o, LABEL_ID, json_string(job->id));
    else
        json_object_set_new(o, LABEL_SHARED, json_string(job->d->prefix));
    docker_add_label(job->d->label, o);
    return o;
}

/* ---- volumes ---- */

static int ensure_check_volume(const struct ensure_job *job, const json_t *doc, struct err *err)
{
    const json_t *options = json_object_get(doc, "Options");
    int r;

    r = ensure_check_driver(job, doc, "local", err);
    if (r < 0)
        return r;
    r = ensure_check_owner(job, doc, err);
    if (r < 0)
        return r;
    if (json_object_size(options) == 0)
        return 0;
    return ensure_differs(job, "option", json_object_iter_key(json_object_iter((json_t *)options)),
                          "set", "", err);
}

static int ensure_make_volume(const struct ensure_job *job, const struct deadline *by, char **ret,
                              struct err *err)
{
    _cleanup_json_ json_t *body = json_pack("{s:s, s:s, s:o}", "Name", job->name, "Driver", "local",
                                            "Labels", ensure_labels_of(job));
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    int r;

    (void)ret;
    r = docker_ask(job->d, "POST", "/volumes/create", body, by, &reply, err);
    return r < 0 ? r : ensure_check_volume(job, reply.json, err);
}

int ensure_volume(struct docker_engine *d, const char *name, const char *id,
                  const struct deadline *by, struct err *err)
{
    const struct ensure_job job = {
        .d = d, .kind = "volume", .name = name, .id = id, .make = ensure_make_volume};

    /* Only one caller needs a sandbox's own volume, so its result is not cached. */
    if (!id)
        return ensure(&job, by, NULL, err);
    return ensure_make_volume(&job, by, NULL, err) < 0 ? err_wrap(err, "volume '%s'", name) : 0;
}

/* ---- the network ---- */

static int ensure_check_network(const struct ensure_job *job, const json_t *doc, struct err *err)
{
    const char *icc = docker_text(json_object_get(doc, "Options"), OPTION_ICC);
    int r;

    r = ensure_check_driver(job, doc, "bridge", err);
    if (r < 0)
        return r;
    r = ensure_check_owner(job, doc, err);
    if (r < 0)
        return r;
    /* Podman does not have this option and does not show it. */
    if (docker_client(job->d)->flavour != DOCKER_FLAVOUR_DOCKER || STREQ(icc, "false"))
        return 0;
    return ensure_differs(job, "option", OPTION_ICC, icc, "false", err);
}

static bool ensure_is_ours(const struct ensure_job *job, const json_t *doc)
{
    return STREQ(docker_text(json_object_get(doc, "Labels"), LABEL_SHARED), job->d->prefix);
}

/* Networks of exactly that name: the engine's filter also finds names that contain it. */
static int ensure_list_networks(const struct ensure_job *job, const struct deadline *by,
                                json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *filters = json_pack("{s:[s]}", "name", job->name);
    _cleanup_free_ char *text = json_to_text(filters, true);
    _cleanup_free_ char *path = docker_path("/networks?filters=%s", text);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    json_t *item;
    size_t i;
    int r;

    r = docker_ask(job->d, "GET", path, NULL, by, &reply, err);
    if (r < 0)
        return r;
    *ret = json_array();
    json_array_foreach (reply.json, i, item)
        if (STREQ(docker_text(item, "Name"), job->name))
            json_array_append(*ret, item);
    return 0;
}

/* The network that all processes use: the oldest of ours, else the oldest of that name. */
static const json_t *ensure_choose_network(const struct ensure_job *job, const json_t *list)
{
    const json_t *best = NULL, *item;
    size_t i;

    json_array_foreach (list, i, item) {
        if (!best || (ensure_is_ours(job, item) && !ensure_is_ours(job, best)) ||
            (ensure_is_ours(job, item) == ensure_is_ours(job, best) &&
             created_before(docker_text(item, "Created"), docker_text(item, "Id"),
                            docker_text(best, "Created"), docker_text(best, "Id"))))
            best = item;
    }
    return best;
}

static void ensure_remove_others(const struct ensure_job *job, const json_t *list,
                                 const json_t *kept, const struct deadline *by)
{
    const json_t *item;
    size_t i;

    json_array_foreach (list, i, item) {
        _cleanup_free_ char *path = docker_path("/networks/%s", docker_text(item, "Id"));
        _cleanup_err_ struct err err = ERR_INIT;

        if (item == kept || !ensure_is_ours(job, item))
            continue;
        /* Another process may have removed it first. */
        if (docker_ask(job->d, "DELETE", path, NULL, by, NULL, &err) < 0)
            log_debug("network %s: cannot remove the duplicate %s: %s", job->name,
                      docker_text(item, "Id"), err.msg);
    }
}

static int ensure_settle_network(const struct ensure_job *job, const json_t *list,
                                 const struct deadline *by, char **ret, struct err *err)
{
    const json_t *best = ensure_choose_network(job, list);
    int r;

    if (!best)
        return err_set(err, ERR_ENGINE, "created, but the engine does not list it");
    r = ensure_check_network(job, best, err);
    if (r < 0)
        return r;
    if (json_array_size(list) > 1)
        ensure_remove_others(job, list, best, by);
    *ret = xstrdup(docker_text(best, "Id"));
    return 0;
}

static int ensure_create_network(const struct ensure_job *job, const struct deadline *by,
                                 struct err *err)
{
    _cleanup_json_ json_t *body = json_pack("{s:s, s:s, s:b, s:{s:s}, s:o}", "Name", job->name,
                                            "Driver", "bridge", "CheckDuplicate", 1, "Options",
                                            OPTION_ICC, "false", "Labels", ensure_labels_of(job));
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_err_ struct err why = ERR_INIT;

    if (docker_ask(job->d, "POST", "/networks/create", body, by, &reply, &why) >= 0)
        return 0;
    if (reply.reason ==
        DOCKER_NETWORK_EXISTS) /* another process was faster: the list shows its network */
        return 0;
    return err_move(err, &why);
}

static int ensure_make_network(const struct ensure_job *job, const struct deadline *by, char **ret,
                               struct err *err)
{
    _cleanup_json_ json_t *before = NULL, *after = NULL;
    int r;

    r = ensure_list_networks(job, by, &before, err);
    if (r < 0)
        return r;
    if (json_array_size(before) > 0)
        return ensure_settle_network(job, before, by, ret, err);
    r = ensure_create_network(job, by, err);
    if (r < 0)
        return r;
    r = ensure_list_networks(job, by, &after, err);
    if (r < 0)
        return r;
    return ensure_settle_network(job, after, by, ret, err);
}

int ensure_network(struct docker_engine *d, const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_free_ char *name = xasprintf("%s-net", d->prefix);
    const struct ensure_job job = {
        .d = d, .kind = "network", .name = name, .make = ensure_make_network};

    return ensure(&job, by, ret, err);
}
