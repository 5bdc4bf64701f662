/*
 * GET /v1/events: the event log, as JSON lines, or as Server-Sent Events if the client accepts
 * text/event-stream. A slow follower never blocks the log. When it reads on, it gets the events
 * that are still stored, and a gap event for the others.
 */
#include "daemon/core/events/events.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api/call.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "lib/http/server/http-server.h"

enum { READ_AT_ONCE = 64, PENDING_MAX = 64 << 10 };

struct events_answer {
    struct event_log *events;
    struct http_req *req;
    struct event_reader reader;
    char *sandbox, *kind; /* owned; the filters of reader */
    struct events_watch watch;
    bool follow, sse;
    struct buf out;
};

static void api_events_free(struct events_answer *l)
{
    events_watch_remove(l->events, &l->watch);
    buf_done(&l->out);
    free(l->sandbox);
    free(l->kind);
    free(l);
}

static void api_events_on_gone(struct http_req *req)
{
    api_events_free(http_req_user(req));
}

static int api_events_append(struct events_answer *l, const struct event *e)
{
    int r;

    if (l->sse) {
        r = buf_appendf(&l->out, "id: %llu\ndata: ", (unsigned long long)e->seq);
        if (r < 0)
            return r;
    }
    r = event_to_text(e, &l->out);
    if (r < 0)
        return r;
    return buf_append_str(&l->out, l->sse ? "\n\n" : "\n");
}

static void api_events_on_event(void *arg, const struct event *e)
{
    struct events_answer *l = arg;
    size_t before = l->out.len;

    /* The buffer has room for many of the largest events, so this does not fail in practice. */
    if (api_events_append(l, e) < 0)
        buf_truncate(&l->out, before);
}

static void api_events_pump(struct events_answer *l)
{
    _cleanup_err_ struct err err = ERR_INIT;

    while (http_stream_pending(l->req) < PENDING_MAX) {
        int n; /* events that were read, before the filters */

        buf_clear(&l->out);
        n = events_read(l->events, &l->reader, READ_AT_ONCE, api_events_on_event, l, &err);
        http_stream_write(l->req, buf_data(&l->out), l->out.len);
        if (n > 0)
            continue;
        if (n == 0 && l->follow)
            return;
        if (n == 0)
            http_stream_end(l->req);
        else
            http_stream_abort(l->req);
        api_events_free(l);
        return;
    }
}

static void api_events_on_drain(struct http_req *req)
{
    api_events_pump(http_req_user(req));
}

static void api_events_on_news(void *arg)
{
    api_events_pump(arg);
}

/* Reads ?since=N, or the Last-Event-ID that a browser sends when it reconnects. 1: there is one. */
static int api_events_read_since(struct api_call *c, uint64_t *ret, struct err *err)
{
    const char *id = http_field_get(http_req_head(c->req), "last-event-id");
    _cleanup_free_ char *since = NULL;
    int r = call_query_text(c, "since", &since, err);

    if (r < 0 || (!since && !id))
        return r;
    if (parse_u64(since ? since : id, 0, INT64_MAX, ret, err) < 0)
        return err_wrap(err, since ? "query parameter 'since'" : "header 'Last-Event-ID'");
    return 1;
}

/* The warning is logged once, because a client may ask often. */
static int api_events_read_kind(struct api_call *c, char **ret, struct err *err)
{
    static bool logged; /* on the loop's thread only */
    char renamed[EVENT_KIND_MAX];
    const char *now;
    int r = call_query_text(c, "kind", ret, err);

    if (r < 0 || !*ret)
        return r;
    now = events_kind_now(*ret, renamed);
    if (now == *ret)
        return 0;
    if (!logged)
        log_warn("event kind '%.40s' is deprecated, use '%s' (the next version removes the old "
                 "word; logged once)",
                 *ret, now);
    logged = true;
    free(*ret);
    *ret = xstrdup(now);
    return 0;
}

static int api_events_read_query(struct api_call *c, struct events_answer *l, struct err *err)
{
    const char *accept = http_field_get(http_req_head(c->req), "accept");
    int r;

    l->sse = accept && strstr(accept, "text/event-stream");
    r = call_query_bool(c, "follow", &l->follow, err);
    if (r < 0)
        return r;
    r = call_query_text(c, "sandbox", &l->sandbox, err);
    if (r < 0)
        return r;
    r = api_events_read_kind(c, &l->kind, err);
    if (r < 0)
        return r;
    r = api_events_read_since(c, &l->reader.after, err);
    if (r != 0)
        return r;
    if (!l->follow)
        return events_before_oldest(l->events, &l->reader.after, err);
    l->reader.after = events_newest(l->events);
    return 0;
}

static void api_events_start(struct events_answer *l, struct http_req *req)
{
    l->req = req;
    l->reader.sandbox = l->sandbox;
    l->reader.kind = l->kind;
    l->watch.fn = api_events_on_news;
    l->watch.arg = l;
    if (l->follow)
        events_watch_add(l->events, &l->watch);
    http_req_set_user(req, l);
    http_req_on_gone(req, api_events_on_gone);
    http_stream_start(req, 200, l->sse ? "text/event-stream" : "application/x-ndjson",
                      api_events_on_drain);
    api_events_pump(l);
}

void handle_events(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct event_log *events = manager_settings(c->manager)->events;
    struct events_answer *l;

    if (!events) {
        err_set(&err, ERR_UNSUPPORTED, "this daemon stores no events");
        call_reply_err(c, &err);
        return;
    }
    l = xnew0(struct events_answer);
    l->events = events;
    l->out = (struct buf)BUF_INIT(4 * READ_AT_ONCE * EVENT_TEXT_MAX);
    if (api_events_read_query(c, l, &err) < 0) {
        api_events_free(l);
        call_reply_err(c, &err);
        return;
    }
    api_events_start(l, call_take_request(c));
}
