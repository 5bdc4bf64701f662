/*
 * GET …/files/watch: changes of files as Server-Sent Events or JSON lines. The status waits until
 * the watches are made, so that an error has one. A slow client holds the helper back; the kernel's
 * queue then overflows, which is an event.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/api/call.h"
#include "daemon/api/exec-events.h"
#include "daemon/api/file-json.h"
#include "daemon/api/file-query.h"
#include "daemon/api/file-talk.h"
#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/http/server/http-server.h"
#include "lib/loop/loop.h"

enum { WATCH_PENDING_MAX = 256 << 10 };
#define WATCH_HEARTBEAT (15 * USEC_PER_SEC)

/* Ends with its talk, or when the client goes. */
struct file_watch {
    struct api_call *call; /* until the answer begins */
    struct http_req *req;
    struct file_talk *talk;
    struct loop_timer *heartbeat;
    bool sse;
};

static void file_watch_free(struct file_watch *w)
{
    loop_timer_free(w->heartbeat);
    free(w);
}

static void file_watch_gone(struct http_req *req)
{
    struct file_watch *w = http_req_user(req);

    file_talk_drop(w->talk);
    file_watch_free(w);
}

static void file_watch_call_gone(void *arg)
{
    struct file_watch *w = arg;

    call_take_request(w->call);
    file_talk_drop(w->talk);
    file_watch_free(w);
}

static void file_watch_drained(struct http_req *req)
{
    struct file_watch *w = http_req_user(req);

    file_talk_read(w->talk, true);
}

/* A proxy or a browser closes a connection on which nothing happens. */
static void file_watch_beat(void *arg)
{
    struct file_watch *w = arg;

    if (w->req && !http_stream_pending(w->req))
        http_stream_write(w->req, ":\n\n", 3);
}

static void file_watch_begin(struct file_watch *w)
{
    w->call->on_gone = NULL;
    w->req = call_take_request(TAKE_PTR(w->call));
    http_req_set_user(w->req, w);
    http_req_on_gone(w->req, file_watch_gone);
    http_stream_start(w->req, 200, w->sse ? "text/event-stream" : "application/x-ndjson",
                      file_watch_drained);
    if (w->sse)
        loop_timer_set(w->heartbeat, WATCH_HEARTBEAT, true);
}

/* Takes the document. */
static void file_watch_send(struct file_watch *w, json_t *doc)
{
    _cleanup_free_ char *text = json_to_text(doc, false);
    _cleanup_free_ char *line = xasprintf(w->sse ? "data: %s\n\n" : "%s\n", text);

    json_decref(doc);
    http_stream_write(w->req, line, strlen(line));
    if (http_stream_pending(w->req) >= WATCH_PENDING_MAX)
        file_talk_read(w->talk, false);
}

static bool file_watch_message(void *arg, const struct files_message *m, struct err *err)
{
    struct file_watch *w = arg;
    _cleanup_json_ json_t *doc = json_object();

    if (m->type != FILES_ITEM)
        return err_set(err, ERR_INVALID, "the helper sent message 0x%02x out of order", m->type),
               false;
    if (file_json_answer(m, doc, err) < 0)
        return false;
    if (w->call)
        file_watch_begin(w);
    if (w->req)
        file_watch_send(w, TAKE_PTR(doc));
    return true;
}

static void file_watch_ended(void *arg, const struct err *err)
{
    struct file_watch *w = arg;
    _cleanup_err_ struct err none = ERR_INIT;

    if (!err)
        err_set(&none, ERR_ENGINE, "the helper inside the sandbox ended without an answer");
    if (w->call) {
        w->call->on_gone = NULL;
        call_reply_err(w->call, err ? err : &none);
    } else if (w->req) {
        if (err) {
            json_t *doc = json_pack("{s:s}", "event", "error");
            _cleanup_json_ json_t *what = json_from_err(err);

            json_object_update(doc, what);
            file_watch_send(w, doc);
        }
        http_stream_end(w->req);
    }
    file_watch_free(w);
}

static int file_watch_request(const struct api_call *call, const struct file_query *q,
                              struct buf *w, struct err *err)
{
    bool recursive = false;
    int r = call_query_bool(call, "recursive", &recursive, err);

    if (r < 0)
        return r;
    files_begin(w, FILES_REQUEST);
    files_put_u64(w, FILES_TAG_OP, FILES_WATCH);
    files_put_str(w, FILES_TAG_PATH, q->path);
    files_put_flag(w, FILES_TAG_RECURSIVE, recursive);
    return files_finish(w, err);
}

void handle_file_watch(struct api_call *call)
{
    static const struct file_talk_events events = {.message = file_watch_message,
                                                   .ended = file_watch_ended};
    _cleanup_buf_ struct buf request = BUF_INIT(FILES_MESSAGE_MAX);
    _cleanup_query_ struct file_query q = {0};
    _cleanup_err_ struct err err = ERR_INIT;
    struct file_watch *w = xnew0(struct file_watch);
    struct file_talk_config config = {
        .sandbox = call->params[0], .request = &request, .events = &events, .arg = w};

    w->sse = exec_events_wanted(call) == EXEC_EVENTS_SSE;
    w->heartbeat = loop_timer_new(api_settings(call->api)->loop, file_watch_beat, w);
    if (file_query_read(call, false, &q, &err) >= 0 &&
        file_watch_request(call, &q, &request, &err) >= 0) {
        config.user = q.user;
        w->talk = file_talk_start(call->api, &config, &err);
    }
    if (!w->talk) {
        call_reply_err(call, &err);
        file_watch_free(w);
        return;
    }
    w->call = call;
    call->on_gone = file_watch_call_gone;
    call->gone_arg = w;
}
