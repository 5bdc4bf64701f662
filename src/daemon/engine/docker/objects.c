/*
 * Lists the objects on the engine for reconcile: ours by label, those of an earlier system
 * ("legacy") by the configured names. An object with the label of any ripcord root is never legacy,
 * whatever its name.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/recreate.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/pidfd.h"

void legacy_copy(struct legacy *dst, const struct engine_legacy_config *src)
{
    dst->containers = strv_copy(src->containers);
    dst->networks = strv_copy(src->networks);
    dst->volumes = strv_copy(src->volumes);
    dst->label = xstrdup(src->label ? src->label : "");
}

void legacy_done(struct legacy *l)
{
    strv_free(l->containers);
    strv_free(l->networks);
    strv_free(l->volumes);
    free(l->label);
}

/* Splits "key=value". *ret_value is NULL for "key" alone. */
static char *docker_objects_split_label(const char *label, const char **ret_value)
{
    const char *eq = strchr(label, '=');

    *ret_value = eq ? eq + 1 : NULL;
    return xstrndup(label, eq ? (size_t)(eq - label) : strlen(label));
}

void docker_add_label(const char *label, json_t *labels)
{
    _cleanup_free_ char *key = NULL;
    const char *value;

    if (!label || !*label)
        return;
    key = docker_objects_split_label(label, &value);
    json_object_set_new(labels, key, json_string(value ? value : ""));
}

/* ---- asking ---- */

/* `member` is the field of the answer that has the list; NULL: the answer is the list. */
static int docker_objects_fetch(struct docker_engine *d, const char *path, const char *member,
                                const struct deadline *by, json_t **ret, struct err *err)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    int r = docker_ask(d, "GET", path, NULL, by, &reply, err);

    if (r < 0)
        return r;
    *ret = json_incref(member ? json_object_get(reply.json, member) : reply.json);
    return 0;
}

static int docker_objects_fetch_ours(struct docker_engine *d, const char *fmt, const char *member,
                                     const struct deadline *by, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *filters =
        json_pack("{s:[o]}", "label", json_sprintf(LABEL_ROOT "=%s", d->root_id));
    _cleanup_free_ char *text = json_to_text(filters, true), *path = docker_path(fmt, text);

    return docker_objects_fetch(d, path, member, by, ret, err);
}

/* ---- ours ---- */

/* Adds the sandbox that an item belongs to, and returns it. NULL: the item is not ours. */
static struct engine_object *docker_objects_owner(const struct docker_engine *d, const json_t *item,
                                                  struct engine_objects *list)
{
    const json_t *labels = json_object_get(item, "Labels");

    if (!STREQ(docker_text(labels, LABEL_ROOT), d->root_id))
        return NULL;
    return engine_objects_add(list, docker_text(labels, LABEL_ID));
}

/* The spec comes from our own file. If that is lost, the shorter spec of the label is used. */
static char *docker_objects_spec_of(const struct docker_engine *d, const char *id,
                                    const json_t *labels)
{
    _cleanup_free_ char *path = xasprintf("%s/" SPEC_FILE, id);
    char *text = NULL;

    if (file_read(d->execs, path, SPEC_TEXT_MAX, &text, NULL, NULL) >= 0)
        return text;
    return *docker_text(labels, LABEL_SPEC) ? xstrdup(docker_text(labels, LABEL_SPEC)) : NULL;
}

static void docker_objects_take_container(struct docker_engine *d, const json_t *item, bool specs,
                                          struct engine_object *o)
{
    const json_t *labels = json_object_get(item, "Labels");
    const char *state = docker_text(item, "State");

    if (container_is_kept(item)) {
        o->kept = true;
        return;
    }
    container_seen(d, o->id, docker_text(item, "Id"));
    o->whole = true;
    o->up = STREQ(state, "running") || STREQ(state, "paused") || STREQ(state, "restarting");
    snprintf(o->hash, sizeof(o->hash), "%s", docker_text(labels, LABEL_HASH));
    if (!o->name && *docker_text(labels, LABEL_NAME))
        o->name = xstrdup(docker_text(labels, LABEL_NAME));
    if (specs && !o->spec)
        o->spec = docker_objects_spec_of(d, o->id, labels);
}

static int docker_objects_list_ours(struct docker_engine *d, bool specs, const struct deadline *by,
                                    struct engine_objects *ret, struct err *err)
{
    _cleanup_json_ json_t *containers = NULL, *volumes = NULL;
    const json_t *item;
    size_t i;
    int r;

    r = docker_objects_fetch_ours(d, "/containers/json?all=1&filters=%s", NULL, by, &containers,
                                  err);
    if (r < 0)
        return r;
    r = docker_objects_fetch_ours(d, "/volumes?filters=%s", "Volumes", by, &volumes, err);
    if (r < 0)
        return r;
    json_array_foreach (containers, i, item) {
        struct engine_object *o = docker_objects_owner(d, item, ret);

        if (o)
            docker_objects_take_container(d, item, specs, o);
    }
    json_array_foreach (volumes, i, item)
        docker_objects_owner(d, item, ret);
    return 0;
}

/* Sandboxes that have a folder in our state (execs) or run folder (relay, socket, log). */
static int docker_objects_list_folders(struct docker_engine *d, struct engine_objects *ret,
                                       struct err *err)
{
    _cleanup_strv_ char **ids = NULL;
    int r;

    r = sandbox_ids_add(d->execs, &ids, err);
    if (r < 0)
        return r;
    r = sandbox_ids_add(d->runs, &ids, err);
    if (r < 0)
        return r;
    for (char **id = ids; id && *id; id++)
        engine_objects_add(ret, *id);
    return 0;
}

/* ---- legacy ---- */

static bool docker_objects_has_label(const json_t *labels, const char *label)
{
    _cleanup_free_ char *key = NULL;
    const char *want, *have;

    if (!*label)
        return true;
    key = docker_objects_split_label(label, &want);
    have = json_string_value(json_object_get(labels, key));
    return have && (!want || STREQ(have, want));
}

static const char *docker_objects_name_of(enum object_kind kind, const json_t *item)
{
    const char *name;

    if (kind != OBJECT_CONTAINER)
        return docker_text(item, "Name");
    name = json_string_value(json_array_get(json_object_get(item, "Names"), 0));
    return name ? name + (*name == '/') : "";
}

/* Only containers must have the legacy label: that system's networks and volumes have none. */
static bool docker_objects_is_legacy(const struct docker_engine *d, enum object_kind kind,
                                     const json_t *item, char *const *patterns)
{
    const json_t *labels = json_object_get(item, "Labels");
    const char *name = docker_objects_name_of(kind, item);

    if (json_object_get(labels, LABEL_ROOT) ||
        (kind == OBJECT_CONTAINER && !docker_objects_has_label(labels, d->legacy.label)))
        return false;
    for (; patterns && *patterns; patterns++)
        if (fnmatch(*patterns, name, FNM_NOESCAPE) == 0)
            return true;
    return false;
}

static int docker_objects_list_legacy(struct docker_engine *d, enum object_kind kind,
                                      char *const *patterns, const struct deadline *by,
                                      struct engine_objects *ret, struct err *err)
{
    static const char *const paths[] = {
        [OBJECT_CONTAINER] = "/containers/json?all=1",
        [OBJECT_NETWORK] = "/networks",
        [OBJECT_VOLUME] = "/volumes",
    };
    _cleanup_json_ json_t *list = NULL;
    const json_t *item;
    size_t i;
    int r;

    if (!patterns || !*patterns)
        return 0;
    r = docker_objects_fetch(d, paths[kind], kind == OBJECT_VOLUME ? "Volumes" : NULL, by, &list,
                             err);
    if (r < 0)
        return r;
    /* By id if there is one, because another object may get the same name later. */
    json_array_foreach (list, i, item)
        if (docker_objects_is_legacy(d, kind, item, patterns))
            engine_objects_add_legacy(ret, kind, docker_objects_name_of(kind, item),
                                      docker_text(item, kind == OBJECT_VOLUME ? "Name" : "Id"));
    return 0;
}

int docker_list(struct engine *e, bool specs, const struct deadline *by, struct engine_objects *ret,
                struct err *err)
{
    struct docker_engine *d = docker_of(e);
    const struct legacy *l = &d->legacy;
    int r;

    r = docker_objects_list_ours(d, specs, by, ret, err);
    if (r < 0)
        return r;
    r = docker_objects_list_folders(d, ret, err);
    if (r < 0)
        return r;
    r = docker_objects_list_legacy(d, OBJECT_CONTAINER, l->containers, by, ret, err);
    if (r < 0)
        return r;
    r = docker_objects_list_legacy(d, OBJECT_NETWORK, l->networks, by, ret, err);
    if (r < 0)
        return r;
    return docker_objects_list_legacy(d, OBJECT_VOLUME, l->volumes, by, ret, err);
}

/* ---- running commands ---- */

static bool docker_objects_is_here(const json_t *pid, const char *container)
{
    _cleanup_close_ int fd = -1;
    pid_t n = (pid_t)json_integer_value(pid);

    return n > 1 && pidfd_open_pid(n, &fd, NULL) >= 0 && pidfd_in_cgroup(fd, n, container);
}

/*
 * Podman reports a detached exec as running for five minutes after its end. If the container's own
 * process is on this machine, the exec's process is too, and its absence shows the end.
 */
static bool docker_objects_has_gone(const json_t *exec, const json_t *container)
{
    const json_t *state = json_object_get(container, "State"), *pid = json_object_get(exec, "Pid");
    const char *id = docker_text(container, "Id");

    return json_integer_value(pid) > 1 && !docker_objects_is_here(pid, id) &&
           docker_objects_is_here(json_object_get(state, "Pid"), id);
}

static int docker_objects_exec_runs(struct docker_engine *d, const char *exec,
                                    const json_t *container, const struct deadline *by, bool *ret,
                                    struct err *err)
{
    _cleanup_free_ char *path = docker_path("/exec/%s/json", exec);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_err_ struct err why = ERR_INIT;
    int r = docker_ask(d, "GET", path, NULL, by, &reply, &why);

    if (r < 0 && r != -ERR_NOT_FOUND)
        return err_move(err, &why);
    *ret = r >= 0 && json_is_true(json_object_get(reply.json, "Running")) &&
           !docker_objects_has_gone(reply.json, container);
    return 0;
}

static int docker_objects_count_execs(struct docker_engine *d, const char *container,
                                      const struct deadline *by, unsigned *ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const json_t *id;
    size_t i;
    int r;

    r = container_inspect(d, container, by, &doc, err);
    if (r < 0)
        return r;
    json_array_foreach (json_object_get(doc, "ExecIDs"), i, id) {
        bool runs = false;

        if (!json_is_string(id))
            continue;
        r = docker_objects_exec_runs(d, json_string_value(id), doc, by, &runs, err);
        if (r < 0)
            return r;
        *ret += runs;
    }
    return 0;
}

int docker_live(struct engine *e, const struct engine_object *o, const struct deadline *by,
                unsigned *ret, struct err *err)
{
    struct docker_engine *d = docker_of(e);
    _cleanup_free_ char *container = NULL;
    _cleanup_err_ struct err why = ERR_INIT;
    unsigned n = 0;
    int r = 0;

    if (o->kind == OBJECT_SANDBOX)
        r = container_find(d, o->id, by, &container, &why);
    else if (o->kind == OBJECT_CONTAINER)
        container = xstrdup(o->ref);
    if (r == 0 && container)
        r = docker_objects_count_execs(d, container, by, &n, &why);
    if (r < 0 && r != -ERR_NOT_FOUND)
        return err_move(err, &why);
    *ret = n;
    return 0;
}

/* ---- ending and removing ---- */

/* Ends a sandbox before its removal. Docker reads all mounts of the machine several times for each
 * removal, and every running container has three. Ending them all first makes removals faster. */
bool docker_end(struct engine *e, const char *id, const struct deadline *by)
{
    struct docker_engine *d = docker_of(e);
    _cleanup_free_ char *container = NULL;

    return container_find(d, id, by, &container, NULL) >= 0 && container &&
           container_kill_here(d, container, by);
}

int docker_remove_legacy(struct engine *e, const struct engine_object *o, const struct deadline *by,
                         struct err *err)
{
    struct docker_engine *d = docker_of(e);
    _cleanup_free_ char *path = NULL;
    _cleanup_err_ struct err why = ERR_INIT;

    if (o->kind == OBJECT_CONTAINER)
        return container_remove(d, o->ref, by, err);
    path = docker_path(o->kind == OBJECT_NETWORK ? "/networks/%s" : "/volumes/%s", o->ref);
    if (docker_ask(d, "DELETE", path, NULL, by, NULL, &why) >= 0 || why.code == ERR_NOT_FOUND)
        return 0;
    return err_move(err, &why);
}
