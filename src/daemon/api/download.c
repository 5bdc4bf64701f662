/*
 * GET …/stdout and …/stderr: the raw bytes of one stream from an offset, as a chunked response.
 */
#include <stdlib.h>

#include "daemon/api/exec-wire.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"

enum { DOWNLOAD_PIECE = 64 << 10, DOWNLOAD_PENDING_MAX = 256 << 10 };

struct api_download {
    struct http_req *req;
    struct output_stream *stream;
    bool follow;
};

/* Shared by all downloads: they run on the loop's thread, and http_stream_write() copies. */
static char scratch[DOWNLOAD_PIECE];

static void api_download_free(struct api_download *d)
{
    if (!d)
        return;
    output_stream_free(d->stream);
    free(d);
}

DEFINE_CLEANUP(struct api_download *, api_download_free);

static void api_download_on_gone(struct http_req *req)
{
    api_download_free(http_req_user(req));
}

static void api_download_pump(struct api_download *d)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct output_chunk chunk;

    while (http_stream_pending(d->req) < DOWNLOAD_PENDING_MAX) {
        /* Raw bytes cannot show a gap: the response is cut, so the peer sees it is incomplete. */
        if (output_stream_read(d->stream, scratch, sizeof(scratch), &chunk, &err) < 0 ||
            chunk.kind == OUTPUT_GAP) {
            log_debug("download: %s",
                      err.msg ? err.msg : "the bytes were dropped from the journal");
            http_stream_abort(d->req);
            api_download_free(d);
            return;
        }
        if (chunk.kind == OUTPUT_DATA)
            http_stream_write(d->req, scratch, chunk.len);
        if (chunk.kind == OUTPUT_NOTHING && d->follow)
            return;
        if (chunk.kind == OUTPUT_END || chunk.kind == OUTPUT_NOTHING) {
            http_stream_end(d->req);
            api_download_free(d);
            return;
        }
    }
}

static void api_download_on_drain(struct http_req *req)
{
    api_download_pump(http_req_user(req));
}

static void api_download_on_news(void *arg)
{
    api_download_pump(arg);
}

/*
 * The response starts at the first byte that is kept. Its head says where that is, and how many of
 * the requested bytes are lost. When none is left, the response is an error.
 */
static int api_download_skip_lost(struct output_stream *s, enum journal_stream which,
                                  struct output_stream_config *c, uint64_t *ret_lost,
                                  struct err *err)
{
    uint64_t first = output_stream_first(s, which, NULL), asked = c->offsets[which];

    if (first <= asked)
        return 0;
    if (!output_stream_skip(s, which, first))
        return err_set(
            err, ERR_NOT_FOUND,
            "bytes %llu to %llu of this stream are no longer stored, and nothing follows them",
            (unsigned long long)asked, (unsigned long long)first);
    c->offsets[which] = first;
    *ret_lost = first - asked;
    return 0;
}

int download_start(struct api_call *c, struct sandbox *sb, const char *id,
                   struct output_stream_config *stream, struct err *err)
{
    enum journal_stream which = stream->want[JOURNAL_STDOUT] ? JOURNAL_STDOUT : JOURNAL_STDERR;
    _cleanup_(api_download_freep) struct api_download *d = xnew0(struct api_download);
    _cleanup_free_ char *extra = NULL;
    struct http_req *req;
    uint64_t lost = 0;
    int r;

    stream->notify = api_download_on_news;
    stream->arg = d;
    d->follow = stream->follow;
    r = output_stream_new(c->manager, sb, id, stream, &d->stream, err);
    if (r < 0)
        return r;
    r = api_download_skip_lost(d->stream, which, stream, &lost, err);
    if (r < 0)
        return r;
    req = d->req = call_take_request(c);
    if (!req)
        return 0;
    http_req_set_user(req, d);
    http_req_on_gone(req, api_download_on_gone);
    extra = xasprintf("Ripcord-Offset: %llu\r\nRipcord-Lost: %llu\r\n",
                      (unsigned long long)stream->offsets[which], (unsigned long long)lost);
    http_stream_start_with(req,
                           &(struct http_answer){.status = lost ? 206 : 200,
                                                 .content_type = "application/octet-stream",
                                                 .extra = extra},
                           api_download_on_drain);
    api_download_pump(TAKE_PTR(d));
    return 0;
}
