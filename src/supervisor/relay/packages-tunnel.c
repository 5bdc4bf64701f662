/*
 * See relay.h. The guest's frames (proto/guest-mux.h) are hostile input, like all bytes from
 * inside: ids must come in order and windows must be respected. A guest that breaks a rule loses
 * its stream with all connections on it.
 *
 * A broken stream is opened again, with growing pauses: the engine was restarted, the guest was
 * killed for lack of memory, or a process inside has taken the port. Connections do not survive
 * that. They are reset, and tools try again.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "supervisor/relay/relay.h"

/* This is not the sandbox's user, so that its commands cannot signal the listener and a kill of all
 * their processes does not reach it. The user owns nothing. */
#define PACKAGES_TUNNEL_USER "65534:65534"
#define PACKAGES_TUNNEL_SOCKET "registry.sock"
#define STEADY                                                                                     \
    (30 * USEC_PER_SEC) /* a stream that lived this long starts again with the shortest pause */

enum { PAUSE_FIRST_MS = 100, PAUSE_MAX_MS = 30000 };

struct carried {
    struct guest_channel channel;
    struct loop_source src; /* the channel's descriptor */
    struct relay *relay;
};

static struct carried *packages_tunnel_carried_of(struct guest_channel *c)
{
    return container_of(c, struct carried, channel);
}

static struct relay *relay_of_stream(struct guest_stream *l)
{
    return container_of(l, struct relay, packages_tunnel.stream);
}

void packages_tunnel_init(struct relay *r)
{
    r->packages_tunnel = (struct packages_tunnel){.at = DEADLINE_NEVER, .pause_ms = PAUSE_FIRST_MS};
}

/* ---- connections ---- */

static void packages_tunnel_watch(struct relay *r, struct carried *c)
{
    source_set(&r->sup, &c->src,
               (guest_channel_wants_read(&r->packages_tunnel.mux, &c->channel) ? EPOLLIN : 0) |
                   (guest_channel_wants_write(&c->channel) ? EPOLLOUT : 0));
}

static void packages_tunnel_drop(struct relay *r, struct carried *c)
{
    source_set(&r->sup, &c->src, 0);
    guest_mux_remove(&r->packages_tunnel.mux, &c->channel);
    free(c);
}

static void packages_tunnel_drop_all(struct relay *r)
{
    while (r->packages_tunnel.mux.n)
        packages_tunnel_drop(r, packages_tunnel_carried_of(r->packages_tunnel.mux.all[0]));
}

static void packages_tunnel_update(struct relay *r, struct carried *c)
{
    if (c->channel.over)
        packages_tunnel_drop(r, c);
    else
        packages_tunnel_watch(r, c);
}

/* ---- the end of the stream ---- */

static bool packages_tunnel_is_wanted(const struct relay *r)
{
    return r->packages_tunnel.kept && !r->sup.gone && r->sup.state != SUP_STOPPING;
}

/* The stream is closed. */
static void packages_tunnel_lost(struct relay *r)
{
    struct packages_tunnel *p = &r->packages_tunnel;
    uint64_t now = time_mono();

    packages_tunnel_drop_all(r);
    if (p->listening && now - p->since > STEADY)
        p->pause_ms = PAUSE_FIRST_MS;
    p->listening = false;
    p->at = DEADLINE_NEVER;
    if (!packages_tunnel_is_wanted(r))
        return;
    log_info("sandbox %s: the package cache is not reachable, retrying in %u ms: %s",
             r->plan.sandbox_id, p->pause_ms, p->err.msg);
    p->at = now + p->pause_ms * USEC_PER_MSEC;
    p->pause_ms = MIN(p->pause_ms * 2, (unsigned)PAUSE_MAX_MS);
}

static void packages_tunnel_on_ended(struct guest_stream *l, struct err *err)
{
    struct relay *r = relay_of_stream(l);

    err_done(&r->packages_tunnel.err);
    if (err)
        err_move(&r->packages_tunnel.err, err);
    else
        err_set(&r->packages_tunnel.err, ERR_ENGINE, "the listener in the container ended");
    packages_tunnel_lost(r);
}

static void packages_tunnel_break_stream(struct relay *r, enum err_code code, const char *why)
{
    err_done(&r->packages_tunnel.err);
    err_set(&r->packages_tunnel.err, code, "%s", why);
    guest_stream_close(&r->packages_tunnel.stream);
    packages_tunnel_lost(r);
}

/* ---- forwarding ---- */

static void packages_tunnel_on_channel(struct loop_source *src, uint32_t events _unused_)
{
    struct carried *c = container_of(src, struct carried, src);
    struct relay *r = c->relay;
    struct guest_mux *s = &r->packages_tunnel.mux;
    uint32_t wanted = src->events;

    if (wanted & EPOLLOUT)
        guest_channel_write(s, &c->channel);
    if (wanted & EPOLLIN && !c->channel.over)
        guest_channel_read(s, &c->channel);
    packages_tunnel_update(r, c);
    if (s->choked)
        packages_tunnel_break_stream(r, ERR_LIMIT, "the guest does not read its answers");
    else
        guest_stream_flush(&r->packages_tunnel.stream);
}

/* If the package cache does not accept, its queue is full. We do not wait: the connection is
 * refused. */
static int packages_tunnel_take_call(struct relay *r, uint32_t id, struct err *err)
{
    struct guest_mux *s = &r->packages_tunnel.mux;
    struct carried *c;
    int fd = -1;

    if (id == 0 || id != s->last + 1)
        return err_set(err, ERR_INVALID, "unexpected connection number %u", id);
    if (s->n == GUEST_MUX_CHANNELS_MAX ||
        unix_connect(r->sup.run_dirfd, PACKAGES_TUNNEL_SOCKET, SOCK_STREAM | SOCK_NONBLOCK, &fd,
                     NULL) < 0) {
        s->last = id;
        guest_mux_refuse(s, id);
        return 1;
    }
    c = xnew0(struct carried);
    c->relay = r;
    c->src = (struct loop_source){.fd = fd, .ready = packages_tunnel_on_channel};
    guest_mux_add(s, &c->channel, fd);
    packages_tunnel_watch(r, c);
    return 1;
}

static int packages_tunnel_take_frame(struct relay *r, const struct guest_frame *f, struct err *err)
{
    struct guest_channel *c = NULL;
    int n;

    if (f->type == GUEST_CALL_OPEN)
        return packages_tunnel_take_call(r, guest_get_u32(f), err);
    n = guest_mux_take(&r->packages_tunnel.mux, f, &c, err);
    if (c && n >= 0)
        packages_tunnel_update(r, packages_tunnel_carried_of(c));
    return n;
}

static int packages_tunnel_on_first_frame(struct relay *r, const struct guest_frame *f,
                                          struct err *err)
{
    struct packages_tunnel *p = &r->packages_tunnel;

    if (f->type == GUEST_FAILED) {
        guest_get_failed(f, err);
        return -(int)err->code;
    }
    if (f->type != GUEST_STARTED)
        return err_set(err, ERR_INVALID, "the guest did not confirm that it listens");
    p->listening = true;
    p->since = time_mono();
    p->at = DEADLINE_NEVER;
    return 1;
}

static int packages_tunnel_on_frame(struct guest_stream *l, const struct guest_frame *f,
                                    struct err *err)
{
    struct relay *r = relay_of_stream(l);
    int n = r->packages_tunnel.listening ? packages_tunnel_take_frame(r, f, err)
                                         : packages_tunnel_on_first_frame(r, f, err);

    if (n < 0)
        return n;
    if (r->packages_tunnel.mux.choked)
        return err_set(err, ERR_LIMIT, "the guest does not read its answers");
    guest_stream_flush(l);
    return 1;
}

static void packages_tunnel_on_drained(struct guest_stream *l)
{
    struct relay *r = relay_of_stream(l);

    for (size_t i = 0; i < r->packages_tunnel.mux.n; i++)
        packages_tunnel_watch(r, packages_tunnel_carried_of(r->packages_tunnel.mux.all[i]));
}

static void packages_tunnel_on_greeted(struct guest_stream *l _unused_)
{
}

static const struct guest_stream_ops packages_tunnel_ops = {
    .greeted = packages_tunnel_on_greeted,
    .frame = packages_tunnel_on_frame,
    .drained = packages_tunnel_on_drained,
    .ended = packages_tunnel_on_ended,
};

/* ---- start and end ---- */

static void packages_tunnel_begin(struct relay *r, void (*open)(struct guest_stream *, const char *,
                                                                const char *const *))
{
    struct packages_tunnel *p = &r->packages_tunnel;
    char port[8];
    const char *const args[] = {"listen", port, NULL};

    snprintf(port, sizeof(port), "%u", r->plan.packages_port);
    guest_stream_init(&p->stream, r, &packages_tunnel_ops);
    p->mux = (struct guest_mux){.side = GUEST_SIDE_RELAY, .out = &p->stream.out};
    p->at = time_mono() + RELAY_CALL_TIMEOUT + RELAY_GREET_TIMEOUT;
    open(&p->stream, PACKAGES_TUNNEL_USER, args);
}

/* The loop does not run yet, so we poll the stream here. */
static void packages_tunnel_await_listener(struct packages_tunnel *p)
{
    struct deadline by = deadline_in(RELAY_GREET_TIMEOUT);

    while (!p->listening && p->stream.state != GUEST_STREAM_CLOSED) {
        struct pollfd in = {.fd = p->stream.src.fd, .events = POLLIN};
        int n = poll(&in, 1, deadline_ms(&by));

        if (n == 0)
            return;
        if (n > 0)
            p->stream.src.ready(&p->stream.src, EPOLLIN);
    }
}

int packages_tunnel_open(struct relay *r, int *ret_fd, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct packages_tunnel *p = &r->packages_tunnel;
    int n;

    n = unix_listen(r->sup.run_dirfd, PACKAGES_TUNNEL_SOCKET, SOCK_STREAM | SOCK_NONBLOCK, 0600,
                    &fd, err);
    if (n < 0)
        return n;
    packages_tunnel_begin(r, guest_stream_open_now);
    packages_tunnel_await_listener(p);
    if (p->listening) {
        p->kept = true;
        *ret_fd = TAKE_FD(fd);
        return 0;
    }
    if (p->stream.state != GUEST_STREAM_CLOSED)
        packages_tunnel_break_stream(r, ERR_TIMEOUT, "the guest in the container does not answer");
    packages_tunnel_end(r);
    unlinkat(r->sup.run_dirfd, PACKAGES_TUNNEL_SOCKET, 0);
    return err_move(err, &p->err);
}

void packages_tunnel_end(struct relay *r)
{
    struct packages_tunnel *p = &r->packages_tunnel;

    p->kept = false;
    p->at = DEADLINE_NEVER;
    packages_tunnel_drop_all(r);
    if (p->stream.relay)
        guest_stream_done(&p->stream);
}

uint64_t packages_tunnel_next(const struct relay *r)
{
    return r->packages_tunnel.at;
}

/* The engine starts no process in a paused container. */
void packages_tunnel_expire(struct relay *r, uint64_t now)
{
    struct packages_tunnel *p = &r->packages_tunnel;

    if (now < p->at)
        return;
    p->at = DEADLINE_NEVER;
    if (p->stream.state != GUEST_STREAM_CLOSED)
        packages_tunnel_break_stream(r, ERR_TIMEOUT, "the guest in the container does not answer");
    else if (packages_tunnel_is_wanted(r) && r->sup.state == SUP_PAUSED)
        p->at = now + p->pause_ms * USEC_PER_MSEC;
    else if (packages_tunnel_is_wanted(r)) {
        guest_stream_done(&p->stream);
        packages_tunnel_begin(r, guest_stream_open);
    }
}
