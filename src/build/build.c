/*
 * Stages side by side (stages.h), each step by step. A step's key is made of the key of what it
 * stands on, its own words and what it reads; with it the step is looked for in the cache (cache.h)
 * before anything is done. What has been done is put there as soon as its layer is in the store, so
 * that a build that fails or is cut short goes on from there.
 */
#include "build/build.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/strv.h"
#include "base/time.h"
#include "base/xalloc.h"
#include "build/base.h"
#include "build/cache.h"
#include "build/context.h"
#include "build/copy.h"
#include "build/history.h"
#include "build/keep.h"
#include "build/key.h"
#include "build/mounts.h"
#include "build/plan.h"
#include "build/sources.h"
#include "build/stages.h"
#include "build/stubs.h"
#include "build/wants.h"
#include "build/work.h"
#include "image/accounts.h"
#include "image/manifest.h"

/* What a stage has come to so far. */
struct state {
    char **layers; /* owned, bottom first */
    char key[DIGEST_MAX];
    char *created; /* owned: of the last thing that was made; NULL: nothing was */
    json_t *base;  /* owned: the history of the image it is built on; NULL: it is on a stage */
    json_t *done;  /* owned: what its steps have come to: [{"layer": true, "created": TIME}] */
};

struct builder {
    struct images *store;
    const struct build_ask *ask;
    struct front *front; /* of this process */
    struct work work;
    struct build_plan plan;
    struct state *states; /* of the plan's stages */
    char *epoch;          /* owned: when all of it was made, by SOURCE_DATE_EPOCH; or NULL */
    char **brought;       /* owned: images that were asked for */
};

/* ---- where files come from ---- */

static int layers_of(void *arg, const struct build_from *from, char ***ret, struct err *err)
{
    struct builder *b = arg;
    _cleanup_base_ struct base base = {0};
    int r;

    if (from->stage >= 0) {
        *ret = strv_copy(b->states[from->stage].layers);
        return 0;
    }
    r = base_read(b->store, from->image, &base, NULL, err);
    if (r >= 0)
        *ret = TAKE_PTR(base.layers);
    return r;
}

static int key_from(struct builder *b, struct key *k, const struct build_from *f, struct err *err)
{
    _cleanup_strv_ char **layers = NULL;
    int r = layers_of(b, f, &layers, err);

    if (r >= 0)
        key_texts(k, "layers", layers);
    return r;
}

/* ---- keys ---- */

static const char *network_of(const struct builder *b, const struct build_step *s)
{
    return s->network == BUILD_NETWORK_NONE ? "none" : b->ask->network;
}

static int key_mounts(struct builder *b, struct key *k, const struct build_step *s, struct err *err)
{
    int r = 0;

    for (size_t i = 0; r >= 0 && i < s->n_mounts; i++) {
        const struct mount *m = &s->mounts[i].m;

        key_text(k, "mount", mount_type_name(m->type));
        key_text(k, "target", m->target);
        key_text(k, "id", m->id);
        key_text(k, "env", m->env);
        if (m->type == MOUNT_SECRET) {
            key_text(k, "uid", m->uid);
            key_text(k, "gid", m->gid);
            key_text(k, "mode", m->mode);
        }
        if (m->type != MOUNT_BIND)
            continue;
        key_text(k, "source", m->source);
        key_text(k, "access", m->read_only ? "ro" : "rw");
        if (build_is_from_elsewhere(&s->mounts[i].from))
            r = key_from(b, k, &s->mounts[i].from, err);
        else
            r = key_source(k, b->work.dir, m->source ? m->source : "", err);
    }
    return r;
}

static int key_run(struct builder *b, struct key *k, const struct build_step *s, struct err *err)
{
    key_texts(k, "argv", s->argv);
    key_texts(k, "env", s->env);
    key_text(k, "user", s->user);
    key_text(k, "workdir", s->workdir);
    key_text(k, "network", network_of(b, s));
    key_text(k, "script", s->script.content);
    return key_mounts(b, k, s, err);
}

static int key_copy(struct builder *b, struct key *k, const struct build_step *s, struct err *err)
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
    if (build_is_from_elsewhere(&s->from)) {
        key_texts(k, "sources", s->sources);
        return key_from(b, k, &s->from, err);
    }
    return key_sources(k, b->work.dir, s, err);
}

static int key_step(struct builder *b, const struct state *st, const struct build_step *s,
                    char ret[static DIGEST_MAX], struct err *err)
{
    struct key k;
    int r = 0;

    key_begin(&k, st->key);
    key_text(&k, "kind", dockerfile_kind_name(s->kind));
    if (s->kind == DOCKERFILE_RUN)
        r = key_run(b, &k, s, err);
    else if (s->kind == DOCKERFILE_WORKDIR)
        key_text(&k, "workdir", s->workdir);
    else
        r = key_copy(b, &k, s, err);
    if (s->kind == DOCKERFILE_WORKDIR)
        key_text(&k, "user", s->user);
    key_end(&k, ret);
    return r;
}

/* ---- COPY, ADD, WORKDIR ---- */

struct files_job {
    const struct build_step *step;
    const char *from; /* folder of the build that the sources are in */
    char *const *sources;
    struct filter_want want;
    bool own; /* what is copied becomes root's, unless it is to be another's */
};

/* In the child. */
static int run_files(void *arg, int dir, struct err *err)
{
    const struct files_job *f = arg;
    const struct build_step *s = f->step;
    struct copy_job job = {.sources = f->sources, .want = f->want, .dest = s->dest, .mode = -1};
    _cleanup_close_ int from = -1, to = -1;
    int r = dir_open(dir, f->from, &from, err);

    if (r >= 0)
        r = dir_open(dir, "root", &to, err);
    if (r >= 0 && s->chown)
        r = copy_owner_find(to, s->chown, &job.owner, err);
    if (r < 0)
        return r;
    job.from = from;
    job.to = to;
    job.owner.given |= f->own;
    job.way = job.owner;
    job.way.given = true; /* root's, where nobody else's */
    if (s->chmod)
        job.mode = (int)strtol(s->chmod, NULL, 8) & 07777;
    return copy_files(&job, err);
}

static int run_workdir(void *arg, int dir, struct err *err)
{
    const struct build_step *s = arg;
    struct copy_owner owner = {.given = true};
    _cleanup_close_ int root = -1, made = -1;
    int r = dir_open(dir, "root", &root, err);

    if (r >= 0 && s->user)
        r = copy_owner_find(root, s->user, &owner, err);
    return r < 0 ? r : copy_make_folder(root, s->workdir, &owner, &made, err);
}

/* Files that stand in the Dockerfile, put down to be copied like others. */
static int write_files(struct builder *b, const struct build_step *s, char **ret_folder,
                       char ***ret_names, struct err *err)
{
    int r = work_folder(&b->work, 0755, ret_folder, err);

    for (size_t i = 0; r >= 0 && i < s->n_files; i++) {
        const struct build_file *f = &s->files[i];
        _cleanup_free_ char *path = xasprintf("%s/%s", *ret_folder, f->name);

        if (strchr(f->name, '/'))
            return err_set(err, ERR_INVALID, "'%.64s' cannot be the name of a file", f->name);
        r = file_replace(b->work.dir, path, f->content, strlen(f->content), 0644, false, err);
        if (r >= 0 && fchmodat(b->work.dir, path, 0644, 0) < 0)
            r = err_sys(err, errno, "make file '%.64s'", f->name);
        strv_add(ret_names, f->name);
    }
    return r;
}

static int copy_heredocs(struct builder *b, const struct state *st, const struct build_step *s,
                         unsigned n, struct err *err)
{
    _cleanup_free_ char *folder = NULL;
    _cleanup_strv_ char **names = NULL;
    struct files_job f = {.step = s, .own = true};
    int r;

    if (!s->n_files)
        return 0;
    r = write_files(b, s, &folder, &names, err);
    if (r < 0)
        return r;
    f.from = folder;
    f.sources = names;
    return work_run(
        &b->work,
        &(struct work_job){
            .n = n, .layers = st->layers, .mount_root = true, .fn = run_files, .arg = &f},
        err);
}

static int copy_sources(struct builder *b, const struct state *st, const struct build_step *s,
                        unsigned n, struct err *err)
{
    bool elsewhere = build_is_from_elsewhere(&s->from);
    struct files_job f = {.step = s,
                          .from = elsewhere ? "src" : "context",
                          .sources = s->sources,
                          .want = {s->parents, s->exclude},
                          .own = !elsewhere};
    struct work_job job = {
        .n = n, .layers = st->layers, .mount_root = true, .fn = run_files, .arg = &f};
    _cleanup_strv_ char **from = NULL, **plain = NULL;
    int r = 0;

    if (!s->sources)
        return 0;
    if (elsewhere)
        r = layers_of(b, &s->from, &from, err);
    job.from = from;
    if (r >= 0 && s->unpack) {
        r = context_add(&b->work, s, st->layers, n, &plain, err);
        f.sources = plain;
    }
    return r < 0 || !f.sources ? r : work_run(&b->work, &job, err);
}

static int do_files(struct builder *b, const struct state *st, const struct build_step *s,
                    unsigned n, struct err *err)
{
    int r;

    if (s->kind == DOCKERFILE_WORKDIR)
        return work_run(&b->work,
                        &(struct work_job){.n = n,
                                           .layers = st->layers,
                                           .mount_root = true,
                                           .fn = run_workdir,
                                           .arg = (void *)s},
                        err);
    r = copy_sources(b, st, s, n, err);
    return r < 0 ? r : copy_heredocs(b, st, s, n, err);
}

/* ---- RUN ---- */

static json_t *texts_json(char *const *v)
{
    json_t *list = json_array();

    for (; v && *v; v++)
        json_array_append_new(list, json_string(*v));
    return list;
}

/* What the daemon needs to know: layers bottom first, paths below the store's folder. */
static json_t *run_json(const struct builder *b, const struct state *st, const struct build_step *s,
                        unsigned n, const char *user, const struct mounts *m)
{
    json_t *doc = json_object();
    _cleanup_free_ char *to = xasprintf("%s/%u/fs", b->work.path, n);
    _cleanup_free_ char *none = xasprintf("%s/none", b->work.path);

    json_object_set_new(doc, "layers", texts_json(st->layers));
    json_object_set_new(doc, "none", json_string(none));
    json_object_set_new(doc, "to", json_string(to));
    json_object_set_new(doc, "argv", texts_json(s->argv));
    json_object_set_new(doc, "env", texts_json(s->env));
    json_object_set_new(doc, "user", json_string(user));
    json_object_set_new(doc, "workdir", json_string(s->workdir));
    json_object_set_new(doc, "network", json_string(network_of(b, s)));
    json_object_set(doc, "mounts", m->list);
    json_object_set(doc, "secrets", m->secrets);
    return doc;
}

static void note_stubs(struct stubs *stubs, const struct builder *b, const struct state *st,
                       const struct build_step *s, const struct mounts *m)
{
    const json_t *mount;
    size_t i;

    json_array_foreach (m->list, i, mount)
        stubs_note(stubs, &b->work, st->layers,
                   json_string_value(json_object_get(mount, "target")));
    if (json_array_size(m->secrets))
        stubs_note(stubs, &b->work, st->layers, "/run/secrets");
    json_array_foreach (m->secrets, i, mount) {
        const char *target = json_string_value(json_object_get(mount, "target"));

        if (target)
            stubs_note(stubs, &b->work, st->layers, target);
    }
    if (STREQ(network_of(b, s), "open"))
        stubs_note(stubs, &b->work, st->layers, "/etc/resolv.conf");
}

/* A number that the image's /etc/passwd does not know has group 0 in builds, as BuildKit has it. */
static char *plain_user(const struct builder *b, const struct state *st, const char *user)
{
    bool number = user && *user && strspn(user, "0123456789") == strlen(user);

    if (number && !accounts_have_uid(b->work.store, st->layers, user))
        return xasprintf("%s:0", user);
    return xstrdup(user ? user : "0");
}

static int find_owner(void *arg, int dir, void *out, struct err *err)
{
    _cleanup_close_ int root = -1;
    int r = dir_open(dir, "root", &root, err);

    return r < 0 ? r : copy_owner_find(root, arg, out, err);
}

/* The supervisor knows names, numbers, and pairs of numbers; a group's name is looked up here. */
static int find_user(struct builder *b, const struct state *st, const struct build_step *s,
                     unsigned n, char **ret, struct err *err)
{
    struct copy_owner owner = {0};
    const struct work_job job = {.n = n,
                                 .layers = st->layers,
                                 .mount_root = true,
                                 .find = find_owner,
                                 .arg = s->user,
                                 .out = &owner,
                                 .out_len = sizeof(owner)};
    int r;

    if (!s->user || parse_user(s->user, NULL) >= 0) {
        *ret = plain_user(b, st, s->user);
        return 0;
    }
    r = work_run(&b->work, &job, err);
    if (r >= 0)
        *ret = xasprintf("%u:%u", owner.uid, owner.gid);
    return r;
}

static int do_run(struct builder *b, const struct state *st, const struct build_step *s, unsigned n,
                  struct err *err)
{
    _cleanup_free_ char *user = NULL;
    struct mounts m = {0};
    struct stubs stubs = {0};
    int r = find_user(b, st, s, n, &user, err);

    if (r >= 0)
        r = mounts_prepare(&b->work, s, layers_of, b, &m, err);
    if (r < 0)
        return r;
    note_stubs(&stubs, b, st, s, &m);
    r = front_run(b->front, run_json(b, st, s, n, user, &m), err);
    if (r >= 0)
        stubs_remove(&stubs, &b->work, n);
    stubs_done(&stubs);
    mounts_done(&m);
    return r;
}

/* ---- steps ---- */

static char *now_text(void)
{
    char text[TIME_FORMAT_MAX];

    return xstrdup(time_format(time_wall(), text));
}

static int do_step(struct builder *b, const struct state *st, const struct build_step *s,
                   struct cache_entry *ret, struct err *err)
{
    unsigned n;
    int r = work_layer(&b->work, &n, err);

    if (r >= 0)
        r = s->kind == DOCKERFILE_RUN ? do_run(b, st, s, n, err) : do_files(b, st, s, n, err);
    if (r >= 0)
        r = work_commit(&b->work, n, ret->layer, err);
    if (r < 0)
        return r;
    if (r == 0)
        ret->layer[0] = '\0';
    ret->created = now_text();
    return 0;
}

static void step_taken(struct state *st, const char *key, struct cache_entry *e)
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

static int find_or_do(struct builder *b, struct state *st, const struct build_stage *stage,
                      size_t n, struct err *err)
{
    const struct build_step *s = &stage->steps[n];
    struct cache_entry e = {0};
    char key[DIGEST_MAX];
    int r = key_step(b, st, s, key, err);

    if (r < 0)
        return r;
    if (strv_len(st->layers) >= IMAGES_LAYERS_MAX)
        return err_set(err, ERR_LIMIT, "the image has over %d layers", IMAGES_LAYERS_MAX);
    if (!b->ask->no_cache && cache_get(b->store, key, &e) > 0) {
        front_tell(b->front, json_pack("{s:b}", "cached", 1));
    } else {
        r = wants_check(&b->work, stage, n, b->front, err);
        if (r >= 0)
            r = do_step(b, st, s, &e, err);
        if (r >= 0)
            r = cache_put(b->store, key, &e, err);
    }
    if (r >= 0)
        step_taken(st, key, &e);
    else
        free(e.created);
    return r;
}

static void tell_begin(const struct builder *b, const struct build_stage *stage, const char *text,
                       unsigned n, unsigned line)
{
    front_tell(b->front,
               json_pack("{s:s, s:s, s:i, s:i, s:i}", "step", text, "stage", stage->name, "n",
                         (int)n, "of", (int)build_stage_total(stage), "line", (int)line));
}

static int tell_end(const struct builder *b, int r, const struct err *err)
{
    front_tell(b->front, json_pack("{s:s?}", "end", r < 0 ? err->msg : NULL));
    return r;
}

static int begin_stage(struct builder *b, const struct build_stage *stage, struct state *st,
                       struct err *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_base_ struct base base = {0};
    int r = 0;

    st->done = json_array();
    if (stage->base >= 0) {
        const struct state *from = &b->states[stage->base];

        st->layers = strv_copy(from->layers);
        st->created = from->created ? xstrdup(from->created) : NULL;
        memcpy(st->key, from->key, DIGEST_MAX);
        return 0;
    }
    text = xasprintf("FROM %s", stage->image ? stage->image : "scratch");
    tell_begin(b, stage, text, 1, 0);
    if (stage->image)
        r = base_read(b->store, stage->image, &base, NULL, err);
    if (r >= 0 && stage->image)
        r = base_history(b->store, &base, &st->base, err);
    if (r >= 0) {
        struct key k;

        key_begin(&k, "base");
        key_texts(&k, "layers", base.layers);
        key_end(&k, st->key);
        st->layers = TAKE_PTR(base.layers);
        st->created = TAKE_PTR(base.created);
    }
    return tell_end(b, r, err);
}

static int build_stage(struct builder *b, size_t i, struct err *err)
{
    const struct build_stage *stage = &b->plan.stages[i];
    struct state *st = &b->states[i];
    int r = begin_stage(b, stage, st, err);

    for (size_t k = 0; r >= 0 && k < stage->n_steps; k++) {
        const struct build_step *s = &stage->steps[k];

        tell_begin(b, stage, s->text, (unsigned)(k + 1 + (stage->base < 0)), s->line);
        r = tell_end(b, find_or_do(b, st, stage, k, err), err);
    }
    return r;
}

/* ---- in children ---- */

/* Names in the build's folder that no other stage has. */
enum { WORK_NUMBERS = 100000 };

static bool is_needed(void *arg, size_t stage)
{
    return ((const struct builder *)arg)->plan.stages[stage].needed;
}

static bool waits_for(void *arg, size_t stage, size_t earlier)
{
    const struct build_stage *s = &((const struct builder *)arg)->plan.stages[stage];

    if (s->base == (long)earlier)
        return true;
    for (size_t i = 0; i < s->n_steps; i++) {
        const struct build_step *step = &s->steps[i];

        if (step->from.stage == (long)earlier)
            return true;
        for (size_t k = 0; k < step->n_mounts; k++)
            if (step->mounts[k].from.stage == (long)earlier)
                return true;
    }
    return false;
}

static int stage_in_child(void *arg, size_t stage, struct front *front, json_t **ret,
                          struct err *err)
{
    struct builder *b = arg;
    const struct state *st = &b->states[stage];
    int r;

    b->front = front;
    b->work.n = ((unsigned)stage + 1) * WORK_NUMBERS;
    r = build_stage(b, stage, err);
    if (r >= 0)
        *ret = json_pack("{s:o, s:s, s:s?, s:O?, s:O}", "layers", texts_json(st->layers), "key",
                         st->key, "created", st->created, "base", st->base, "done", st->done);
    return r;
}

static int stage_ended(void *arg, size_t stage, const json_t *doc, struct err *err)
{
    struct state *st = &((struct builder *)arg)->states[stage];
    const char *key = json_string_value(json_object_get(doc, "key"));
    const char *created = json_string_value(json_object_get(doc, "created"));

    snprintf(st->key, sizeof(st->key), "%s", key ? key : "");
    st->created = created ? xstrdup(created) : NULL;
    st->base = json_incref(json_object_get(doc, "base"));
    st->done = json_incref(json_object_get(doc, "done"));
    return json_read_strv(json_object_get(doc, "layers"), "layers", &st->layers, err);
}

static int build_stages(struct builder *b, struct err *err)
{
    const struct stages stages = {.front = b->front,
                                  .arg = b,
                                  .n = b->plan.n_stages,
                                  .is_needed = is_needed,
                                  .waits_for = waits_for,
                                  .build = stage_in_child,
                                  .took = stage_ended};

    return stages_run(&stages, err);
}

/* ---- the image ---- */

/* What the stage is built on comes first. */
static void add_history(const struct builder *b, size_t stage, json_t *list)
{
    const struct build_stage *s = &b->plan.stages[stage];
    const struct state *st = &b->states[stage];

    if (s->base >= 0)
        add_history(b, (size_t)s->base, list);
    else if (json_is_array(st->base))
        json_array_extend(list, st->base);
    for (size_t i = 0; i < s->n_notes; i++) {
        const struct build_note *n = &s->notes[i];
        const json_t *done = n->step < 0 ? NULL : json_array_get(st->done, (size_t)n->step);
        bool layer = json_is_true(json_object_get(done, "layer"));
        const char *created = json_string_value(json_object_get(done, "created"));

        history_add(list, n->text, layer, b->epoch ? b->epoch : layer ? created : NULL);
    }
}

static char *config_text(const struct builder *b)
{
    const struct state *st = &b->states[b->plan.target];
    _cleanup_json_ json_t *history = json_array();

    add_history(b, b->plan.target, history);
    history_fill_times(history);
    return base_config_text(&b->plan.config, st->layers, b->epoch ? b->epoch : st->created,
                            history);
}

static int finish(struct builder *b, json_t **ret, struct err *err)
{
    const struct state *st = &b->states[b->plan.target];
    _cleanup_free_ char *config = config_text(b);
    _cleanup_json_ json_t *names = json_array();
    char id[DIGEST_MAX];
    int r = keep_image(b->store, config, id, err);

    if (r >= 0)
        r = keep_names(b->store, b->ask->tags, id, names, err);
    if (r >= 0)
        *ret = json_pack("{s:s, s:O, s:i}", "id", id, "names", names, "layers",
                         (int)strv_len(st->layers));
    return r;
}

/* ---- the whole ---- */

static int bring_in(struct builder *b, const char *name, struct err *err)
{
    _cleanup_free_ char *text = xasprintf("pull %s", name), *as = base_name(name);
    json_t *ask = json_pack("{s:s}", "name", name);
    int r;

    if (!STREQ(as, name))
        json_object_set_new(ask, "as", json_string(as));
    front_tell(b->front, json_pack("{s:s, s:s}", "step", text, "stage", "internal"));
    r = front_pull(b->front, ask, err);
    if (r < 0 && !err->hint)
        err_hint(err, "Bring it in with `ripcord image pull` or `ripcord image import`.");
    strv_add(&b->brought, name);
    return tell_end(b, r, err);
}

/* What a digest names is what it was: there is nothing new to ask for. */
static bool is_to_be_asked(const struct builder *b, const char *name)
{
    return b->ask->pull && !strchr(name, '@') && !strv_contains(b->brought, name);
}

static int image_config(void *arg, const char *name, struct config *ret, struct err *err)
{
    struct builder *b = arg;
    _cleanup_err_ struct err why = ERR_INIT;
    int r = -ERR_NOT_FOUND;

    if (!is_to_be_asked(b, name))
        r = base_read(b->store, name, NULL, ret, &why);
    if (r != -ERR_NOT_FOUND)
        return r < 0 ? err_move(err, &why) : r;
    r = bring_in(b, name, err);
    return r < 0 ? r : base_read(b->store, name, NULL, ret, err);
}

static int make_plan(struct builder *b, struct err *err)
{
    const struct config_inputs inputs = {
        .build_args = b->ask->args, .target = b->ask->target, .arch = image_config_architecture()};
    _cleanup_(dockerfile_freep) struct dockerfile *df = NULL;
    int r = context_dockerfile(&b->work, b->ask->dockerfile, &df, err);

    if (r >= 0)
        r = build_plan_make(df, &inputs, image_config, b, &b->plan, err);
    if (r < 0)
        return err_wrap(err, "%.200s", b->ask->dockerfile);
    b->states = xcalloc(b->plan.n_stages, sizeof(*b->states));
    return 0;
}

static void builder_done(struct builder *b)
{
    for (size_t i = 0; b->states && i < b->plan.n_stages; i++) {
        strv_free(b->states[i].layers);
        free(b->states[i].created);
        json_decref(b->states[i].base);
        json_decref(b->states[i].done);
    }
    free(b->states);
    free(b->epoch);
    strv_free(b->brought);
    build_plan_done(&b->plan);
    work_done(&b->work);
}

int build_image(struct images *s, const struct confined_ids *ids, const char *name, int context,
                const struct build_ask *ask, struct front *front, json_t **ret, struct err *err)
{
    struct builder b = {.store = s, .ask = ask, .front = front, .work = WORK_INIT};
    int r = keep_check(ask->tags, err);

    if (r >= 0)
        r = history_epoch(ask->args, &b.epoch, err);
    if (r >= 0)
        r = work_open(s, ids, name, &b.work, err);
    if (r >= 0)
        r = work_unpack_context(&b.work, context, ask->thin, err);
    if (r >= 0)
        r = make_plan(&b, err);
    if (r >= 0)
        r = build_stages(&b, err);
    if (r >= 0)
        r = finish(&b, ret, err);
    builder_done(&b);
    return r;
}
