/*
 * The hijacked stream of one guest. The engine's frames are removed first (dockerapi/demux.h), then
 * ours are parsed (proto/guest.h). Bytes from inside the sandbox may be hostile: both parsers have
 * limits, and a guest that breaks the protocol loses its stream. A real guest then kills everything
 * that it has started.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dockerapi/error-classes.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "supervisor/relay/relay.h"

enum {
    GUEST_STREAM_READS = 4, /* per turn: one busy stream must not starve the others */
    GUEST_STREAM_IN_MAX = GUEST_STREAM_CHUNK + GUEST_HEAD_SIZE + GUEST_PAYLOAD_MAX,
    GUEST_STREAM_OUT_KEPT = 256 << 10,
    GUEST_STREAM_OUT_MAX = GUEST_SPEC_WIRE_MAX + GUEST_STREAM_OUT_KEPT,
};

struct opening {
    struct relay_work work;
    struct guest_stream *stream; /* NULL: the stream was closed meanwhile */
    char *user;
    char **args;
    struct opened opened;
    bool dead; /* the call failed because the container had ended */
};

#define DEAD_LOOK_TIMEOUT (5 * USEC_PER_SEC)
enum { DEAD_LOOKS = 10, DEAD_LOOK_MS = 50 };

void guest_stream_init(struct guest_stream *l, struct relay *r, const struct guest_stream_ops *ops)
{
    *l = (struct guest_stream){.relay = r,
                               .ops = ops,
                               .src.fd = -1,
                               .demux = DOCKER_DEMUX_INIT,
                               .in = BUF_INIT(GUEST_STREAM_IN_MAX),
                               .out = BUF_INIT(GUEST_STREAM_OUT_MAX),
                               .text = BUF_INIT(RELAY_TEXT_MAX),
                               .greet_by = DEADLINE_NEVER};
}

/* ---- closing ---- */

void guest_stream_close(struct guest_stream *l)
{
    struct guest_stream **at;

    if (l->state == GUEST_STREAM_CLOSED)
        return;
    l->state = GUEST_STREAM_CLOSED;
    for (at = &l->relay->guest_streams; *at != l;)
        at = &(*at)->next;
    *at = l->next;
    source_close(&l->relay->sup, &l->src);
    buf_done(&l->in);
    buf_done(&l->out);
    buf_done(&l->text);
    l->greet_by = DEADLINE_NEVER;
    if (l->opening) { /* its result will be dropped */
        l->opening->dropped = true;
        container_of(l->opening, struct opening, work)->stream = NULL;
    }
    l->opening = NULL;
}

void guest_stream_done(struct guest_stream *l)
{
    guest_stream_close(l);
    free(l->exec_id);
    l->exec_id = NULL;
}

static void guest_stream_end(struct guest_stream *l, struct err *err)
{
    guest_stream_close(l);
    l->ops->ended(l, err);
}

/* The end of the stream. If HELLO did not come, the text is the engine's error. */
static void guest_stream_end_of_stream(struct guest_stream *l)
{
    struct docker_answer answer = {.flavour = l->relay->docker->flavour,
                                   .path = "/exec/start",
                                   .status = 500,
                                   .body = buf_data(&l->text),
                                   .len = l->text.len};
    _cleanup_err_ struct err err = ERR_INIT;

    if (l->state == GUEST_STREAM_UP) {
        guest_stream_end(l, NULL);
        return;
    }
    if (l->text.len)
        docker_classify(&answer, NULL, &err);
    else
        err_set(&err, ERR_ENGINE, "the engine ended the exec before the guest sent anything");
    guest_stream_end(l, &err);
}

/* ---- sending ---- */

static void guest_stream_set_events(struct guest_stream *l)
{
    source_set(&l->relay->sup, &l->src,
               (l->held ? 0 : EPOLLIN) | (l->out.len && !l->deaf ? EPOLLOUT : 0));
}

void guest_stream_flush(struct guest_stream *l)
{
    while (l->src.fd >= 0 && l->out.len && !l->deaf) {
        ssize_t n = send(l->src.fd, buf_data(&l->out), l->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) /* the guest's last frames must still be read */
            l->deaf = true;
        else
            buf_consume(&l->out, (size_t)n);
    }
    if (!l->out.len && l->out.cap > GUEST_STREAM_OUT_KEPT)
        buf_done(&l->out); /* it held the spec of a large command */
    guest_stream_set_events(l);
    if (!l->out.len && l->ops->drained)
        l->ops->drained(l);
}

/* ---- receiving ---- */

static int guest_stream_greet(struct guest_stream *l, const struct guest_frame *f, struct err *err)
{
    struct guest_hello hello;
    int r;

    if (f->type != GUEST_HELLO)
        return err_set(err, ERR_INVALID, "the guest's first frame is not HELLO");
    r = guest_get_hello(f, &hello, err);
    if (r < 0)
        return r;
    l->guest_pid = hello.pid;
    l->guest_minor = (uint16_t)hello.minor;
    l->greet_by = DEADLINE_NEVER;
    l->state = GUEST_STREAM_UP;
    l->ops->greeted(l);
    return 1;
}

/* Delivers all whole frames until the owner wants no more. */
static void guest_stream_deliver(struct guest_stream *l)
{
    _cleanup_err_ struct err err = ERR_INIT;

    while (l->state != GUEST_STREAM_CLOSED && !l->held) {
        struct guest_frame f;
        size_t used = 0;
        int r = guest_parse(buf_data(&l->in), l->in.len, GUEST_SIDE_GUEST, &f, &used, &err);

        if (r == 0)
            return;
        if (r > 0)
            r = l->state == GUEST_STREAM_UP ? l->ops->frame(l, &f, &err)
                                            : guest_stream_greet(l, &f, &err);
        if (l->state == GUEST_STREAM_CLOSED)
            return;
        if (r < 0) {
            guest_stream_end(l, &err);
            return;
        }
        buf_consume(&l->in, used);
        l->held = r == 0;
    }
}

/* The payload of one engine frame. If the first byte is not a guest's, the whole payload is
 * the engine's text. */
static int guest_stream_take_run(struct guest_stream *l, int stream, const char *data, size_t len,
                                 struct err *err)
{
    if (stream == DOCKER_STDOUT && !l->begun) {
        l->begun = true;
        l->garbled = (unsigned char)data[0] != GUEST_HELLO;
    }
    if (stream == DOCKER_STDOUT && !l->garbled)
        return buf_append(&l->in, data, len) < 0
                   ? err_set(err, ERR_INVALID, "the guest sent a frame that is too large")
                   : 0;
    if (l->state == GUEST_STREAM_GREETING)
        (void)!buf_append(&l->text, data, MIN(len, l->text.max - l->text.len));
    return 0;
}

void guest_stream_take(struct guest_stream *l, const char *data, size_t len)
{
    _cleanup_err_ struct err err = ERR_INIT;
    size_t used = 1, off, n;
    int stream, r = 0;

    while (r >= 0 && len && used) {
        r = docker_demux_next(&l->demux, data, len, &used, &stream, &off, &n, &err);
        if (r >= 0 && n)
            r = guest_stream_take_run(l, stream, data + off, n, &err);
        data += used;
        len -= used;
    }
    guest_stream_deliver(l); /* includes frames that came before an error */
    if (r < 0 && l->state != GUEST_STREAM_CLOSED)
        guest_stream_end(l, &err);
}

static void guest_stream_receive(struct guest_stream *l)
{
    for (int i = 0; i < GUEST_STREAM_READS && l->state != GUEST_STREAM_CLOSED && !l->held; i++) {
        char *io = supervisor_io(&l->relay->sup);
        ssize_t n = recv(l->src.fd, io, GUEST_STREAM_CHUNK, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            guest_stream_end_of_stream(l);
            return;
        }
        guest_stream_take(l, io, (size_t)n);
    }
}

static void guest_stream_on_ready(struct loop_source *src, uint32_t events)
{
    struct guest_stream *l = container_of(src, struct guest_stream, src);

    if (events & EPOLLOUT)
        guest_stream_flush(l);
    if (l->state != GUEST_STREAM_CLOSED && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        guest_stream_receive(l);
    if (l->state != GUEST_STREAM_CLOSED)
        guest_stream_set_events(l);
    if (l->ops->settle)
        l->ops->settle(l);
}

void guest_stream_resume(struct guest_stream *l)
{
    if (l->state == GUEST_STREAM_CLOSED || !l->held)
        return;
    l->held = false;
    guest_stream_deliver(l);
    if (l->state != GUEST_STREAM_CLOSED)
        guest_stream_set_events(l);
}

/* ---- opening ---- */

/*
 * Engines report "it has just died" with many different errors, and some of them before they know
 * it themselves. So we ask for the container's state, several times within a moment.
 */
static bool guest_stream_is_dead(const struct relay *r)
{
    struct deadline by = deadline_in(DEAD_LOOK_TIMEOUT);

    for (int i = 0; i < DEAD_LOOKS; i++) {
        _cleanup_err_ struct err err = ERR_INIT;
        struct relay_container container;

        if (call_inspect(r, &by, &container, &err) < 0)
            return false;
        if (container.life == LIFE_GONE)
            return true;
        poll(NULL, 0, DEAD_LOOK_MS);
    }
    return false;
}

static void guest_stream_run_opening(struct relay_work *w)
{
    struct opening *o = container_of(w, struct opening, work);
    struct deadline by = deadline_in(RELAY_CALL_TIMEOUT);

    if (call_open(w->relay, o->user, (const char *const *)o->args, &by, &o->opened, &w->reason,
                  &w->err) < 0)
        o->dead = guest_stream_is_dead(w->relay);
}

static void guest_stream_opening_free(struct opening *o)
{
    fd_close(o->opened.stream.fd);
    buf_done(&o->opened.stream.early);
    free(o->opened.exec_id);
    strv_free(o->args);
    free(o->user);
    err_done(&o->work.err);
    free(o);
}

static void guest_stream_connected(struct guest_stream *l, struct opening *o)
{
    struct relay *r = l->relay;
    struct err *err = &o->work.err;

    l->state = GUEST_STREAM_GREETING;
    l->exec_id = TAKE_PTR(o->opened.exec_id);
    l->greet_by = time_mono() + RELAY_GREET_TIMEOUT;
    fd_set_nonblock(o->opened.stream.fd, true);
    if (source_add(&r->sup, &l->src, o->opened.stream.fd, EPOLLIN, guest_stream_on_ready, err) <
        0) {
        guest_stream_end(l, err);
        return;
    }
    TAKE_FD(o->opened.stream.fd);
    if (o->opened.stream.early.len)
        guest_stream_take(l, buf_data(&o->opened.stream.early), o->opened.stream.early.len);
    if (l->state != GUEST_STREAM_CLOSED)
        guest_stream_set_events(l);
}

/* If the stream was closed meanwhile, closing it here ends the guest's stdin. */
static void guest_stream_opening_done(struct relay_work *w)
{
    struct opening *o = container_of(w, struct opening, work);
    struct guest_stream *l = o->stream;

    if (l)
        l->opening = NULL;
    if (o->dead)
        w->relay->dead = true;
    if (l && w->err.code)
        guest_stream_end(l, &w->err);
    else if (l)
        guest_stream_connected(l, o);
    guest_stream_opening_free(o);
    if (l && l->ops->settle)
        l->ops->settle(l);
}

static struct opening *guest_stream_opening_new(struct guest_stream *l, const char *user,
                                                const char *const *args)
{
    struct opening *o = xnew0(struct opening);

    o->work = (struct relay_work){.relay = l->relay,
                                  .kind = WORK_OPEN,
                                  .run = guest_stream_run_opening,
                                  .done = guest_stream_opening_done};
    o->stream = l;
    o->user = xstrdup(user);
    o->args = strv_copy((char *const *)args);
    o->opened.stream.fd = -1;
    l->opening = &o->work;
    l->state = GUEST_STREAM_OPENING;
    l->next = l->relay->guest_streams;
    l->relay->guest_streams = l;
    return o;
}

void guest_stream_open(struct guest_stream *l, const char *user, const char *const *args)
{
    work_submit(l->relay, &guest_stream_opening_new(l, user, args)->work);
}

void guest_stream_open_now(struct guest_stream *l, const char *user, const char *const *args)
{
    struct opening *o = guest_stream_opening_new(l, user, args);

    guest_stream_run_opening(&o->work);
    guest_stream_opening_done(&o->work);
}

/* ---- time ---- */

uint64_t guest_streams_next(const struct relay *r)
{
    uint64_t at = DEADLINE_NEVER;

    for (const struct guest_stream *l = r->guest_streams; l; l = l->next)
        at = MIN(at, l->greet_by);
    return at;
}

void guest_streams_expire(struct relay *r, uint64_t now)
{
    struct guest_stream *next;

    for (struct guest_stream *l = r->guest_streams; l; l = next) {
        _cleanup_err_ struct err err = ERR_INIT;

        next = l->next;
        if (now < l->greet_by)
            continue;
        err_set(&err, ERR_TIMEOUT, "the guest in the container does not answer");
        guest_stream_end(l, &err);
        if (l->ops->settle)
            l->ops->settle(l);
    }
}
