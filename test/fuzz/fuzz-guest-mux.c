/*
 * What a hostile guest says of its connections, as the relay takes it: however the bytes are cut,
 * the same connections get the same bytes and it ends at the same frame; nothing is kept beyond a
 * window, and no credit is made up.
 */
#include "proto/guest-mux.h"

#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { QUEUE_MAX = 1 << 20 };

struct ends {
    struct guest_channel channel;
    int reader; /* the end of ripcord-packages: reads everything */
    size_t *sum;
};

struct outcome {
    bool cut;
    uint32_t last;
    size_t open, bytes, said;
};

static void drain(struct ends *e)
{
    char chunk[65536];
    ssize_t n;

    while ((n = read(e->reader, chunk, sizeof(chunk))) > 0)
        *e->sum += (size_t)n;
}

static void remove_ends(struct guest_mux *s, struct guest_channel *c)
{
    struct ends *e = container_of(c, struct ends, channel);

    drain(e);
    guest_mux_remove(s, c);
    fd_close(e->reader);
    free(e);
}

static bool open_one(struct guest_mux *s, uint32_t id, size_t *sum)
{
    struct ends *e;
    int pair[2];

    if (id == 0 || id != s->last + 1)
        return false;
    if (s->n == GUEST_MUX_CHANNELS_MAX) {
        s->last = id;
        guest_mux_refuse(s, id);
        return true;
    }
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    e = xnew0(struct ends);
    e->reader = pair[1];
    e->sum = sum;
    MUST(guest_mux_add(s, &e->channel, pair[0]) == id);
    return true;
}

/* Passed on at once: the reader is fast, so that how the bytes are cut makes no difference. */
static bool take(struct guest_mux *s, const struct guest_frame *f, size_t *sum)
{
    struct guest_channel *c = NULL;

    if (f->type == GUEST_CALL_OPEN)
        return open_one(s, guest_get_u32(f), sum);
    if (guest_mux_take(s, f, &c, NULL) < 0)
        return false;
    if (!c)
        return true;
    for (size_t i = 0; i < 4 && guest_channel_wants_write(c); i++) {
        drain(container_of(c, struct ends, channel));
        guest_channel_write(s, c);
    }
    MUST(c->pending.len + c->owed <= GUEST_CHANNEL_WINDOW && c->credit <= GUEST_CHANNEL_WINDOW);
    drain(container_of(c, struct ends, channel));
    if (c->over)
        remove_ends(s, c);
    return true;
}

static bool take_all(struct guest_mux *s, struct buf *in, size_t *sum)
{
    struct guest_frame f;
    size_t used;
    int r;

    while ((r = guest_parse(buf_data(in), in->len, GUEST_SIDE_GUEST, &f, &used, NULL)) == 1) {
        if (!take(s, &f, sum))
            return false;
        buf_consume(in, used);
    }
    return r == 0 && !s->choked;
}

static void run(const uint8_t *data, size_t size, size_t step, struct outcome *ret)
{
    struct buf in = BUF_INIT(GUEST_HEAD_SIZE + GUEST_PAYLOAD_MAX + size), out = BUF_INIT(QUEUE_MAX);
    struct guest_mux s = {.side = GUEST_SIDE_RELAY, .out = &out};
    size_t sum = 0;
    bool fine = true;

    for (size_t pos = 0; pos < size && fine; pos += step) {
        MUST(buf_append(&in, data + pos, MIN(size - pos, step)) == 0);
        fine = take_all(&s, &in, &sum);
    }
    *ret = (struct outcome){.cut = !fine, .last = s.last, .open = s.n, .said = out.len};
    while (s.n)
        remove_ends(&s, s.all[0]);
    ret->bytes = sum;
    MUST(sum <= size);
    buf_done(&in);
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome whole, cut;

    run(data, size, size ? size : 1, &whole);
    run(data, size, 7, &cut);
    MUST(whole.cut == cut.cut && whole.last == cut.last && whole.open == cut.open);
    MUST(whole.bytes == cut.bytes && whole.said == cut.said);
    return 0;
}
