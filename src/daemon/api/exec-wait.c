/*
 * The output is read from the journals after the end. Until then nothing is read, so the wait costs
 * a watch and a timer.
 */
#include "daemon/api/exec-wait.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api/exec-counts.h"
#include "daemon/api/exec-text.h"
#include "daemon/core/exec/exec-linger.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

#define WAIT_MAX_MS (UINT64_C(3600) * 1000)

struct exec_waiting {
    struct api_call *call;
    struct exec *exec;
    struct wait_config config;
    struct exec_watch watch;
    struct exec_counts counts;
    struct loop_timer *timer;
    bool expired;
};

int wait_read_query(struct api_call *c, uint64_t *ret, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    int r = call_query_text(c, "wait", &text, err);

    if (r < 0 || !text)
        return r;
    r = parse_duration(text, ret, err);
    if (r >= 0)
        r = parse_check_range("the duration", *ret / USEC_PER_MSEC, 0, WAIT_MAX_MS, PARSE_MSEC,
                              err);
    return r < 0 ? err_wrap(err, "query parameter 'wait'") : 1;
}

/* ---- the output ---- */

/* The bytes from..to of a stream, as far as they are kept. *from: the first of them. */
static int exec_wait_read(struct output_stream *s, uint64_t *from, uint64_t to, struct buf *ret,
                          struct err *err)
{
    while (*from + ret->len < to) {
        size_t want = (size_t)(to - *from - ret->len);
        char *room = buf_reserve(ret, want);
        struct output_chunk chunk;
        int r = output_stream_read(s, room, want, &chunk, err);

        if (r < 0)
            return r;
        if (chunk.kind == OUTPUT_GAP && !ret->len)
            *from = chunk.to;
        else if (chunk.kind == OUTPUT_DATA)
            buf_commit(ret, chunk.len);
        else
            return 0;
    }
    return 0;
}

/* Opens one stream of the exec at an offset. */
typedef int (*exec_wait_open_fn)(const void *arg, const struct output_stream_config *c,
                                 struct output_stream **ret, struct err *err);

struct exec_wait_source {
    exec_wait_open_fn open;
    const void *arg;
    uint64_t total[JOURNAL_STREAMS];
};

static int exec_wait_part(const struct exec_wait_source *src, enum journal_stream which,
                          uint64_t *from, uint64_t to, struct buf *ret, struct err *err)
{
    struct output_stream_config config = {0};
    struct output_stream *s = NULL;
    int r;

    config.want[which] = true;
    config.offsets[which] = *from;
    r = src->open(src->arg, &config, &s, err);
    if (r >= 0)
        r = exec_wait_read(s, from, to, ret, err);
    output_stream_free(s);
    return r;
}

/*
 * {"bytes"} and {"text"} or {"base64"}. If the stream is longer than `max`, that is its first half,
 * and "tail" has the last bytes with their offset. If the first bytes are lost, "offset" says where
 * the text begins.
 */
static json_t *exec_wait_output(const struct exec_wait_source *src, enum journal_stream which,
                                uint64_t max, struct err *err)
{
    uint64_t total = src->total[which], from = 0, back = total - MIN(total, max / 2);
    _cleanup_buf_ struct buf head = BUF_INIT(max), tail = BUF_INIT(max);
    _cleanup_json_ json_t *o = json_pack("{s:I}", "bytes", (json_int_t)total);
    size_t cut;

    if (exec_wait_part(src, which, &from, total <= max ? total : max - max / 2, &head, err) < 0)
        return NULL;
    cut = total <= max ? 0 : exec_text_cut(buf_data(&head), head.len);
    exec_text_put(o, buf_data(&head), head.len - cut);
    if (from)
        json_object_set_new(o, "offset", json_integer((json_int_t)from));
    if (from + head.len < total) {
        json_t *t;

        back = MAX(back, from + head.len);
        if (exec_wait_part(src, which, &back, total, &tail, err) < 0)
            return NULL;
        cut = exec_text_skip(buf_data(&tail), tail.len);
        back += cut;
        t = json_pack("{s:I}", "offset", (json_int_t)back);
        exec_text_put(t, buf_data(&tail) + cut, tail.len - cut);
        json_object_set_new(o, "tail", t);
    }
    return TAKE_PTR(o);
}

static int exec_wait_add_output(json_t *doc, const struct exec_wait_source *src,
                                const struct wait_config *config, struct err *err)
{
    static const char *const names[JOURNAL_STREAMS] = {"stdout", "stderr"};

    for (int i = 0; config->output && i < JOURNAL_STREAMS; i++) {
        json_t *o = exec_wait_output(src, (enum journal_stream)i, config->out_max, err);

        if (!o)
            return err_wrap(err, "read the output");
        json_object_set_new(doc, names[i], o);
    }
    return 0;
}

/* ---- a live exec ---- */

static int exec_wait_open_live(const void *arg, const struct output_stream_config *c,
                               struct output_stream **ret, struct err *err _unused_)
{
    *ret = output_stream_new_live((struct exec *)arg, c);
    return 0;
}

static json_t *exec_wait_document(const struct exec_waiting *w, struct err *err)
{
    const struct exec *x = w->exec;
    struct exec_wait_source src = {
        exec_wait_open_live, x, {x->end.stdout_bytes, x->end.stderr_bytes}};
    _cleanup_json_ json_t *doc = json_pack("{s:o}", "exec", exec_to_json(x));

    if (x->state != EXEC_ENDED)
        return TAKE_PTR(doc);
    exec_counts_add(&w->counts, json_object_get(json_object_get(doc, "exec"), "end"));
    if (exec_wait_add_output(doc, &src, &w->config, err) < 0)
        return NULL;
    return TAKE_PTR(doc);
}

static void exec_wait_free(struct exec_waiting *w)
{
    exec_watch_remove(w->exec, &w->watch);
    exec_counts_done(&w->counts);
    loop_timer_free(w->timer);
    exec_unref(w->exec);
    free(w);
}

static void exec_wait_answer(struct exec_waiting *w)
{
    _cleanup_err_ struct err err = ERR_INIT;
    bool ended = w->exec->state == EXEC_ENDED;
    struct api_call *c = w->call;
    json_t *doc = NULL;

    if (w->exec->start_err.code)
        err_copy(&err, &w->exec->start_err);
    else
        doc = exec_wait_document(w, &err);
    if (!ended && w->config.wire.run)
        exec_linger(w->exec);
    c->on_gone = NULL;
    exec_wait_free(w);
    if (!doc)
        call_reply_err(c, &err);
    else
        call_reply(c, ended ? 200 : 202, doc);
}

/* A start has a deadline of its own, and figures of the package cache take a moment. */
static void exec_wait_check(struct exec_waiting *w)
{
    bool ended = w->exec->state == EXEC_ENDED;

    if ((ended && !exec_counts_pending(&w->counts)) ||
        (w->expired && w->exec->state == EXEC_RUNNING))
        exec_wait_answer(w);
}

static void exec_wait_on_timer(void *arg)
{
    struct exec_waiting *w = arg;

    w->expired = true;
    exec_wait_check(w);
}

static void exec_wait_on_event(void *arg, enum exec_event event _unused_)
{
    struct exec_waiting *w = arg;

    exec_counts_update(&w->counts, w->config.wire.manager, w->exec);
    exec_wait_check(w);
}

static void exec_wait_on_counted(void *arg)
{
    exec_wait_check(arg);
}

/* Nobody waits any more: the exec goes on, or a `run` ends. */
static void exec_wait_drop(struct exec_waiting *w)
{
    struct api_call *c = w->call;

    wire_client_gone(&w->config.wire, w->exec);
    exec_wait_free(w);
    call_take_request(c);
}

/* If the request has a key, its client may come back, so its answer is still made. */
static bool exec_wait_goes_on(const struct exec_waiting *w)
{
    return w->call->key && !w->config.wire.kill && call_go_on(w->call);
}

static void exec_wait_on_gone(void *arg)
{
    struct exec_waiting *w = arg;

    if (!exec_wait_goes_on(w))
        exec_wait_drop(w);
}

void wait_start(struct api_call *c, struct exec *x, const struct wait_config *config)
{
    struct exec_waiting *w = xnew0(struct exec_waiting);

    w->call = c;
    w->exec = x;
    w->config = *config;
    w->watch = (struct exec_watch){.fn = exec_wait_on_event,
                                   .arg = w,
                                   .attached = config->wire.run, /* keeps its sandbox */
                                   .acked = {UINT64_MAX, UINT64_MAX}};
    w->counts =
        (struct exec_counts){.wanted = config->wire.stats, .done = exec_wait_on_counted, .arg = w};
    exec_counts_update(&w->counts, config->wire.manager, x);
    w->expired = !config->wait;
    if (config->wait) {
        w->timer = loop_timer_new(config->wire.loop, exec_wait_on_timer, w);
        loop_timer_set(w->timer, config->wait, false);
    }
    exec_watch_add(x, &w->watch);
    c->on_gone = exec_wait_on_gone;
    c->gone_arg = w;
    if (!c->req && !exec_wait_goes_on(w)) {
        exec_wait_drop(w);
        return;
    }
    if (w->expired && x->state != EXEC_STARTING)
        exec_wait_answer(w);
}

/* ---- an exec that has ended ---- */

struct exec_wait_stored {
    struct manager *m;
    struct sandbox *sb;
    const char *id;
};

static int exec_wait_open_stored(const void *arg, const struct output_stream_config *c,
                                 struct output_stream **ret, struct err *err)
{
    const struct exec_wait_stored *s = arg;

    return output_stream_new(s->m, s->sb, s->id, c, ret, err);
}

int wait_add_stored(struct manager *m, struct sandbox *sb, json_t *doc,
                    const struct wait_config *config, struct err *err)
{
    const json_t *exec = json_object_get(doc, "exec"), *end = json_object_get(exec, "end");
    const struct exec_wait_stored stored = {m, sb, json_string_value(json_object_get(exec, "id"))};
    const struct exec_wait_source src = {
        exec_wait_open_stored,
        &stored,
        {(uint64_t)json_integer_value(json_object_get(end, "stdout_bytes")),
         (uint64_t)json_integer_value(json_object_get(end, "stderr_bytes"))}};

    return json_is_object(end) ? exec_wait_add_output(doc, &src, config, err) : 0;
}
