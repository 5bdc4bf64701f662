/*
 * GET …/stdout and /stderr: raw bytes from an offset, chunked.
 */
#include <stdlib.h>

#include "daemon/api/exec-wire.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"

enum { DOWNLOAD_PIECE = 64 << 10, DOWNLOAD_PENDING_MAX = 256 << 10 };

struct download {
    struct http_req *req;
    struct stream *stream;
    bool follow;
};

/* One loop, one thread: what is read here is copied by http_stream_write() before we return. */
static char scratch[DOWNLOAD_PIECE];

static void download_free(struct download *d)
{
    stream_free(d->stream);
    free(d);
}

static void on_gone(struct http_req *req)
{
    download_free(http_req_user(req));
}

static void finish(struct download *d)
{
    http_stream_end(d->req);
    download_free(d);
}

static void pump(struct download *d)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct stream_chunk chunk;

    while (http_stream_pending(d->req) < DOWNLOAD_PENDING_MAX) {
        /* A hole in the middle has no place in raw bytes: the peer must see that it is not whole.
         */
        if (stream_read(d->stream, scratch, sizeof(scratch), &chunk, &err) < 0 ||
            chunk.kind == STREAM_GAP) {
            log_debug("download: %s", err.msg ? err.msg : "bytes were dropped meanwhile");
            http_stream_abort(d->req);
            download_free(d);
            return;
        }
        if (chunk.kind == STREAM_DATA)
            http_stream_write(d->req, scratch, chunk.len);
        if (chunk.kind == STREAM_NOTHING && d->follow)
            return;
        if (chunk.kind == STREAM_END || chunk.kind == STREAM_NOTHING) {
            finish(d);
            return;
        }
    }
}

static void on_drain(struct http_req *req)
{
    pump(http_req_user(req));
}

static void on_news(void *arg)
{
    pump(arg);
}

/* Bytes that are asked for but gone: said before the first byte, where there still is a status. */
static int check_gap(struct stream *s, enum journal_stream which, const struct stream_config *c,
                     struct err *err)
{
    uint64_t first = stream_first(s, which);

    if (first <= c->offsets[which])
        return 0;
    err_set(err, ERR_NOT_FOUND, "bytes %llu to %llu of this stream have been dropped",
            (unsigned long long)c->offsets[which], (unsigned long long)first);
    return err_hint(err, "Ask with offset=%llu.", (unsigned long long)first);
}

int download_start(struct call *c, struct sandbox *sb, const char *id, struct stream_config *stream,
                   struct err *err)
{
    enum journal_stream which = stream->want[JOURNAL_STDOUT] ? JOURNAL_STDOUT : JOURNAL_STDERR;
    struct download *d = xnew0(struct download);
    int r;

    stream->notify = on_news;
    stream->arg = d;
    d->follow = stream->follow;
    r = stream_new(c->manager, sb, id, stream, &d->stream, err);
    if (r >= 0)
        r = check_gap(d->stream, which, stream, err);
    if (r < 0) {
        download_free(d);
        return r;
    }
    d->req = call_take_request(c);
    if (!d->req) {
        download_free(d);
        return 0;
    }
    http_req_set_user(d->req, d);
    http_req_on_gone(d->req, on_gone);
    http_stream_start(d->req, 200, "application/octet-stream", on_drain);
    pump(d);
    return 0;
}
