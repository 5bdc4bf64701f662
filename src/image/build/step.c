#include "image/build/step.h"

#include <errno.h>
#include <string.h>

#include "image/build/cache.h"
#include "image/build/fetched.h"
#include "image/build/key.h"
#include "image/build/wants.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

const char *step_network(const struct builder *b, const struct build_plan_step *s)
{
    return s->network == BUILD_NETWORK_NONE ? "none" : b->ask->network;
}

/* ---- keys ---- */

static int step_key_from(struct builder *b, struct build_key *k, const struct build_from *f,
                         struct err *err)
{
    _cleanup_strv_ char **layers = NULL;
    int r = builder_layers(b, f, &layers, err);

    if (r >= 0)
        key_texts(k, "layers", layers);
    return r;
}

static int step_key_mounts(struct builder *b, struct build_key *k, const struct build_plan_step *s,
                           struct err *err)
{
    int r = 0;

    for (size_t i = 0; r >= 0 && i < s->n_mounts; i++) {
        const struct dockerfile_mount *m = &s->mounts[i].m;

        key_text(k, "mount", mount_type_name(m->type));
        key_text(k, "target", m->target);
        key_text(k, "id", m->id);
        key_text(k, "env", m->env);
        if (m->type == MOUNT_SECRET || m->type == MOUNT_SSH) {
            key_text(k, "uid", m->uid);
            key_text(k, "gid", m->gid);
            key_text(k, "mode", m->mode);
        }
        if (m->type != MOUNT_BIND)
            continue;
        key_text(k, "source", m->source);
        key_text(k, "access", m->read_only ? "ro" : "rw");
        if (build_is_from_elsewhere(&s->mounts[i].from))
            r = step_key_from(b, k, &s->mounts[i].from, err);
        else
            r = key_source(k, b->work.dir, m->source ? m->source : "", err);
    }
    return r;
}

static int step_key_run(struct builder *b, struct build_key *k, const struct build_plan_step *s,
                        struct err *err)
{
    key_texts(k, "argv", s->argv);
    key_texts(k, "env", s->env);
    key_text(k, "user", s->user);
    key_text(k, "workdir", s->workdir);
    key_text(k, "network", step_network(b, s));
    key_text(k, "script", s->script.content);
    return step_key_mounts(b, k, s, err);
}

static int step_key_copy(struct builder *b, struct build_key *k, const struct build_plan_step *s,
                         const struct fetched *fetched, struct err *err)
{
    key_text(k, "dest", s->dest);
    key_text(k, "chown", s->chown);
    key_text(k, "chmod", s->chmod);
    key_text(k, "unpack", s->unpack ? "yes" : "no");
    if (s->parents)
        key_text(k, "parents", "yes");
    if (s->exclude)
        key_texts(k, "exclude", s->exclude);
    for (size_t i = 0; i < s->n_files; i++) {
        key_text(k, "file", s->files[i].name);
        key_text(k, "content", s->files[i].content);
    }
    if (s->unpack_urls && s->n_urls)
        key_text(k, "unpack fetched", "yes");
    fetched_key(fetched, k);
    if (build_is_from_elsewhere(&s->from)) {
        key_texts(k, "sources", s->sources);
        return step_key_from(b, k, &s->from, err);
    }
    return key_sources(k, b->work.dir, s, err);
}

static int step_key(struct builder *b, const struct builder_state *st,
                    const struct build_plan_step *s, const struct fetched *fetched,
                    char ret[static DIGEST_MAX], struct err *err)
{
    struct build_key k;
    int r = 0;

    key_begin(&k, st->key);
    key_text(&k, "kind", dockerfile_kind_name(s->kind));
    if (s->kind == DOCKERFILE_RUN)
        r = step_key_run(b, &k, s, err);
    else if (s->kind == DOCKERFILE_WORKDIR)
        key_text(&k, "workdir", s->workdir);
    else
        r = step_key_copy(b, &k, s, fetched, err);
    if (s->kind == DOCKERFILE_WORKDIR)
        key_text(&k, "user", s->user);
    key_end(&k, ret);
    return r;
}

/* ---- steps ---- */

/* What only links lead to is known when it is done. */
static int step_explain(const struct builder_state *st, const struct build_plan_step *s, int r,
                        struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;

    if (r == -ERR_NOT_FOUND && s->from.on_host && !err->hint)
        return err_hint(err, "/usr is no part of what is built on 'host': RUN cp /usr/… /opt/…");
    if (r >= 0 || !images_begin_with_host(st->layers))
        return r;
    if (err->errnum == EEXIST)
        return err_hint(err, "It is a link to what is not there, or into /usr of 'host', which is "
                             "the machine's own and read-only.");
    if (err->errnum != EROFS)
        return r;
    err_move(&why, err);
    build_refuse_usr(why.msg, err);
    return err_wrap(err, "line %u, column %u", s->dest_at.line, s->dest_at.column);
}

static int step_do(struct builder *b, const struct builder_state *st,
                   const struct build_plan_step *s, const struct fetched *fetched,
                   struct cache_entry *ret, struct err *err)
{
    unsigned n;
    int r = work_layer(&b->work, &n, err);

    if (r >= 0)
        r = s->kind == DOCKERFILE_RUN
                ? step_run(b, st, s, n, err)
                : step_explain(st, s, step_files(b, st, s, fetched, n, err), err);
    if (r >= 0)
        r = work_commit(&b->work, n, ret->layer, err);
    if (r < 0)
        return r;
    if (r == 0)
        ret->layer[0] = '\0';
    ret->created = builder_now();
    return 0;
}

static void step_taken(struct builder_state *st, const char *key, struct cache_entry *e)
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
    free(e->created);
}

/* With what it needs of the context, and from servers, which may make it another step than it was
 * taken for. */
static int step_prepare(struct builder *b, const struct builder_state *st,
                        const struct build_stage *stage, size_t n, struct fetched *fetched,
                        char key[static DIGEST_MAX], struct err *err)
{
    int r = wants_check(&b->work, stage, n, b->daemon_conn, err);

    if (r >= 0)
        r = fetched_bring(fetched, err);
    return r > 0 ? step_key(b, st, fetched->step, fetched, key, err) : r;
}

static int step_find_or_do(struct builder *b, struct builder_state *st,
                           const struct build_stage *stage, size_t n, struct fetched *fetched,
                           struct err *err)
{
    const struct build_plan_step *s = &stage->steps[n];
    struct cache_entry e = {0};
    char key[DIGEST_MAX];
    int r = step_key(b, st, s, fetched, key, err);

    if (r < 0)
        return r;
    if (!b->ask->no_cache && cache_get(b->store, key, &e) > 0) {
        daemon_conn_tell(b->daemon_conn, json_pack("{s:b}", "cached", 1));
    } else {
        r = step_prepare(b, st, stage, n, fetched, key, err);
        if (r >= 0)
            r = step_do(b, st, s, fetched, &e, err);
        if (r >= 0)
            r = cache_put(b->store, key, &e, err);
    }
    if (r >= 0)
        step_taken(st, key, &e);
    else
        free(e.created);
    return r;
}

int step_take(struct builder *b, struct builder_state *st, const struct build_stage *stage,
              size_t n, struct err *err)
{
    struct fetched fetched = {.step = &stage->steps[n],
                              .work = &b->work,
                              .daemon_conn = b->daemon_conn,
                              .no_cache = b->ask->no_cache};
    int r;

    if (strv_len(st->layers) >= IMAGES_LAYERS_MAX)
        return err_set(err, ERR_LIMIT, "the image has over %d layers", IMAGES_LAYERS_MAX);
    r = fetched_look(&fetched, err);
    if (r >= 0)
        r = step_find_or_do(b, st, stage, n, &fetched, err);
    fetched_done(&fetched);
    return r;
}
