/*
 * The trace that BuildKit sends: any bytes are decoded or refused, and every text handed out lies
 * within them. The same bytes as base64 text.
 */
#include "dockerapi/trace.h"
#include "fuzz.h"
#include "lib/base/base64.h"

struct bounds {
    const char *data;
    size_t size;
};

static void inside(const struct bounds *b, struct trace_text t)
{
    MUST(!t.len ||
         (t.p >= b->data && t.len <= b->size && (size_t)(t.p - b->data) <= b->size - t.len));
}

static void on_vertex(void *arg, const struct trace_vertex *v)
{
    inside(arg, v->digest);
    inside(arg, v->name);
    inside(arg, v->error);
}

static void on_status(void *arg, const struct trace_status *s)
{
    inside(arg, s->vertex);
    inside(arg, s->id);
}

static void on_log(void *arg, const struct trace_log *l)
{
    inside(arg, l->vertex);
    inside(arg, l->text);
    MUST(l->stream == 1 || l->stream == 2);
}

static void on_warning(void *arg, struct trace_text text)
{
    inside(arg, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct trace_events events = {on_vertex, on_status, on_log, on_warning};
    char *copy = fuzz_copy(data, size);
    struct bounds bounds = {copy, size};
    struct err err = ERR_INIT;
    struct buf out = BUF_INIT(1 << 16);
    int r = trace_decode(copy, size, &events, &bounds, &err);

    MUST(r == 0 ? !err.code : r == -ERR_ENGINE && err.code == ERR_ENGINE);
    err_done(&err);
    if (base64_decode(&out, copy, size, &err) >= 0)
        MUST(out.len <= size / 4 * 3);
    err_done(&err);
    buf_done(&out);
    free(copy);
    return 0;
}
