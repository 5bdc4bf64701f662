#include "image/build/step.h"

#include <string.h>

#include "image/build/copy.h"
#include "image/build/mount-placeholders.h"
#include "image/build/mounts.h"
#include "image/store/accounts.h"
#include "lib/base/base64.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

/* In base64, so that a line can have the largest command: JSON writes some bytes as six, and cannot
 * have bytes that are not UTF-8. */
static json_t *step_run_strings(char *const *v)
{
    json_t *list = json_array();

    for (; v && *v; v++) {
        _cleanup_free_ char *text = base64_encode(*v, strlen(*v));

        json_array_append_new(list, json_string(text));
    }
    return list;
}

/* The "run" question to the daemon: layers bottom first, paths below the store's folder. */
static json_t *step_run_json(const struct builder *b, const struct builder_state *st,
                             const struct build_plan_step *s, unsigned n, const char *user,
                             const struct mounts *m)
{
    json_t *doc = json_object();
    _cleanup_free_ char *to = xasprintf("%s/%u/fs", b->workspace.path, n);
    _cleanup_free_ char *none = xasprintf("%s/none", b->workspace.path);

    json_object_set_new(doc, "layers", json_from_strv(st->layers));
    json_object_set_new(doc, "none", json_string(none));
    json_object_set_new(doc, "to", json_string(to));
    json_object_set_new(doc, "argv", step_run_strings(s->argv));
    json_object_set_new(doc, "env", step_run_strings(s->env));
    json_object_set_new(doc, "user", json_string(user));
    json_object_set_new(doc, "workdir", json_string(s->workdir));
    json_object_set_new(doc, "network", json_string(step_network(b, s)));
    json_object_set(doc, "mounts", m->list);
    json_object_set(doc, "secrets", m->secrets);
    return doc;
}

static void step_run_note_placeholders(struct mount_placeholders *placeholders,
                                       const struct builder *b, const struct builder_state *st,
                                       const struct build_plan_step *s, const struct mounts *m)
{
    const json_t *mount;
    size_t i;

    json_array_foreach (m->list, i, mount)
        mount_placeholders_note(placeholders, &b->workspace, st->layers,
                                json_string_value(json_object_get(mount, "target")));
    if (json_array_size(m->secrets))
        mount_placeholders_note(placeholders, &b->workspace, st->layers, "/run/secrets");
    json_array_foreach (m->secrets, i, mount) {
        const char *target = json_string_value(json_object_get(mount, "target"));

        if (target)
            mount_placeholders_note(placeholders, &b->workspace, st->layers, target);
    }
    if (STREQ(step_network(b, s), "open"))
        mount_placeholders_note(placeholders, &b->workspace, st->layers, "/etc/resolv.conf");
}

/* A uid that the image's /etc/passwd does not list gets group 0, as in BuildKit. */
static char *step_run_plain_user(const struct builder *b, const struct builder_state *st,
                                 const char *user)
{
    bool number = user && *user && strspn(user, "0123456789") == strlen(user);

    if (number && !accounts_have_uid(b->workspace.store, st->layers, user))
        return xasprintf("%s:0", user);
    return xstrdup(user ? user : "0");
}

static int step_run_find_owner(void *arg, int dir, void *out, struct err *err)
{
    _cleanup_close_ int root = -1;
    int r = dir_open(dir, "root", &root, err);

    if (r < 0)
        return r;
    return copy_owner_find(root, arg, out, err);
}

/*
 * The supervisor accepts a name, a number or a pair of numbers; the name of a group becomes a
 * number here.
 */
static int step_run_find_user(struct builder *b, const struct builder_state *st,
                              const struct build_plan_step *s, unsigned n, char **ret,
                              struct err *err)
{
    struct copy_owner owner = {0};
    const struct workspace_job job = {.n = n,
                                      .layers = st->layers,
                                      .mount_root = true,
                                      .find = step_run_find_owner,
                                      .arg = s->user,
                                      .out = &owner,
                                      .out_len = sizeof(owner)};
    int r;

    if (!s->user || parse_user(s->user, NULL) >= 0) {
        *ret = step_run_plain_user(b, st, s->user);
        return 0;
    }
    r = workspace_run(&b->workspace, &job, err);
    if (r < 0)
        return r;
    *ret = xasprintf("%u:%u", owner.uid, owner.gid);
    return 0;
}

int step_run(struct builder *b, const struct builder_state *st, const struct build_plan_step *s,
             unsigned n, struct err *err)
{
    _cleanup_free_ char *user = NULL;
    _cleanup_(mounts_done) struct mounts m = {0};
    _cleanup_(mount_placeholders_done) struct mount_placeholders placeholders = {0};
    int r;

    r = step_run_find_user(b, st, s, n, &user, err);
    if (r < 0)
        return r;
    r = mounts_prepare(&b->workspace, s, b->request->agents, builder_layers, b, &m, err);
    if (r < 0)
        return r;
    step_run_note_placeholders(&placeholders, b, st, s, &m);
    r = daemon_conn_run(b->daemon_conn, step_run_json(b, st, s, n, user, &m), err);
    if (r < 0)
        return r;
    mount_placeholders_remove(&placeholders, &b->workspace, n);
    return 0;
}
