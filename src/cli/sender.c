#include "cli/sender.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

enum { PIECE = 256 << 10 };

void sender_init(struct sender *s, struct client *c, const char *method, char *target, bool json)
{
    *s = (struct sender){.client = c,
                         .method = method,
                         .target = target,
                         .type = "application/x-tar",
                         .piece = xmalloc(PIECE)};
    progress_init(&s->progress, json);
}

void sender_done(struct sender *s)
{
    progress_done(&s->progress);
    free(s->target);
    free(s->piece);
    err_done(&s->failure);
}

/* Returns 1, or 0 when the daemon has responded. */
static int sender_put_piece(struct sender *s, const void *data, size_t len)
{
    int r;

    if (!s->begun) {
        s->begun = true;
        r = client_begin(s->client, s->method, s->target, s->type, &s->failure);
        if (r < 0)
            return r;
    }
    r = client_put(s->client, data, len, &s->failure);
    s->answered |= r == 0;
    progress_add(&s->progress, len);
    return r;
}

int sender_write(void *arg, const void *data, size_t len)
{
    struct sender *s = arg;

    while (len) {
        size_t n = MIN(len, (size_t)PIECE - s->len);
        int r = 1;

        memcpy(s->piece + s->len, data, n);
        s->len += n;
        data = (const char *)data + n;
        len -= n;
        if (s->len == PIECE) {
            s->len = 0;
            r = sender_put_piece(s, s->piece, PIECE);
        }
        if (r <= 0)
            return -EPIPE;
    }
    return 0;
}

int sender_pass(struct sender *s, tar_read_fn read, void *arg)
{
    ssize_t n;

    while ((n = read(arg, s->piece, PIECE)) > 0)
        if (sender_put_piece(s, s->piece, (size_t)n) <= 0)
            return -EPIPE;
    return (int)n;
}

static ssize_t sender_read_fd(void *arg, void *data, size_t len)
{
    ssize_t n;

    do
        n = read(*(const int *)arg, data, len);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

int sender_pass_fd(struct sender *s, int fd, const char *name, struct err *err)
{
    int r = sender_pass(s, sender_read_fd, &fd);

    return r < 0 ? err_sys(err, -r, "read '%s'", name) : 0;
}

/* The last piece, and the empty one that ends the body. */
static int sender_finish(struct sender *s)
{
    int r = s->len ? sender_put_piece(s, s->piece, s->len) : 0;

    return r < 0 || s->answered ? r : sender_put_piece(s, NULL, 0);
}

int sender_end(struct sender *s, int r, struct err *err)
{
    r = r < 0 ? r : sender_finish(s);
    progress_done(&s->progress);
    if (s->failure.code || s->answered) {
        err_done(err);
        return s->failure.code ? err_move(err, &s->failure) : 0;
    }
    if (r < 0 && s->begun)
        client_disconnect(s->client);
    return MIN(r, 0);
}
