/*
 * GET …/sessions/ID/events: one JSON line for each event, or Server-Sent Events if the client
 * accepts text/event-stream. A client that lost its connection continues with `since` (or
 * Last-Event-ID), the number of the last event that it has.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/api/call.h"
#include "daemon/core/session/session.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

enum { PENDING_MAX = 256 << 10, BATCH = 64 << 10, BATCH_MAX = SESSION_TEXT_MAX + BATCH + 128 };

struct session_events_answer {
    struct http_req *req;
    struct session_reader *reader;
    struct buf text;  /* one event; reused, so it is allocated once */
    struct buf batch; /* events that are sent in one piece */
    bool follow, sse;
};

static void api_session_events_free(struct session_events_answer *e)
{
    session_reader_free(e->reader);
    buf_done(&e->text);
    buf_done(&e->batch);
    free(e);
}

static void api_session_events_on_gone(struct http_req *req)
{
    api_session_events_free(http_req_user(req));
}

static void api_session_events_finish(struct session_events_answer *e)
{
    http_stream_end(e->req);
    api_session_events_free(e);
}

static void api_session_events_flush(struct session_events_answer *e)
{
    if (e->batch.len)
        http_stream_write(e->req, buf_data(&e->batch), e->batch.len);
    buf_clear(&e->batch);
}

/* Adds the event in `text` to the batch, which has room for it. */
static void api_session_events_add(struct session_events_answer *e, uint64_t seq)
{
    if ((e->sse && buf_appendf(&e->batch, "id: %llu\ndata: ", (unsigned long long)seq) < 0) ||
        buf_append(&e->batch, buf_data(&e->text), e->text.len) < 0 ||
        buf_append(&e->batch, "\n\n", e->sse ? 2 : 1) < 0)
        log_error("session events: event %llu is too large", (unsigned long long)seq);
    if (e->batch.len >= BATCH)
        api_session_events_flush(e);
}

/* The status is already sent, so the error is the last line. */
static void api_session_events_fail(struct session_events_answer *e, const struct err *err)
{
    _cleanup_json_ json_t *doc = json_from_err(err);
    _cleanup_free_ char *text = json_to_text(doc, false);

    log_debug("session events: %s", err->msg);
    api_session_events_flush(e);
    if (e->sse)
        http_stream_write(e->req, "event: error\ndata: ", 19);
    http_stream_write(e->req, text, strlen(text));
    http_stream_write(e->req, "\n\n", e->sse ? 2 : 1);
    api_session_events_finish(e);
}

static void api_session_events_pump(struct session_events_answer *e)
{
    _cleanup_err_ struct err err = ERR_INIT;
    enum session_result result;
    uint64_t seq;

    while (http_stream_pending(e->req) < PENDING_MAX) {
        buf_clear(&e->text);
        if (session_read(e->reader, &e->text, &seq, &result, &err) < 0) {
            api_session_events_fail(e, &err);
            return;
        }
        if (result == SESSION_EVENT) {
            api_session_events_add(e, seq);
            continue;
        }
        api_session_events_flush(e);
        if (result == SESSION_OVER || !e->follow)
            api_session_events_finish(e);
        return;
    }
    api_session_events_flush(e);
}

static void api_session_events_on_drain(struct http_req *req)
{
    api_session_events_pump(http_req_user(req));
}

static void api_session_events_on_news(void *arg)
{
    api_session_events_pump(arg);
}

/* A browser that reconnects sends the last id that it saw. */
static int api_session_events_read_since(struct api_call *c, bool sse, uint64_t *ret,
                                         struct err *err)
{
    const char *last = sse ? http_field_get(http_req_head(c->req), "last-event-id") : NULL;

    if (last && parse_u64(last, 0, INT64_MAX, ret, err) < 0)
        return err_wrap(err, "header 'Last-Event-ID'");
    return last ? 0 : call_query_u64(c, "since", ret, err);
}

static int api_session_events_start(struct api_call *c, struct sandbox *sb,
                                    struct session_events_answer *e, struct err *err)
{
    const char *accept = http_field_get(http_req_head(c->req), "accept");
    struct session_reader_config config = {.notify = api_session_events_on_news, .arg = e};
    int r;

    e->sse = accept && strstr(accept, "text/event-stream");
    e->follow = e->sse;
    r = api_session_events_read_since(c, e->sse, &config.since, err);
    if (r < 0)
        return r;
    r = call_query_bool(c, "follow", &e->follow, err);
    if (r < 0)
        return r;
    config.follow = e->follow;
    return session_reader_new(c->manager, sb, c->params[1], &config, &e->reader, err);
}

void handle_session_events(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = call_sandbox(c);
    struct session_events_answer *e;

    if (!sb)
        return;
    e = xnew0(struct session_events_answer);
    e->text.max = SESSION_TEXT_MAX;
    e->batch.max = BATCH_MAX;
    if (api_session_events_start(c, sb, e, &err) < 0) {
        api_session_events_free(e);
        call_reply_err(c, &err);
        return;
    }
    e->req = call_take_request(c);
    http_req_set_user(e->req, e);
    http_req_on_gone(e->req, api_session_events_on_gone);
    http_stream_start(e->req, 200, e->sse ? "text/event-stream" : "application/x-ndjson",
                      api_session_events_on_drain);
    api_session_events_pump(e);
}
