/*
 * Stages are built in parallel (stages.h), the steps of a stage in order (step.h). A step enters
 * the cache as soon as its layer is in the store, so the next build continues where a failed one
 * ended.
 */
#include "image/build/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/build/agent.h"
#include "image/build/base-image.h"
#include "image/build/builder.h"
#include "image/build/cache-key.h"
#include "image/build/config-json.h"
#include "image/build/context.h"
#include "image/build/history.h"
#include "image/build/save-image.h"
#include "image/build/stages.h"
#include "image/build/step.h"
#include "image/oci/manifest.h"
#include "image/oci/reference.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

/* ---- shared with step.c ---- */

int builder_layers(void *arg, const struct build_from *from, char ***ret, struct err *err)
{
    struct builder *b = arg;
    _cleanup_base_image_ struct base_image base = {0};
    int r;

    if (from->stage >= 0) {
        *ret = strv_copy(b->states[from->stage].layers);
        return 0;
    }
    r = base_image_read(b->store, from->image, &base, NULL, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(base.layers);
    return 0;
}

char *builder_now(void)
{
    char text[TIME_FORMAT_MAX];

    return xstrdup(time_format(time_wall(), text));
}

/* ---- stages ---- */

static void build_send_begin(const struct builder *b, const struct build_stage *stage,
                             const char *text, unsigned n, unsigned line)
{
    daemon_conn_send_event(b->daemon_conn,
                           json_pack("{s:s, s:s, s:i, s:i, s:i}", "step", text, "stage",
                                     stage->name, "n", (int)n, "of", (int)build_stage_total(stage),
                                     "line", (int)line));
}

static int build_send_end(const struct builder *b, int r, const struct err *err)
{
    daemon_conn_send_event(b->daemon_conn, json_pack("{s:s?}", "end", r < 0 ? err->msg : NULL));
    return r;
}

static int build_begin_on_image(struct builder *b, const char *image, struct builder_state *st,
                                struct err *err)
{
    _cleanup_base_image_ struct base_image base = {0};
    struct cache_key k;
    int r;

    if (image) {
        r = base_image_read(b->store, image, &base, NULL, err);
        if (r < 0)
            return r;
        r = base_image_history(b->store, &base, &st->base, err);
        if (r < 0)
            return r;
    }
    cache_key_begin(&k, "base");
    cache_key_texts(&k, "layers", base.layers);
    cache_key_end(&k, st->key);
    st->layers = TAKE_PTR(base.layers);
    st->created = TAKE_PTR(base.created);
    return 0;
}

static int build_stage(struct builder *b, size_t i, struct err *err)
{
    const struct build_stage *stage = &b->plan.stages[i];
    struct builder_state *st = &b->states[i];
    int r;

    st->done = json_array();
    if (stage->base >= 0) {
        const struct builder_state *base = &b->states[stage->base];

        st->layers = strv_copy(base->layers);
        st->created = base->created ? xstrdup(base->created) : NULL;
        memcpy(st->key, base->key, DIGEST_MAX);
    } else {
        _cleanup_free_ char *text = xasprintf("FROM %s", stage->image ? stage->image : "scratch");

        build_send_begin(b, stage, text, 1, 0);
        r = build_send_end(b, build_begin_on_image(b, stage->image, st, err), err);
        if (r < 0)
            return r;
    }
    for (size_t k = 0; k < stage->n_steps; k++) {
        const struct build_plan_step *s = &stage->steps[k];

        build_send_begin(b, stage, s->text, (unsigned)(k + 1 + (stage->base < 0)), s->line);
        r = build_send_end(b, step_take(b, st, stage, k, err), err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- all stages ---- */

/* Each stage has its own range of numbers in the workspace, so that names do not collide. */
enum { NUMBERS_PER_STAGE = 100000 };

static bool build_is_needed(void *arg, size_t stage)
{
    return ((const struct builder *)arg)->plan.stages[stage].needed;
}

static bool build_waits_for(void *arg, size_t stage, size_t earlier)
{
    const struct build_stage *s = &((const struct builder *)arg)->plan.stages[stage];

    if (s->base == (long)earlier)
        return true;
    for (size_t i = 0; i < s->n_steps; i++) {
        const struct build_plan_step *step = &s->steps[i];

        if (step->from.stage == (long)earlier)
            return true;
        for (size_t k = 0; k < step->n_mounts; k++)
            if (step->mounts[k].from.stage == (long)earlier)
                return true;
    }
    return false;
}

static int build_numbered_stage(void *arg, size_t stage, struct err *err)
{
    struct builder *b = arg;

    b->workspace.n = ((unsigned)stage + 1) * NUMBERS_PER_STAGE;
    return build_stage(b, stage, err);
}

static json_t *build_stage_result(void *arg, size_t stage)
{
    const struct builder_state *st = &((const struct builder *)arg)->states[stage];

    return json_pack("{s:o, s:s, s:s?, s:O?, s:O}", "layers", json_from_strv(st->layers), "key",
                     st->key, "created", st->created, "base", st->base, "done", st->done);
}

static int build_on_stage_result(void *arg, size_t stage, const json_t *doc, struct err *err)
{
    struct builder_state *st = &((struct builder *)arg)->states[stage];
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
    const struct stages stages = {.daemon_conn = b->daemon_conn,
                                  .arg = b,
                                  .n = b->plan.n_stages,
                                  .is_needed = build_is_needed,
                                  .waits_for = build_waits_for,
                                  .build = build_numbered_stage,
                                  .result = build_stage_result,
                                  .on_result = build_on_stage_result};

    return stages_run(&stages, err);
}

/* ---- the image ---- */

/* The history of the base comes first. */
static void build_add_history(const struct builder *b, size_t stage, json_t *list)
{
    const struct build_stage *s = &b->plan.stages[stage];
    const struct builder_state *st = &b->states[stage];

    if (s->base >= 0)
        build_add_history(b, (size_t)s->base, list);
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

static int build_finish(struct builder *b, json_t **ret, struct err *err)
{
    const struct builder_state *st = &b->states[b->plan.target];
    _cleanup_json_ json_t *history = json_array(), *names = json_array();
    _cleanup_free_ char *config = NULL;
    char id[DIGEST_MAX];
    int r;

    build_add_history(b, b->plan.target, history);
    history_fill_times(history);
    config =
        config_json_text(&b->plan.config, st->layers, b->epoch ? b->epoch : st->created, history);
    r = save_image(b->store, config, id, err);
    if (r < 0)
        return r;
    r = save_image_tag(b->store, b->request->tags, id, names, err);
    if (r < 0)
        return r;
    *ret = json_pack("{s:s, s:O, s:i}", "id", id, "names", names, "layers",
                     (int)(strv_len(st->layers) - images_begin_with_host(st->layers)));
    return 0;
}

/* ---- base images ---- */

static int build_pull(struct builder *b, const char *name, struct err *err)
{
    _cleanup_free_ char *text = xasprintf("pull %s", name), *as = base_image_name(name);
    json_t *pull = json_pack("{s:s}", "name", name);
    int r;

    if (!STREQ(as, name))
        json_object_set_new(pull, "as", json_string(as));
    daemon_conn_send_event(b->daemon_conn,
                           json_pack("{s:s, s:s}", "step", text, "stage", "internal"));
    r = daemon_conn_pull(b->daemon_conn, pull, err);
    if (r == -ERR_UNAUTHORIZED)
        err_hint(err, "Log in with `docker login`, which writes ~/.docker/config.json, or pull the "
                      "image first with `ripcord image pull --username`.");
    if (r < 0 && !err->hint)
        err_hint(err, "Bring it in with `ripcord image pull` or `ripcord image import`.");
    strv_add(&b->pulled, name);
    return build_send_end(b, r, err);
}

/* With --pull a tag is pulled once per build. A digest always names the same image. */
static bool build_must_pull(const struct builder *b, const char *name)
{
    return b->request->pull && !strchr(name, '@') && !reference_is_host(name) &&
           !strv_contains(b->pulled, name);
}

/* build_image_fn */
static int build_image_config(void *arg, const char *name, struct dockerfile_config *ret,
                              bool *ret_on_host, struct err *err)
{
    struct builder *b = arg;
    _cleanup_base_image_ struct base_image base = {0};
    _cleanup_err_ struct err why = ERR_INIT;
    int r = -ERR_NOT_FOUND;

    if (!build_must_pull(b, name))
        r = base_image_read(b->store, name, &base, ret, &why);
    if (r == -ERR_NOT_FOUND) {
        err_done(&why);
        r = build_pull(b, name, &why);
        if (r < 0)
            return err_move(err, &why);
        r = base_image_read(b->store, name, &base, ret, &why);
    }
    if (r < 0)
        return err_move(err, &why);
    *ret_on_host = images_begin_with_host(base.layers);
    return 0;
}

/* ---- the whole build ---- */

static int build_check_agents(char *const *agents, struct err *err)
{
    for (; agents && *agents; agents++) {
        const char *equals = strchr(*agents, '=');
        _cleanup_free_ char *id = equals ? xstrndup(*agents, (size_t)(equals - *agents)) : NULL;
        int r;

        if (!equals)
            return err_set(err, ERR_INVALID, "ssh agent '%.64s': must be ID=SOCKET", *agents);
        r = agent_check(id, equals + 1, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int build_make_plan(struct builder *b, struct err *err)
{
    const struct config_inputs inputs = {.build_args = b->request->args,
                                         .target = b->request->target,
                                         .arch = image_config_architecture()};
    _cleanup_(dockerfile_freep) struct dockerfile *df = NULL;

    if (context_dockerfile(&b->workspace, b->request->dockerfile, &df, err) < 0 ||
        build_plan_make(df, &inputs, b->request->agents, build_image_config, b, &b->plan, err) < 0)
        return err_wrap(err, "%.200s", b->request->dockerfile);
    b->states = xcalloc(b->plan.n_stages, sizeof(*b->states));
    return 0;
}

static void build_builder_done(struct builder *b)
{
    for (size_t i = 0; b->states && i < b->plan.n_stages; i++) {
        strv_free(b->states[i].layers);
        free(b->states[i].created);
        json_decref(b->states[i].base);
        json_decref(b->states[i].done);
    }
    free(b->states);
    free(b->epoch);
    strv_free(b->pulled);
    build_plan_done(&b->plan);
    workspace_done(&b->workspace);
}

int build_image(struct images *s, const struct confined_ids *ids, const char *name, int context,
                const struct builder_request *request, struct daemon_conn *daemon_conn,
                json_t **ret, struct err *err)
{
    _cleanup_(build_builder_done) struct builder b = {
        .store = s, .request = request, .daemon_conn = daemon_conn, .workspace = WORKSPACE_INIT};
    int r;

    r = save_image_check_names(request->tags, err);
    if (r < 0)
        return r;
    r = history_epoch(request->args, &b.epoch, err);
    if (r < 0)
        return r;
    r = build_check_agents(request->agents, err);
    if (r < 0)
        return r;
    r = workspace_open(s, ids, name, &b.workspace, err);
    if (r < 0)
        return r;
    r = workspace_unpack_context(&b.workspace, context, request->digest_only, err);
    if (r < 0)
        return r;
    r = build_make_plan(&b, err);
    if (r < 0)
        return r;
    r = build_stages(&b, err);
    if (r < 0)
        return r;
    return build_finish(&b, ret, err);
}
