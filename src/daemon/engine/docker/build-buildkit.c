/*
 * BuildKit reports changes of the vertices of a graph: a vertex exists, has started, has completed.
 * A vertex may start again after a cache lookup. A step of ours begins once and ends once; only an
 * error that arrives later ends it again.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/build.h"
#include "daemon/engine/docker/build-lines.h"
#include "daemon/engine/docker/build.h"
#include "dockerapi/trace.h"
#include "lib/base/base64.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

enum { VERTICES_MAX = 16384, DIGEST_MAX = 256, TRACE_MAX = 1 << 20 };

struct buildkit_vertex {
    char *digest; /* owned */
    unsigned step;
    bool ended, failed;
    uint64_t reported; /* progress of a download, in tenths */
};

struct buildkit {
    struct build *build;
    const struct build_lines *lines;
    struct buildkit_vertex *vertices;
    size_t n;
};

struct buildkit *buildkit_new(struct build *b, const struct build_lines *lines)
{
    struct buildkit *k = xnew0(struct buildkit);

    k->build = b;
    k->lines = lines;
    return k;
}

void buildkit_free(struct buildkit *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < k->n; i++)
        free(k->vertices[i].digest);
    free(k->vertices);
    free(k);
}

static struct buildkit_vertex *build_buildkit_vertex_of(struct buildkit *k,
                                                        struct trace_text digest)
{
    for (size_t i = k->n; i-- > 0;)
        if (strlen(k->vertices[i].digest) == digest.len &&
            memcmp(k->vertices[i].digest, digest.p, digest.len) == 0)
            return &k->vertices[i];
    return NULL;
}

/* "[STAGE 2/4] TEXT", "[2/4] TEXT", "[internal] TEXT" or only TEXT; cuts `name` up. */
static void build_buildkit_split_name(char *name, struct build_step_info *ret)
{
    char *close = *name == '[' ? strstr(name, "] ") : NULL, *count;
    uint64_t n, of;
    char *slash;

    *ret = (struct build_step_info){.text = name};
    if (!close)
        return;
    *close = '\0';
    ret->stage = name + 1;
    ret->text = close + 2;
    count = strrchr(name, ' ');
    count = count ? count + 1 : name + 1;
    slash = strchr(count, '/');
    if (!slash)
        return;
    *slash = '\0';
    if (parse_u64(count, 1, BUILD_STEPS_MAX, &n, NULL) >= 0 &&
        parse_u64(slash + 1, 1, BUILD_STEPS_MAX, &of, NULL) >= 0) {
        ret->n = (unsigned)n;
        ret->of = (unsigned)of;
        count[count > name + 1 ? -1 : 0] = '\0'; /* `stage` now ends before the count */
    } else {
        *slash = '/';
    }
}

static struct buildkit_vertex *build_buildkit_begin(struct buildkit *k,
                                                    const struct trace_vertex *v)
{
    _cleanup_free_ char *name = xstrndup(v->name.p ? v->name.p : "", v->name.len);
    struct build_step_info step;
    struct buildkit_vertex *x;

    if (k->n >= VERTICES_MAX || !v->digest.len || v->digest.len > DIGEST_MAX)
        return NULL;
    k->vertices = xreallocarray(k->vertices, k->n + 1, sizeof(*k->vertices));
    x = &k->vertices[k->n++];
    *x = (struct buildkit_vertex){.digest = xstrndup(v->digest.p, v->digest.len)};
    build_buildkit_split_name(name, &step);
    if (step.of)
        step.line = build_lines_find(k->lines, step.stage, step.n, step.of, false);
    x->step = build_step_begin(k->build, &step);
    return x;
}

static void build_buildkit_on_vertex(void *arg, const struct trace_vertex *v)
{
    struct buildkit *k = arg;
    struct buildkit_vertex *x = build_buildkit_vertex_of(k, v->digest);
    _cleanup_free_ char *error = v->error.len ? xstrndup(v->error.p, v->error.len) : NULL;

    if (!x && (v->started || v->completed))
        x = build_buildkit_begin(k, v);
    if (!x || !v->completed || (x->ended && (!error || x->failed)))
        return;
    if (v->cached && !error && !x->ended)
        build_step_cached(k->build, x->step);
    build_step_end(k->build, x->step, error);
    x->ended = true;
    x->failed = error != NULL;
}

/* Reports the progress of a download at most ten times. */
static void build_buildkit_on_status(void *arg, const struct trace_status *s)
{
    struct buildkit *k = arg;
    struct buildkit_vertex *x = build_buildkit_vertex_of(k, s->vertex);
    _cleanup_free_ char *id = NULL;
    uint64_t tenth = s->total ? s->current / (s->total / 10 + 1) + 1 : 0;

    if (!x || !s->total || tenth == x->reported)
        return;
    x->reported = tenth;
    id = xstrndup(s->id.p ? s->id.p : "", s->id.len);
    build_step_progress(k->build, x->step, id, s->current, s->total);
}

static void build_buildkit_on_log(void *arg, const struct trace_log *l)
{
    struct buildkit *k = arg;
    const struct buildkit_vertex *x = build_buildkit_vertex_of(k, l->vertex);

    if (x && l->text.len)
        build_step_output(k->build, x->step, l->stream == 2 ? BUILD_STDERR : BUILD_STDOUT,
                          l->text.p, l->text.len);
}

static void build_buildkit_on_warning(void *arg, struct trace_text t)
{
    struct buildkit *k = arg;
    _cleanup_free_ char *text = xstrndup(t.p, t.len);

    build_warning(k->build, text, 0);
}

int buildkit_take(struct buildkit *k, const json_t *line, struct err *err)
{
    static const struct trace_events events = {build_buildkit_on_vertex, build_buildkit_on_status,
                                               build_buildkit_on_log, build_buildkit_on_warning};
    const json_t *aux = json_object_get(line, "aux");
    _cleanup_buf_ struct buf bytes = BUF_INIT(TRACE_MAX);
    int r;

    if (!json_is_string(aux))
        return err_set(err, ERR_ENGINE, "BuildKit trace: the field 'aux' is missing");
    r = base64_decode(&bytes, json_string_value(aux), json_string_length(aux), err);
    if (r < 0) {
        if (err)
            err->code = ERR_ENGINE;
        return err_wrap(err, "BuildKit trace");
    }
    return trace_decode(buf_data(&bytes), bytes.len, &events, k, err);
}
