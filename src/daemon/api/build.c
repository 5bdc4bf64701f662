/*
 * POST /v1/images/build: the body is the context, the answer is JSON lines of events. The body goes
 * through a pipe to the build's worker, which stores it in a file. The answer starts with the first
 * event, so a refusal before that has its own HTTP status. A peer that disconnects cancels the
 * build.
 */
#include "daemon/core/images/build.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api/call.h"
#include "daemon/api/upload.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "proto/digest-context.h"

enum { PENDING_MAX = 256 << 10 };

struct api_build {
    struct upload *upload; /* while the body arrives; then NULL */
    struct http_req *req;  /* after the body; NULL: not yet, or the peer has disconnected */
    struct manager_build *build;
    bool streaming;
};

/* ---- events out ---- */

static void api_build_drop(struct api_build *ib)
{
    manager_build_drop(ib->build);
    free(ib);
}

static void api_build_on_gone(struct http_req *req)
{
    api_build_drop(http_req_user(req));
}

static void api_build_on_drain(struct http_req *req)
{
    struct api_build *ib = http_req_user(req);

    manager_build_hold(ib->build, false);
}

static void api_build_send_text(struct api_build *ib, const char *text, size_t len)
{
    if (!ib->streaming)
        http_stream_start(ib->req, 200, "application/x-ndjson", api_build_on_drain);
    ib->streaming = true;
    http_stream_write(ib->req, text, len);
}

/* The build starts after the whole body has arrived, so req is set here. */
static void api_build_on_lines(void *arg, const char *text, size_t len)
{
    struct api_build *ib = arg;

    api_build_send_text(ib, text, len);
    if (http_stream_pending(ib->req) > PENDING_MAX)
        manager_build_hold(ib->build, true);
}

static void api_build_on_done(void *arg, const struct err *err, const char *json)
{
    struct api_build *ib = arg;

    if (ib->upload) {
        upload_end(ib->upload, err, json);
    } else if (err && !ib->streaming) {
        http_reply_err(ib->req, NULL, err);
    } else {
        _cleanup_free_ char *line = build_end_line(err, json);

        api_build_send_text(ib, line, strlen(line));
        http_stream_end(ib->req);
    }
    free(ib);
}

/* ---- the body in ---- */

static void api_build_on_whole(void *arg, struct http_req *req)
{
    struct api_build *ib = arg;

    ib->upload = NULL;
    ib->req = req;
    if (!req) {
        api_build_drop(ib);
        return;
    }
    http_req_set_user(req, ib);
    http_req_on_gone(req, api_build_on_gone);
}

static int api_build_read_options(const struct api_call *c, struct build_request *req,
                                  struct build_body *body, char **engine, struct err *err)
{
    const struct {
        const char *key;
        char **ret;
    } texts[] = {
        {"dockerfile", &req->dockerfile},
        {"target", &req->target},
        {"platform", &req->platform},
        {"network", &req->network},
    };
    const struct {
        const char *key;
        char ***ret;
    } lists[] = {{"tag", &req->tags}, {"arg", &req->args}, {"ssh", &req->agents}};
    int r = call_query_engine(c, engine, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        r = call_query_text(c, texts[i].key, texts[i].ret, err);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        r = call_query_texts(c, lists[i].key, lists[i].ret, err);
        if (r < 0)
            return r;
    }
    r = call_query_bool(c, "no_cache", &req->no_cache, err);
    if (r < 0)
        return r;
    r = call_query_bool(c, "pull", &req->pull, err);
    if (r < 0)
        return r;
    r = call_query_u64(c, "secrets", &body->secrets, err);
    if (r < 0)
        return r;
    r = call_query_u64(c, "logins", &body->logins, err);
    if (r < 0)
        return r;
    if (req->agents && !http_req_is_local(c->req)) {
        err_set(err, ERR_UNSUPPORTED,
                "ssh agents need a connection through the daemon's unix socket");
        return err_hint(err, "Run the build on the daemon's machine, without --host.");
    }
    if (!req->dockerfile)
        req->dockerfile = xstrdup("Dockerfile");
    return 0;
}

static void api_build_start(struct api_call *c, const char *engine, struct build_request *req,
                            struct build_body *body)
{
    static const struct build_events events = {api_build_on_lines, api_build_on_done};
    _cleanup_err_ struct err err = ERR_INIT;
    struct api_build *ib = xnew0(struct api_build);
    struct manager *m = c->manager;

    ib->upload = upload_start(c, &body->fd, &err);
    if (!ib->upload) {
        call_reply_err(c, &err);
        free(ib);
        return;
    }
    if (manager_build(m, engine, req, body, &events, ib, &ib->build, &err) < 0) {
        upload_end(ib->upload, &err, NULL);
        free(ib);
        return;
    }
    upload_on_whole(ib->upload, api_build_on_whole, ib);
}

void handle_image_build(struct api_call *c)
{
    const char *type = http_field_get(http_req_head(c->req), "content-type");
    struct build_request req = {.context = -1};
    struct build_body body = {.fd = -1};
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *engine = NULL;

    req.digest_only = type && strcasecmp(type, DIGEST_CONTEXT_TYPE) == 0;
    if (!req.digest_only && (!type || strcasecmp(type, "application/x-tar") != 0)) {
        err_set(&err, ERR_INVALID, "request body: Content-Type must be application/x-tar");
        call_reply_status(c, 415, &err);
        return;
    }
    if (api_build_read_options(c, &req, &body, &engine, &err) < 0)
        call_reply_err(c, &err);
    else
        api_build_start(c, engine, &req, &body);
    build_request_done(&req);
}
