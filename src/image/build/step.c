#include "image/build/step.h"

#include <errno.h>
#include <string.h>

#include "image/build/add-downloads.h"
#include "image/build/cache-key.h"
#include "image/build/missing-files.h"
#include "image/build/step-cache.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

const char *step_network(const struct builder *b, const struct build_plan_step *s)
{
    return s->network == BUILD_NETWORK_NONE ? "none" : b->request->network;
}

/* ---- keys ---- */

static int step_key_from(struct builder *b, struct cache_key *k, const struct build_from *f,
                         struct err *err)
{
    _cleanup_strv_ char **layers = NULL;
    int r = builder_layers(b, f, &layers, err);

    if (r < 0)
        return r;
    cache_key_texts(k, "layers", layers);
    return 0;
}

static int step_key_mounts(struct builder *b, struct cache_key *k, const struct build_plan_step *s,
                           struct err *err)
{
    for (size_t i = 0; i < s->n_mounts; i++) {
        const struct dockerfile_mount *m = &s->mounts[i].m;
        int r;

        cache_key_text(k, "mount", mount_type_name(m->type));
        cache_key_text(k, "target", m->target);
        cache_key_text(k, "id", m->id);
        cache_key_text(k, "env", m->env);
        if (m->type == MOUNT_SECRET || m->type == MOUNT_SSH) {
            cache_key_text(k, "uid", m->uid);
            cache_key_text(k, "gid", m->gid);
            cache_key_text(k, "mode", m->mode);
        }
        if (m->type != MOUNT_BIND)
            continue;
        cache_key_text(k, "source", m->source);
        cache_key_text(k, "access", m->read_only ? "ro" : "rw");
        if (build_is_from_elsewhere(&s->mounts[i].from))
            r = step_key_from(b, k, &s->mounts[i].from, err);
        else
            r = cache_key_source(k, b->workspace.dir, m->source ? m->source : "", err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int step_key_run(struct builder *b, struct cache_key *k, const struct build_plan_step *s,
                        struct err *err)
{
    cache_key_texts(k, "argv", s->argv);
    cache_key_texts(k, "env", s->env);
    cache_key_text(k, "user", s->user);
    cache_key_text(k, "workdir", s->workdir);
    cache_key_text(k, "network", step_network(b, s));
    cache_key_text(k, "script", s->script.content);
    return step_key_mounts(b, k, s, err);
}

static int step_key_copy(struct builder *b, struct cache_key *k, const struct build_plan_step *s,
                         const struct add_downloads *downloads, struct err *err)
{
    cache_key_text(k, "dest", s->dest);
    cache_key_text(k, "chown", s->chown);
    cache_key_text(k, "chmod", s->chmod);
    cache_key_text(k, "unpack", s->unpack ? "yes" : "no");
    if (s->parents)
        cache_key_text(k, "parents", "yes");
    if (s->exclude)
        cache_key_texts(k, "exclude", s->exclude);
    for (size_t i = 0; i < s->n_files; i++) {
        cache_key_text(k, "file", s->files[i].name);
        cache_key_text(k, "content", s->files[i].content);
    }
    if (s->unpack_urls && s->n_urls)
        cache_key_text(k, "unpack fetched", "yes");
    add_downloads_key(downloads, k);
    if (build_is_from_elsewhere(&s->from)) {
        cache_key_texts(k, "sources", s->sources);
        return step_key_from(b, k, &s->from, err);
    }
    return cache_key_sources(k, b->workspace.dir, s, err);
}

static int step_key(struct builder *b, const struct builder_state *st,
                    const struct build_plan_step *s, const struct add_downloads *downloads,
                    char ret[static DIGEST_MAX], struct err *err)
{
    struct cache_key k;
    int r = 0;

    cache_key_begin(&k, st->key);
    cache_key_text(&k, "kind", dockerfile_kind_name(s->kind));
    if (s->kind == DOCKERFILE_RUN)
        r = step_key_run(b, &k, s, err);
    else if (s->kind == DOCKERFILE_WORKDIR)
        cache_key_text(&k, "workdir", s->workdir);
    else
        r = step_key_copy(b, &k, s, downloads, err);
    if (s->kind == DOCKERFILE_WORKDIR)
        cache_key_text(&k, "user", s->user);
    cache_key_end(&k, ret);
    return r;
}

/* ---- steps ---- */

/*
 * Names /usr of image `host` as the cause, where it is. Plain paths below /usr were refused in the
 * plan; a path that leads there through links fails only while it is copied.
 */
static int step_explain(const struct builder_state *st, const struct build_plan_step *s, int r,
                        struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;

    if (r == -ERR_NOT_FOUND && s->from.on_host && !err->hint)
        return err_hint(err, "Stages built on 'host' do not contain /usr. Copy the file in such a "
                             "stage first: RUN cp /usr/… /opt/…");
    if (r >= 0 || !images_begin_with_host(st->layers))
        return r;
    if (err->errnum == EEXIST)
        return err_hint(err, "Remove the link: its target is missing or below /usr of 'host', "
                             "which is the machine's own and read-only.");
    if (err->errnum != EROFS)
        return r;
    err_move(&why, err);
    build_refuse_usr(why.msg, err);
    return err_wrap(err, "line %u, column %u", s->dest_at.line, s->dest_at.column);
}

static int step_do(struct builder *b, const struct builder_state *st,
                   const struct build_plan_step *s, const struct add_downloads *downloads,
                   struct step_cache_entry *ret, struct err *err)
{
    unsigned n;
    int r = workspace_new_layer(&b->workspace, &n, err);

    if (r < 0)
        return r;
    if (s->kind == DOCKERFILE_RUN)
        r = step_run(b, st, s, n, err);
    else
        r = step_explain(st, s, step_files(b, st, s, downloads, n, err), err);
    if (r < 0)
        return r;
    r = workspace_commit_layer(&b->workspace, n, ret->layer, err);
    if (r < 0)
        return r;
    if (r == 0)
        ret->layer[0] = '\0';
    ret->created = builder_now();
    return 0;
}

static void step_apply(struct builder_state *st, const char *key, struct step_cache_entry *e)
{
    memcpy(st->key, key, DIGEST_MAX);
    json_array_append_new(st->done,
                          json_pack("{s:b, s:s}", "layer", *e->layer != 0, "created", e->created));
    if (*e->layer)
        strv_add(&st->layers, e->layer);
    if (!st->created || strcmp(st->created, e->created) < 0) {
        free(st->created);
        st->created = TAKE_PTR(e->created);
    }
}

/*
 * Does a step that is not in the cache: its context files and downloads must be here first. A
 * download may differ from the one that `key` was made for; the key is then made again.
 */
static int step_do_and_cache(struct builder *b, const struct builder_state *st,
                             const struct build_stage *stage, size_t n,
                             struct add_downloads *downloads, char key[static DIGEST_MAX],
                             struct step_cache_entry *ret, struct err *err)
{
    const struct build_plan_step *s = &stage->steps[n];
    int r;

    r = missing_files_check(&b->workspace, stage, n, b->daemon_conn, err);
    if (r < 0)
        return r;
    r = add_downloads_fetch(downloads, err);
    if (r > 0)
        r = step_key(b, st, s, downloads, key, err);
    if (r < 0)
        return r;
    r = step_do(b, st, s, downloads, ret, err);
    if (r < 0)
        return r;
    return step_cache_put(b->store, key, ret, err);
}

static int step_find_or_do(struct builder *b, struct builder_state *st,
                           const struct build_stage *stage, size_t n,
                           struct add_downloads *downloads, struct err *err)
{
    _cleanup_(step_cache_entry_done) struct step_cache_entry e = {0};
    char key[DIGEST_MAX];
    int r;

    r = step_key(b, st, &stage->steps[n], downloads, key, err);
    if (r < 0)
        return r;
    if (!b->request->no_cache && step_cache_get(b->store, key, &e) > 0) {
        daemon_conn_send_event(b->daemon_conn, json_pack("{s:b}", "cached", 1));
    } else {
        r = step_do_and_cache(b, st, stage, n, downloads, key, &e, err);
        if (r < 0)
            return r;
    }
    step_apply(st, key, &e);
    return 0;
}

int step_take(struct builder *b, struct builder_state *st, const struct build_stage *stage,
              size_t n, struct err *err)
{
    _cleanup_(add_downloads_done) struct add_downloads downloads = {.step = &stage->steps[n],
                                                                    .workspace = &b->workspace,
                                                                    .daemon_conn = b->daemon_conn,
                                                                    .no_cache =
                                                                        b->request->no_cache};
    int r;

    if (strv_len(st->layers) >= IMAGES_LAYERS_MAX)
        return err_set(err, ERR_LIMIT, "the image has over %d layers", IMAGES_LAYERS_MAX);
    r = add_downloads_identify(&downloads, err);
    if (r < 0)
        return r;
    return step_find_or_do(b, st, stage, n, &downloads, err);
}
