/*
 * Answers: index pages whole, files as a stream from the store or from a download under way.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "packages/packages.h"
#include "packages/range.h"

enum { PIECE = 256 << 10, PENDING_MAX = 256 << 10, EXTRA_MAX = 512 };

void ask_send_page(struct ask *a, struct buf *body)
{
    bool hit = !a->fetched && !a->stale;
    size_t len = body->len;
    char extra[256];

    a->reg->counters[a->eco].stale += a->stale;
    ask_counters(a)->stale += a->stale;
    a->reg->counters[a->eco].bytes_store += len;
    ask_counters(a)->bytes_store += len;
    snprintf(extra, sizeof(extra),
             "Cache-Control: max-age=%llu\r\nVary: Accept\r\nX-Ripcord-Cache: %s\r\n%s",
             (unsigned long long)(a->stale ? 0 : a->reg->config.metadata_life),
             a->stale ? "stale"
             : hit    ? "hit"
                      : "miss",
             a->stale ? "Warning: 110 ripcord \"the upstream does not answer\"\r\n" : "");
    http_reply_take(
        a->req,
        &(struct http_answer){.status = 200, .content_type = a->content_type, .extra = extra},
        buf_steal(body), len);
    ask_free(a);
}

static void answer_on_drain(struct http_req *req)
{
    struct ask *a = http_req_user(req);

    /* A download under way is pushed by its progress. */
    if (a->state == ASK_SEND)
        ask_pump(a, a->length);
}

/*
 * Files never change: their digest is their name. What goes out lies between a->sent and a->length;
 * a part of it is so only with the answer that says so.
 */
static void answer_start(struct ask *a, uint64_t size, bool hit)
{
    bool part = a->length - a->sent < size;
    char extra[EXTRA_MAX], range[128] = "", date[TIME_HTTP_MAX];

    if (part)
        snprintf(range, sizeof(range), "Content-Range: bytes %llu-%llu/%llu\r\n",
                 (unsigned long long)a->sent, (unsigned long long)a->length - 1,
                 (unsigned long long)size);
    snprintf(
        extra, sizeof(extra),
        "ETag: \"%s\"\r\nCache-Control: max-age=31536000, immutable\r\nAccept-Ranges: bytes\r\n"
        "Date: %s\r\nX-Ripcord-Cache: %s\r\n%s%s",
        a->digest.hex, time_http(time_wall(), date), hit ? "hit" : "miss", range,
        a->digest.algo == DIGEST_SHA1 ? "X-Ripcord-Digest: sha1 only\r\n" : "");
    a->started = true;
    http_stream_start_length(a->req,
                             &(struct http_answer){.status = part ? 206 : 200,
                                                   .content_type = "application/octet-stream",
                                                   .extra = extra},
                             a->length - a->sent, answer_on_drain);
}

/* All of it, whatever part was asked for: the client has nothing to check a part by while the whole
 * is not known to be right. */
void ask_begin_stream(struct ask *a, uint64_t length)
{
    a->length = length;
    answer_start(a, length, false);
}

/* If-Range names another file than this: the part would be of that one. */
static bool answer_wants_this(const struct ask *a)
{
    const char *tag = http_field_get(http_req_head(a->req), "If-Range");
    size_t len = strlen(a->digest.hex);

    return !tag || (tag[0] == '"' && strncmp(tag + 1, a->digest.hex, len) == 0 &&
                    STREQ(tag + 1 + len, "\""));
}

static void answer_refuse_range(struct ask *a, uint64_t size)
{
    _cleanup_free_ char *extra =
        xasprintf("Content-Range: bytes */%llu\r\n", (unsigned long long)size);

    http_reply_with(a->req, &(struct http_answer){.status = 416, .extra = extra}, NULL, 0);
    ask_free(a);
}

/* Takes the descriptor. */
void ask_send_blob(struct ask *a, int fd, uint64_t size, bool hit)
{
    const char *range =
        !a->head && answer_wants_this(a) ? http_field_get(http_req_head(a->req), "Range") : NULL;
    uint64_t count = size;

    a->reg->counters[a->eco].hits += hit;
    ask_counters(a)->hits += hit;
    a->fd = fd;
    if (range_parse(range, size, &a->sent, &count) == RANGE_NONE) {
        answer_refuse_range(a, size);
        return;
    }
    a->length = a->sent + count;
    a->state = ASK_SEND;
    answer_start(a, size, hit);
    if (a->head) {
        http_stream_end(a->req);
        ask_free(a);
        return;
    }
    ask_pump(a, a->length);
}

static bool answer_send_piece(struct ask *a, uint64_t limit)
{
    static char piece[PIECE]; /* one thread, used up before we return */
    ssize_t n = pread(a->fd, piece, (size_t)MIN(limit - a->sent, (uint64_t)PIECE), (off_t)a->sent);

    if (n <= 0)
        return false;
    a->sent += (uint64_t)n;
    a->reg->counters[a->eco].bytes_store += (uint64_t)n;
    ask_counters(a)->bytes_store += (uint64_t)n;
    http_stream_write(a->req, piece, (size_t)n);
    return true;
}

void ask_pump(struct ask *a, uint64_t limit)
{
    while (a->sent < limit && http_stream_pending(a->req) < PENDING_MAX)
        if (!answer_send_piece(a, limit)) {
            ask_fail_status(a, 500, ERR_SYSTEM, "a stored file is shorter than it was");
            return;
        }
    if (a->sent == a->length) {
        http_stream_end(a->req);
        ask_free(a);
    }
}
