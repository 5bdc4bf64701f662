/*
 * Evaluates the stages of a Dockerfile up to the target. A stage is built only on earlier stages
 * and copies only from earlier stages. So one walk backward finds the stages that the target
 * needs, and one walk forward evaluates them.
 */
#include <string.h>

#include "image/dockerfile/config.h"
#include "image/dockerfile/expand.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { BASE_IMAGE = -1, BASE_EMPTY = -2 }; /* in place of a stage */

struct stages_evaluation {
    const struct dockerfile *df;
    const struct config_inputs *inputs;
    char **globals;                 /* owned */
    struct dockerfile_config *made; /* owned: one for each stage */
    long *bases;                    /* owned: the stage that each is built on, or a BASE_ */
    bool *needed;                   /* owned */
    char **images; /* owned: the base image of each stage with BASE_IMAGE; else NULL */
    size_t copied; /* config_begin() */
    size_t *ret_at;
    const struct config_visitor *visitor;
    void *arg;
};

static void dockerfile_stages_done(struct stages_evaluation *ev)
{
    for (size_t i = 0; ev->made && i < ev->df->n_stages; i++)
        config_done(&ev->made[i]);
    for (size_t i = 0; ev->images && i < ev->df->n_stages; i++)
        free(ev->images[i]);
    free(ev->images);
    strv_free(ev->globals);
    free(ev->made);
    free(ev->bases);
    free(ev->needed);
}

static const char *dockerfile_stages_no_variable(void *userdata, const char *name)
{
    (void)userdata;
    (void)name;
    return NULL;
}

static int dockerfile_stages_check_literal(const struct dockerfile *df, const char *from,
                                           struct err *err)
{
    struct expand x = {.escape = df->escape, .get = dockerfile_stages_no_variable};
    _cleanup_free_ char *plain = NULL;
    int r = expand_word(&x, from, &plain, err);

    if (r < 0 || STREQ(plain, from))
        return r;
    err_set(err, ERR_INVALID, "'--from=%s' cannot contain variables", from);
    return err_hint(err, "Name the image with FROM … AS, where global ARGs are allowed.");
}

/* The stage that --from names, or -1 for an image. A later stage is an error. */
static int dockerfile_stages_find_source(const struct stages_evaluation *ev, size_t stage,
                                         const char *from, long *ret, struct err *err)
{
    long found = dockerfile_find_stage(ev->df, from, ev->df->n_stages);
    uint32_t index;

    if (found < 0 && parse_u32(from, 0, UINT32_MAX, &index, NULL) >= 0)
        return err_set(err, ERR_INVALID, "no such stage: %u", index);
    *ret = dockerfile_find_stage(ev->df, from, stage);
    if (*ret < 0 && found >= 0)
        return err_set(err, ERR_INVALID, "stage '%s' must come before this stage", from);
    return 0;
}

static int dockerfile_stages_need_source(struct stages_evaluation *ev, size_t stage,
                                         const char *from, struct err *err)
{
    long found = -1;
    int r = dockerfile_stages_find_source(ev, stage, from, &found, err);

    if (r < 0)
        return r;
    if (found >= 0)
        ev->needed[found] = true;
    return 0;
}

static int dockerfile_stages_need_sources(struct stages_evaluation *ev, size_t stage,
                                          const struct dockerfile_instruction *in, struct err *err)
{
    const char *from = in->kind == DOCKERFILE_COPY ? dockerfile_flag(in, "from") : NULL;
    int r;

    *ev->ret_at = in->at;
    if (from && *from) {
        r = dockerfile_stages_check_literal(ev->df, from, err);
        if (r < 0)
            return r;
        r = dockerfile_stages_need_source(ev, stage, from, err);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < in->n_mounts; i++) {
        if (!in->mounts[i].from)
            continue;
        *ev->ret_at = in->mounts[i].at;
        r = dockerfile_stages_need_source(ev, stage, in->mounts[i].from, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int dockerfile_stages_find_target(struct stages_evaluation *ev, size_t *ret, struct err *err)
{
    const struct dockerfile *df = ev->df;
    const char *target = ev->inputs->target;
    long found = (long)df->n_stages - 1;

    *ev->ret_at = 0;
    if (target)
        found = dockerfile_find_stage(df, target, df->n_stages);
    if (found < 0)
        return err_set(err, ERR_NOT_FOUND, "no such stage: '%s'", target);
    *ret = (size_t)found;
    return 0;
}

static int dockerfile_stages_find_bases(struct stages_evaluation *ev, struct err *err)
{
    for (size_t i = 0; i < ev->df->n_stages; i++) {
        _cleanup_free_ char *base = NULL;
        int r = config_base(ev->df, i, ev->globals, &base, ev->ret_at, err);

        if (r < 0)
            return r;
        /* A number is an image here, not a stage. */
        ev->bases[i] = strspn(base, "0123456789") == strlen(base)
                           ? BASE_IMAGE
                           : dockerfile_find_stage(ev->df, base, i);
        if (ev->bases[i] < 0 && STREQ(base, "scratch"))
            ev->bases[i] = BASE_EMPTY;
        if (ev->bases[i] == BASE_IMAGE)
            ev->images[i] = TAKE_PTR(base);
    }
    return 0;
}

static int dockerfile_stages_find_needed(struct stages_evaluation *ev, size_t target,
                                         struct err *err)
{
    ev->needed[target] = true;
    for (size_t i = target + 1; i-- > 0;) {
        const struct dockerfile_stage *st = &ev->df->stages[i];

        if (!ev->needed[i])
            continue;
        if (ev->bases[i] >= 0)
            ev->needed[ev->bases[i]] = true;
        for (size_t k = st->first; k < st->last; k++) {
            int r = dockerfile_stages_need_sources(ev, i, &ev->df->instructions[k], err);

            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* The values that BuildKit sets for `FROM scratch`. */
static void dockerfile_stages_begin_empty(struct dockerfile_config *c)
{
    static const char path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

    strv_env_set(&c->env, "PATH", path);
    strv_env_set(&c->scope, "PATH", path);
    c->workdir = xstrdup("/");
}

static int dockerfile_stages_apply(struct stages_evaluation *ev, size_t i,
                                   const struct dockerfile *df,
                                   const struct dockerfile_instruction *in, struct err *err)
{
    struct dockerfile_config *c = &ev->made[i];
    int r = config_apply(c, df, in, ev->inputs, ev->globals, ev->ret_at, err);

    if (r < 0 || !ev->visitor->step)
        return r;
    *ev->ret_at = in->at;
    return ev->visitor->step(ev->arg, i, df, in, c, ev->ret_at, err);
}

/* Applies ONBUILD of the base stage, with the variables of this stage. */
static int dockerfile_stages_apply_triggers(struct stages_evaluation *ev, size_t i, struct err *err)
{
    const struct dockerfile_stage *base = &ev->df->stages[ev->bases[i]];

    for (size_t k = base->first; k < base->last; k++) {
        const struct dockerfile_instruction *in = &ev->df->instructions[k];
        int r;

        if (in->kind != DOCKERFILE_ONBUILD)
            continue;
        r = dockerfile_stages_apply(ev, i, ev->df, in->trigger, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Applies an ONBUILD text of a base image. Positions in that text mean nothing here: errors are
 * reported at FROM. */
static int dockerfile_stages_apply_trigger_text(struct stages_evaluation *ev, size_t i,
                                                const char *text, struct err *err)
{
    _cleanup_free_ char *whole = xasprintf("FROM scratch\n%s\n", text);
    _cleanup_(dockerfile_freep) struct dockerfile *df = NULL;
    int r = dockerfile_parse(whole, strlen(whole), &df, NULL, err);

    if (r < 0)
        return r;
    if (df->n_stages != 1 || df->stages[0].last - df->stages[0].first != 1)
        return err_set(err, ERR_INVALID, "it must be exactly one instruction");
    return dockerfile_stages_apply(ev, i, df, &df->instructions[df->stages[0].first], err);
}

static int dockerfile_stages_begin_image(struct stages_evaluation *ev, size_t i, struct err *err)
{
    struct dockerfile_config *c = &ev->made[i];
    _cleanup_strv_ char **triggers = NULL;
    int r;

    if (!ev->visitor->image)
        return 0;
    r = ev->visitor->image(ev->arg, i, ev->images[i], c, err);
    if (r < 0)
        return r;
    triggers = TAKE_PTR(c->triggers); /* they are not inherited */
    for (char **t = triggers; t && *t; t++) {
        r = dockerfile_stages_apply_trigger_text(ev, i, *t, err);
        *ev->ret_at = ev->df->stages[i].from->at;
        if (r < 0)
            return err_wrap(err, "ONBUILD '%.64s' of image '%.200s'", *t, ev->images[i]);
    }
    return 0;
}

static int dockerfile_stages_begin_stage(struct stages_evaluation *ev, size_t i, struct err *err)
{
    long base = ev->bases[i];
    int r;

    *ev->ret_at = ev->df->stages[i].from->at;
    if (ev->visitor->stage) {
        r = ev->visitor->stage(ev->arg, i, base < 0 ? -1 : base, ev->images[i], err);
        if (r < 0)
            return r;
    }
    r = config_begin(&ev->made[i], base >= 0 ? &ev->made[base] : NULL, &ev->copied, err);
    if (r < 0)
        return r;
    if (base == BASE_IMAGE)
        return dockerfile_stages_begin_image(ev, i, err);
    if (base >= 0)
        return dockerfile_stages_apply_triggers(ev, i, err);
    dockerfile_stages_begin_empty(&ev->made[i]);
    return 0;
}

static int dockerfile_stages_evaluate_stage(struct stages_evaluation *ev, size_t i, struct err *err)
{
    const struct dockerfile_stage *st = &ev->df->stages[i];
    int r = dockerfile_stages_begin_stage(ev, i, err);

    if (r < 0)
        return r;
    for (size_t k = st->first; k < st->last; k++) {
        r = dockerfile_stages_apply(ev, i, ev->df, &ev->df->instructions[k], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int dockerfile_stages_evaluate(struct stages_evaluation *ev, struct dockerfile_config *ret,
                                      size_t *ret_target, struct err *err)
{
    size_t target = 0, n = ev->df->n_stages;
    int r = config_globals(ev->df, ev->inputs, &ev->globals, ev->ret_at, err);

    if (r < 0)
        return r;
    ev->made = xcalloc(n, sizeof(*ev->made));
    ev->bases = xcalloc(n, sizeof(*ev->bases));
    ev->images = xcalloc(n, sizeof(*ev->images));
    ev->needed = xcalloc(n, sizeof(*ev->needed));
    r = dockerfile_stages_find_bases(ev, err);
    if (r < 0)
        return r;
    r = dockerfile_stages_find_target(ev, &target, err);
    if (r < 0)
        return r;
    r = dockerfile_stages_find_needed(ev, target, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i <= target; i++) {
        r = ev->needed[i] ? dockerfile_stages_evaluate_stage(ev, i, err) : 0;
        if (r < 0)
            return r;
    }
    *ret = ev->made[target];
    ev->made[target] = (struct dockerfile_config){0};
    if (ret_target)
        *ret_target = target;
    return 0;
}

static int dockerfile_stages_walk(struct stages_evaluation *ev, struct dockerfile_config *ret,
                                  size_t *ret_target, struct err *err)
{
    struct dockerfile_pos pos;
    int r = dockerfile_stages_evaluate(ev, ret, ret_target, err);

    dockerfile_stages_done(ev);
    if (r >= 0)
        return r;
    pos = dockerfile_pos(ev->df, *ev->ret_at);
    err_wrap(err, "line %u, column %u", pos.line, pos.column);
    return r;
}

int config_walk(const struct dockerfile *df, const struct config_inputs *inputs,
                const struct config_visitor *visitor, void *arg, struct dockerfile_config *ret,
                size_t *ret_target, struct err *err)
{
    size_t at = 0;
    struct stages_evaluation ev = {
        .df = df, .inputs = inputs, .ret_at = &at, .visitor = visitor, .arg = arg};

    return dockerfile_stages_walk(&ev, ret, ret_target, err);
}

int config_evaluate(const struct dockerfile *df, const struct config_inputs *inputs,
                    struct dockerfile_config *ret, size_t *ret_at, struct err *err)
{
    static const struct config_visitor none = {0};
    size_t at = 0;
    struct stages_evaluation ev = {.df = df, .inputs = inputs, .ret_at = &at, .visitor = &none};
    int r = dockerfile_stages_walk(&ev, ret, NULL, err);

    if (r < 0 && ret_at)
        *ret_at = at;
    return r;
}
