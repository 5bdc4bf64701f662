#include "proto/guest-mux.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/cleanup.h"

/* One ACK for several writes, long before the other end runs out of credit. */
enum { ACK_FROM = GUEST_CHANNEL_WINDOW / 4 };

enum kind { KIND_DATA, KIND_EOF, KIND_CLOSE, KIND_ACK, KINDS };

_Static_assert(GUEST_ANSWER_ACK - GUEST_ANSWER_DATA == KIND_ACK &&
                   GUEST_CALL_ACK - GUEST_CALL_DATA == KIND_ACK &&
                   GUEST_ANSWER_EOF - GUEST_ANSWER_DATA == KIND_EOF &&
                   GUEST_CALL_EOF - GUEST_CALL_DATA == KIND_EOF,
               "both sides have their frames in one order");

/* ---- sending ---- */

static enum guest_type guest_mux_type(const struct guest_mux *s, enum kind kind)
{
    return (enum guest_type)((s->side == GUEST_SIDE_RELAY ? GUEST_ANSWER_DATA : GUEST_CALL_DATA) +
                             (int)kind);
}

static void guest_mux_said(struct guest_mux *s, int put_result)
{
    if (put_result < 0)
        s->choked = true;
}

void guest_mux_refuse(struct guest_mux *s, uint32_t id)
{
    guest_mux_said(s, guest_put_u32(s->out, guest_mux_type(s, KIND_CLOSE), id));
}

void guest_channel_break(struct guest_mux *s, struct guest_channel *c)
{
    guest_mux_refuse(s, c->id);
    c->over = true;
}

static void guest_mux_end_if_done(struct guest_channel *c)
{
    c->over = c->over || (c->shut && c->out_eof);
}

/* ---- the channels ---- */

uint32_t guest_mux_add(struct guest_mux *s, struct guest_channel *c, int fd)
{
    *c = (struct guest_channel){.id = ++s->last,
                                .fd = fd,
                                .pending = BUF_INIT(GUEST_CHANNEL_WINDOW),
                                .credit = GUEST_CHANNEL_WINDOW};
    s->all[s->n++] = c;
    return c->id;
}

void guest_mux_remove(struct guest_mux *s, struct guest_channel *c)
{
    const struct linger reset = {.l_onoff = 1};
    size_t i = 0;

    while (s->all[i] != c)
        i++;
    s->all[i] = s->all[--s->n];
    if (c->fd >= 0 && !(c->shut && c->out_eof))
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    c->fd = fd_close(c->fd);
    buf_done(&c->pending);
}

static struct guest_channel *guest_mux_find(const struct guest_mux *s, uint32_t id)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->all[i]->id == id)
            return s->all[i];
    return NULL;
}

/* ---- the socket ---- */

bool guest_channel_wants_read(const struct guest_mux *s, const struct guest_channel *c)
{
    return !c->over && !c->out_eof && c->credit && s->out->len < GUEST_CHANNEL_QUEUE;
}

bool guest_channel_wants_write(const struct guest_channel *c)
{
    return !c->over && c->pending.len;
}

/* Reads directly into the frame. */
void guest_channel_read(struct guest_mux *s, struct guest_channel *c)
{
    size_t want = MIN(c->credit, (uint32_t)GUEST_CHANNEL_CHUNK);
    char *p = buf_reserve(s->out, GUEST_DATA_HEAD + want);
    ssize_t n;

    if (!p || !want)
        return;
    n = recv(c->fd, p + GUEST_DATA_HEAD, want, MSG_DONTWAIT);
    if (n > 0) {
        guest_put_data_head(p, guest_mux_type(s, KIND_DATA), c->id, (uint32_t)n);
        buf_commit(s->out, GUEST_DATA_HEAD + (size_t)n);
        c->credit -= (uint32_t)n;
    } else if (n == 0) {
        guest_mux_said(s, guest_put_u32(s->out, guest_mux_type(s, KIND_EOF), c->id));
        c->out_eof = true;
        guest_mux_end_if_done(c);
    } else if (errno != EAGAIN && errno != EINTR) {
        guest_channel_break(s, c);
    }
}

void guest_channel_write(struct guest_mux *s, struct guest_channel *c)
{
    while (c->pending.len) {
        ssize_t n = send(c->fd, buf_data(&c->pending), c->pending.len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            guest_channel_break(s, c);
            return;
        }
        buf_consume(&c->pending, (size_t)n);
        c->owed += (uint32_t)n;
    }
    if (c->owed >= ACK_FROM && !c->in_eof) {
        guest_mux_said(s, guest_put_ack(s->out, guest_mux_type(s, KIND_ACK), c->id, c->owed));
        c->owed = 0;
    }
    if (!c->in_eof || c->pending.len || c->shut)
        return;
    shutdown(c->fd, SHUT_WR);
    c->shut = true;
    guest_mux_end_if_done(c);
}

/* ---- receiving ---- */

static int guest_mux_take_data(struct guest_mux *s, struct guest_channel *c,
                               const struct guest_frame *f, struct err *err)
{
    size_t len = f->length - sizeof(c->id);

    if (c->in_eof || c->pending.len + c->owed + len > GUEST_CHANNEL_WINDOW ||
        buf_append(&c->pending, f->data + sizeof(c->id), len) < 0)
        return err_set(err, ERR_INVALID, "connection %u: more bytes than its window allows", c->id);
    guest_channel_write(s, c);
    return 1;
}

static int guest_mux_take_eof(struct guest_mux *s, struct guest_channel *c, struct err *err)
{
    if (c->in_eof)
        return err_set(err, ERR_INVALID, "connection %u: the end was sent twice", c->id);
    c->in_eof = true;
    guest_channel_write(s, c);
    return 1;
}

static int guest_mux_take_ack(struct guest_channel *c, uint32_t bytes, struct err *err)
{
    if (bytes == 0 || bytes > GUEST_CHANNEL_WINDOW - c->credit)
        return err_set(err, ERR_INVALID, "connection %u: more bytes acknowledged than were sent",
                       c->id);
    c->credit += bytes;
    return 1;
}

int guest_mux_take(struct guest_mux *s, const struct guest_frame *f, struct guest_channel **ret,
                   struct err *err)
{
    unsigned kind =
        (unsigned)f->type - (s->side == GUEST_SIDE_RELAY ? GUEST_CALL_DATA : GUEST_ANSWER_DATA);
    uint32_t id = kind < KINDS ? guest_get_u32(f) : 0;
    struct guest_channel *c;

    if (id == 0 || id > s->last)
        return err_set(err, ERR_INVALID, "frame 0x%02x: unknown connection", (unsigned)f->type);
    c = guest_mux_find(s, id);
    if (!c || c->over)
        return 0;
    *ret = c;
    switch ((enum kind)kind) {
    case KIND_DATA:
        return guest_mux_take_data(s, c, f, err);
    case KIND_EOF:
        return guest_mux_take_eof(s, c, err);
    case KIND_ACK:
        return guest_mux_take_ack(c, guest_get_ack(f), err);
    case KIND_CLOSE:
    case KINDS:
        break;
    }
    c->over = true;
    return 1;
}
