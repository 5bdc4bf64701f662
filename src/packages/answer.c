/*
 * Sends responses: index pages as a whole, files as a stream from the store or from a download.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "packages/http-range.h"
#include "packages/packages.h"

enum { PIECE = 256 << 10, PENDING_MAX = 256 << 10, EXTRA_MAX = 512 };

void request_send_page(struct packages_request *q, struct buf *body)
{
    bool hit = !q->fetched && !q->stale;
    size_t len = body->len;
    char extra[256];

    q->pkgs->counters[q->eco].stale += q->stale;
    request_counters(q)->stale += q->stale;
    q->pkgs->counters[q->eco].bytes_store += len;
    request_counters(q)->bytes_store += len;
    snprintf(extra, sizeof(extra),
             "Cache-Control: max-age=%llu\r\nVary: Accept\r\nX-Ripcord-Cache: %s\r\n%s",
             (unsigned long long)(q->stale ? 0 : q->pkgs->config.metadata_life),
             q->stale ? "stale"
             : hit    ? "hit"
                      : "miss",
             q->stale ? "Warning: 110 ripcord \"the upstream does not answer\"\r\n" : "");
    http_reply_take(
        q->req,
        &(struct http_answer){.status = 200, .content_type = q->content_type, .extra = extra},
        buf_steal(body), len);
    request_free(q);
}

static void answer_on_drain(struct http_req *req)
{
    struct packages_request *q = http_req_user(req);

    /* While a download runs, its progress calls request_pump(). */
    if (q->state == REQUEST_SEND)
        request_pump(q, q->length);
}

/*
 * Sends the head for the bytes between q->sent and q->length. Files never change, because their
 * digest is their name, so clients may cache them for ever.
 */
static void answer_start(struct packages_request *q, uint64_t size, bool hit)
{
    bool part = q->length - q->sent < size;
    char extra[EXTRA_MAX], range[128] = "", date[TIME_HTTP_MAX];

    if (part)
        snprintf(range, sizeof(range), "Content-Range: bytes %llu-%llu/%llu\r\n",
                 (unsigned long long)q->sent, (unsigned long long)q->length - 1,
                 (unsigned long long)size);
    snprintf(
        extra, sizeof(extra),
        "ETag: \"%s\"\r\nCache-Control: max-age=31536000, immutable\r\nAccept-Ranges: bytes\r\n"
        "Date: %s\r\nX-Ripcord-Cache: %s\r\n%s%s",
        q->digest.hex, time_http(time_wall(), date), hit ? "hit" : "miss", range,
        q->digest.algo == DIGEST_SHA1 ? "X-Ripcord-Digest: sha1 only\r\n" : "");
    q->started = true;
    http_stream_start_length(q->req,
                             &(struct http_answer){.status = part ? 206 : 200,
                                                   .content_type = "application/octet-stream",
                                                   .extra = extra},
                             q->length - q->sent, answer_on_drain);
}

/* Ignores a range in the request: a client cannot check a part of a file whose digest is not known
 * to be right yet. */
void request_begin_stream(struct packages_request *q, uint64_t length)
{
    q->length = length;
    answer_start(q, length, false);
}

/* If-Range: the range is only valid for the file with this ETag. */
static bool answer_if_range_matches(const struct packages_request *q)
{
    const char *tag = http_field_get(http_req_head(q->req), "If-Range");
    size_t len = strlen(q->digest.hex);

    return !tag || (tag[0] == '"' && strncmp(tag + 1, q->digest.hex, len) == 0 &&
                    STREQ(tag + 1 + len, "\""));
}

/* Takes the descriptor. */
void request_send_blob(struct packages_request *q, int fd, uint64_t size, bool hit)
{
    const char *range = !q->head && answer_if_range_matches(q)
                            ? http_field_get(http_req_head(q->req), "Range")
                            : NULL;
    uint64_t count = size;

    q->pkgs->counters[q->eco].hits += hit;
    request_counters(q)->hits += hit;
    q->fd = fd;
    if (range_parse(range, size, &q->sent, &count) == RANGE_NONE) {
        _cleanup_free_ char *extra =
            xasprintf("Content-Range: bytes */%llu\r\n", (unsigned long long)size);

        http_reply_with(q->req, &(struct http_answer){.status = 416, .extra = extra}, NULL, 0);
        request_free(q);
        return;
    }
    q->length = q->sent + count;
    q->state = REQUEST_SEND;
    answer_start(q, size, hit);
    if (q->head) {
        http_stream_end(q->req);
        request_free(q);
        return;
    }
    request_pump(q, q->length);
}

static bool answer_send_piece(struct packages_request *q, uint64_t limit)
{
    static char piece[PIECE]; /* static: one thread, and the bytes are copied before we return */
    ssize_t n = pread(q->fd, piece, (size_t)MIN(limit - q->sent, (uint64_t)PIECE), (off_t)q->sent);

    if (n <= 0)
        return false;
    q->sent += (uint64_t)n;
    q->pkgs->counters[q->eco].bytes_store += (uint64_t)n;
    request_counters(q)->bytes_store += (uint64_t)n;
    http_stream_write(q->req, piece, (size_t)n);
    return true;
}

void request_pump(struct packages_request *q, uint64_t limit)
{
    while (q->sent < limit && http_stream_pending(q->req) < PENDING_MAX)
        if (!answer_send_piece(q, limit)) {
            request_fail_status(q, 500, ERR_SYSTEM, "a stored file was truncated");
            return;
        }
    if (q->sent == q->length) {
        http_stream_end(q->req);
        request_free(q);
    }
}
