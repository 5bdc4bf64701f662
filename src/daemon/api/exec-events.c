/*
 * A piece of output may end within a UTF-8 character. The bytes of that character stay here until
 * the next piece brings the rest, so that text stays text.
 */
#include "daemon/api/exec-events.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api/exec-counts.h"
#include "daemon/api/exec-text.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

enum { PIECE = 32 << 10, PENDING_MAX = 256 << 10, CARRY_MAX = 3, LINE_MAX_BYTES = 8 * PIECE };

struct exec_events {
    struct wire_config config;
    enum exec_events_kind kind;
    struct http_req *req;
    struct exec *exec; /* NULL: it had ended before */
    struct output_stream *stream;
    struct exec_counts counts;
    bool begun, started_sent; /* begun: the head of the answer is sent */
    bool at_end;              /* everything but the end is sent */
    uint64_t next[JOURNAL_STREAMS];
    struct {
        char bytes[CARRY_MAX];
        size_t len;
    } carry[JOURNAL_STREAMS];
};

static const char *const stream_names[JOURNAL_STREAMS] = {"stdout", "stderr"};

/* Shared by all answers: they run on the loop's thread, and http_stream_write() copies. */
static char scratch[CARRY_MAX + PIECE];

enum exec_events_kind exec_events_wanted(const struct api_call *c)
{
    const char *accept = c->req ? http_field_get(http_req_head(c->req), "accept") : NULL;

    if (accept && strstr(accept, "text/event-stream"))
        return EXEC_EVENTS_SSE;
    return accept && strstr(accept, "application/x-ndjson") ? EXEC_EVENTS_LINES : EXEC_EVENTS_NONE;
}

static void exec_events_free(struct exec_events *e)
{
    exec_counts_done(&e->counts);
    output_stream_free(e->stream);
    exec_unref(e->exec);
    free(e);
}

static void exec_events_on_gone(struct http_req *req)
{
    struct exec_events *e = http_req_user(req);

    wire_client_gone(&e->config, e->exec);
    exec_events_free(e);
}

/* ---- events ---- */

/* Takes the document. */
static void exec_events_send(struct exec_events *e, json_t *doc)
{
    _cleanup_free_ char *text = json_to_text(doc, false);
    _cleanup_buf_ struct buf b = BUF_INIT(LINE_MAX_BYTES);

    json_decref(doc);
    if (e->kind == EXEC_EVENTS_SSE)
        (void)!buf_appendf(
            &b, "id: %llu.%llu\ndata: ", (unsigned long long)(e->next[0] - e->carry[0].len),
            (unsigned long long)(e->next[1] - e->carry[1].len));
    if (buf_append_str(&b, text) >= 0 &&
        buf_append_str(&b, e->kind == EXEC_EVENTS_SSE ? "\n\n" : "\n") >= 0)
        http_stream_write(e->req, buf_data(&b), b.len);
}

static void exec_events_send_data(struct exec_events *e, enum journal_stream which, uint64_t offset,
                                  const char *data, size_t len)
{
    json_t *o = json_pack("{s:s, s:I}", "event", stream_names[which], "offset", (json_int_t)offset);

    exec_text_put(o, data, len);
    exec_events_send(e, o);
}

/* The carried bytes are in front of `data`. */
static void exec_events_take_data(struct exec_events *e, enum journal_stream which, char *data,
                                  size_t len, bool last)
{
    size_t carried = e->carry[which].len, keep;

    data -= carried;
    len += carried;
    keep = last ? 0 : exec_text_cut(data, len);
    e->carry[which].len = keep;
    memcpy(e->carry[which].bytes, data + len - keep, keep);
    if (len > keep)
        exec_events_send_data(e, which, e->next[which] - len, data, len - keep);
}

/* The character that was cut has no more bytes. */
static void exec_events_flush(struct exec_events *e, enum journal_stream which)
{
    memcpy(scratch, e->carry[which].bytes, e->carry[which].len);
    exec_events_take_data(e, which, scratch + e->carry[which].len, 0, true);
}

static void exec_events_send_gap(struct exec_events *e, const struct output_chunk *chunk)
{
    exec_events_flush(e, chunk->which);
    e->next[chunk->which] = chunk->to;
    exec_events_send(e, json_pack("{s:s, s:s, s:I, s:I}", "event", "gap", "stream",
                                  stream_names[chunk->which], "from", (json_int_t)chunk->offset,
                                  "to", (json_int_t)chunk->to));
}

static void exec_events_send_started(struct exec_events *e)
{
    _cleanup_json_ json_t *what = NULL;
    json_t *o;

    if (e->started_sent || !e->exec || e->exec->state != EXEC_RUNNING)
        return;
    e->started_sent = true;
    what = wire_started_json(&e->config, e->exec);
    o = json_pack("{s:s}", "event", "started");
    json_object_update(o, what);
    exec_events_send(e, o);
}

static void exec_events_finish(struct exec_events *e, json_t *last)
{
    exec_events_send(e, last);
    http_stream_end(e->req);
    exec_events_free(e);
}

static void exec_events_fail(struct exec_events *e, const struct err *err)
{
    _cleanup_json_ json_t *what = json_from_err(err);
    json_t *o = json_pack("{s:s}", "event", "error");

    json_object_update(o, what);
    exec_events_finish(e, o);
}

static void exec_events_end(struct exec_events *e)
{
    const char *text = output_stream_end_text(e->stream);
    json_t *o, *end = NULL;

    for (int i = 0; i < JOURNAL_STREAMS; i++)
        exec_events_flush(e, (enum journal_stream)i);
    e->at_end = true;
    if (exec_counts_pending(&e->counts))
        return;
    o = json_pack("{s:s}", "event", "end");
    if (json_parse("end record", text, strlen(text), &end, NULL) >= 0) {
        exec_counts_add(&e->counts, end);
        json_object_set_new(o, "end", end);
    }
    exec_events_finish(e, o);
}

static void exec_events_on_counted(void *arg)
{
    struct exec_events *e = arg;

    if (e->at_end)
        exec_events_end(e);
}

/* ---- the answer ---- */

static void exec_events_pump(struct exec_events *e);

static void exec_events_on_drain(struct http_req *req)
{
    exec_events_pump(http_req_user(req));
}

/* The status waits until it is known whether the command could be started. */
static bool exec_events_begin(struct exec_events *e)
{
    struct http_req *req = e->req;

    if (e->begun)
        return true;
    if (e->exec && e->exec->state == EXEC_STARTING)
        return false;
    if (e->exec && e->exec->start_err.code) {
        http_reply_err(req, NULL, &e->exec->start_err);
        exec_events_free(e);
        return false;
    }
    e->begun = true;
    http_stream_start(req, 200,
                      e->kind == EXEC_EVENTS_SSE ? "text/event-stream" : "application/x-ndjson",
                      exec_events_on_drain);
    return true;
}

static void exec_events_pump(struct exec_events *e)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct output_chunk chunk;

    if (e->at_end || !exec_events_begin(e))
        return;
    exec_events_send_started(e);
    while (http_stream_pending(e->req) < PENDING_MAX) {
        if (output_stream_read(e->stream, scratch + CARRY_MAX, PIECE, &chunk, &err) < 0) {
            exec_events_fail(e, &err);
            return;
        }
        if (chunk.kind == OUTPUT_NOTHING)
            return;
        if (chunk.kind == OUTPUT_END) {
            exec_events_end(e);
            return;
        }
        if (chunk.kind == OUTPUT_GAP) {
            exec_events_send_gap(e, &chunk);
            continue;
        }
        e->next[chunk.which] += chunk.len;
        memcpy(scratch + CARRY_MAX - e->carry[chunk.which].len, e->carry[chunk.which].bytes,
               e->carry[chunk.which].len);
        exec_events_take_data(e, chunk.which, scratch + CARRY_MAX, chunk.len, false);
    }
}

static void exec_events_on_news(void *arg)
{
    struct exec_events *e = arg;

    if (e->exec)
        exec_counts_update(&e->counts, e->config.manager, e->exec);
    exec_events_pump(e);
}

static struct exec_events *exec_events_new(enum exec_events_kind kind,
                                           struct output_stream_config *stream,
                                           const struct wire_config *config)
{
    struct exec_events *e = xnew0(struct exec_events);

    e->kind = kind;
    e->config = *config;
    e->counts =
        (struct exec_counts){.wanted = config->stats, .done = exec_events_on_counted, .arg = e};
    memcpy(e->next, stream->offsets, sizeof(e->next));
    stream->want[JOURNAL_STDOUT] = stream->want[JOURNAL_STDERR] = stream->follow = true;
    stream->notify = exec_events_on_news;
    stream->arg = e;
    return e;
}

static void exec_events_answer(struct exec_events *e, struct http_req *req)
{
    if (!req) {
        exec_events_free(e);
        return;
    }
    e->req = req;
    http_req_set_user(req, e);
    http_req_on_gone(req, exec_events_on_gone);
    exec_events_pump(e);
}

void exec_events_start(struct http_req *req, struct exec *x, enum exec_events_kind kind,
                       const struct wire_config *config)
{
    struct output_stream_config stream = {0};
    struct exec_events *e = exec_events_new(kind, &stream, config);

    e->exec = x;
    exec_counts_update(&e->counts, config->manager, x);
    e->stream = output_stream_new_live(x, &stream);
    exec_events_answer(e, req);
}

int exec_events_follow(struct api_call *c, struct sandbox *sb, const char *id,
                       struct output_stream_config *stream, enum exec_events_kind kind,
                       const struct wire_config *config, struct err *err)
{
    struct exec_events *e = exec_events_new(kind, stream, config);
    int r;

    r = output_stream_new(c->manager, sb, id, stream, &e->stream, err);
    if (r < 0) {
        exec_events_free(e);
        return r;
    }
    e->exec = output_stream_exec(e->stream) ? exec_ref(output_stream_exec(e->stream)) : NULL;
    exec_events_answer(e, call_take_request(c));
    return 0;
}
