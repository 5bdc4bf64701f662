/*
 * The daemon's end of a supervisor's socket, on the loop.
 *
 * Out: a message is sent at once while the socket has room, else queued and sent when it drains.
 * The queue has two bounds: a request with an answer is refused at the soft bound, and messages
 * that cannot be refused (ACK, DETACH, …) may fill it to the hard bound. A supervisor that reads
 * nothing beyond that counts as dead, and the connection is closed. A kernel that is short of
 * memory is not a reason for that: closing the connection ends the sandbox.
 *
 * In: a bounded number of packets per turn, so that one busy sandbox does not hold the loop. An
 * answer finds its request by `seq`.
 *
 * Rule: no callback is called from inside a supervisor_conn_*() call. An error that such a call
 * finds (refused, too large, connection dead) is stored in the request and reported by the timer on
 * the next turn. Callbacks may close the connection; `busy` then keeps the memory until the
 * outermost of our frames has returned.
 */
#include "daemon/engine/supervisor-conn.h"

#include <string.h>
#include <sys/socket.h>

#include "daemon/engine/supervisor-conn-internal.h"
#include "lib/base/buf.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

enum {
    SUPERVISOR_CONN_QUEUE_SOFT = 1 << 20, /* bytes */
    SUPERVISOR_CONN_QUEUE_HARD = 4 << 20,
    SUPERVISOR_CONN_READS_PER_TURN = 64,
    SUPERVISOR_CONN_SHORT_USEC =
        10000, /* until a message is sent again that the kernel had no memory for */
};

struct outgoing {
    struct outgoing *next;
    int fd; /* owned, or -1 */
    size_t len;
    char data[];
};

struct supervisor_conn {
    int fd;
    uint32_t minor; /* version of the supervisor's protocol */
    const struct supervisor_events *events;
    void *arg;
    struct loop_watch *watch;
    struct loop_timer *timer;
    struct outgoing *out_first, **out_last;
    size_t out_bytes;
    uint64_t out_at; /* time of the next attempt after the kernel was short of memory, or 0 */
    struct supervisor_request *requests;
    uint64_t last_seq;
    unsigned busy; /* frames of ours that use the connection after a callback */
    bool broken;   /* the connection is dead; `closed` is not called yet */
    bool freed;    /* supervisor_conn_close() or `closed` was called */
};

/* One loop, one thread, no nested reads: one packet buffer is enough for all connections. */
static _Alignas(8) char supervisor_conn_packet[SUP_MSG_MAX];

static void supervisor_conn_request_free(struct supervisor_request *q)
{
    err_done(&q->err);
    free(q);
}

static void supervisor_conn_outgoing_pop(struct supervisor_conn *l)
{
    struct outgoing *o = l->out_first;

    l->out_first = o->next;
    if (!l->out_first)
        l->out_last = &l->out_first;
    l->out_bytes -= o->len;
    fd_close(o->fd);
    free(o);
}

static void supervisor_conn_shut(struct supervisor_conn *l)
{
    loop_watch_free(TAKE_PTR(l->watch));
    loop_timer_free(TAKE_PTR(l->timer));
    l->fd = fd_close(l->fd);
    while (l->out_first)
        supervisor_conn_outgoing_pop(l);
    while (l->requests) {
        struct supervisor_request *q = l->requests;

        l->requests = q->next;
        supervisor_conn_request_free(q);
    }
}

static void supervisor_conn_enter(struct supervisor_conn *l)
{
    l->busy++;
}

static void supervisor_conn_leave(struct supervisor_conn *l)
{
    if (--l->busy == 0 && l->freed)
        free(l);
}

void supervisor_conn_close(struct supervisor_conn *l)
{
    if (!l || l->freed)
        return;
    supervisor_conn_enter(l);
    l->freed = true;
    supervisor_conn_shut(l);
    supervisor_conn_leave(l);
}

/* ---- timer: deadlines of requests, and errors that wait for the loop ---- */

static void supervisor_conn_timer_arm(struct supervisor_conn *l)
{
    uint64_t first = l->out_at ? l->out_at : DEADLINE_NEVER, now;

    if (l->broken) {
        loop_timer_set(l->timer, 0, false);
        return;
    }
    for (const struct supervisor_request *q = l->requests; q; q = q->next)
        first = MIN(first, q->err.code ? 0 : q->by.at);
    now = time_mono();
    if (first == DEADLINE_NEVER)
        loop_timer_stop(l->timer);
    else
        loop_timer_set(l->timer, first > now ? first - now : 0, false);
}

static void supervisor_conn_break(struct supervisor_conn *l, const char *why)
{
    log_debug("supervisor connection %d: %s", l->fd, why);
    l->broken = true;
    loop_watch_set(l->watch, 0);
    supervisor_conn_timer_arm(l);
}

/* A start that never reached the supervisor: no record exists, so this makes the one it would
 * write. */
static void supervisor_conn_report_start_failed(struct supervisor_conn *l, const char *exec,
                                                const struct err *err)
{
    struct end_record rec = {
        .cause = END_START_FAILED, .exit_code = -1, .drained = true, .error = err->code};

    rec.started_wall = rec.ended_wall = time_wall();
    snprintf(rec.message, sizeof(rec.message), "%s", err->msg);
    l->events->start_failed(l->arg, exec, err);
    if (!l->freed)
        l->events->ended(l->arg, exec, &rec);
}

static void supervisor_conn_request_report(struct supervisor_conn *l, struct supervisor_request *q,
                                           const struct err *err, int fd, char **stats)
{
    if (q->stats_done)
        q->stats_done(q->arg, err, err ? NULL : stats);
    else if (q->done)
        q->done(q->arg, err, TAKE_FD(fd));
    else if (*q->exec && err)
        supervisor_conn_report_start_failed(l, q->exec, err);
    fd_close(fd);
}

static struct supervisor_request *supervisor_conn_request_take(struct supervisor_conn *l,
                                                               uint64_t seq)
{
    for (struct supervisor_request **p = &l->requests; *p; p = &(*p)->next) {
        struct supervisor_request *q = *p;

        if (q->seq != seq)
            continue;
        *p = q->next;
        return q;
    }
    return NULL;
}

/* The next request that has an error, or whose deadline has passed. */
static struct supervisor_request *supervisor_conn_request_take_due(struct supervisor_conn *l)
{
    for (struct supervisor_request **p = &l->requests; *p; p = &(*p)->next) {
        struct supervisor_request *q = *p;

        if (!q->err.code && !deadline_passed(&q->by))
            continue;
        *p = q->next;
        if (!q->err.code)
            err_set(&q->err, ERR_TIMEOUT, "the sandbox's supervisor does not answer");
        return q;
    }
    return NULL;
}

/* On a dead connection `closed` reports the end of execs, also of those that came too late. */
static void supervisor_conn_report_due(struct supervisor_conn *l)
{
    struct supervisor_request *q;

    while (!l->freed && (q = supervisor_conn_request_take_due(l))) {
        if (!*q->exec || !l->broken)
            supervisor_conn_request_report(l, q, &q->err, -1, NULL);
        supervisor_conn_request_free(q);
    }
}

static void supervisor_conn_report_closed(struct supervisor_conn *l)
{
    while (!l->freed && l->requests) {
        struct supervisor_request *q = l->requests;

        l->requests = q->next;
        if (!q->err.code)
            err_set(&q->err, ERR_ENGINE, "the sandbox has ended");
        if (!*q->exec) /* an exec that was sent may have begun */
            supervisor_conn_request_report(l, q, &q->err, -1, NULL);
        supervisor_conn_request_free(q);
    }
    if (l->freed)
        return;
    l->freed = true;
    supervisor_conn_shut(l);
    l->events->closed(l->arg);
}

bool supervisor_conn_is_over(const struct supervisor_conn *l)
{
    return l->broken;
}

/* ---- receiving ---- */

/* The fields of all messages that we read; missing ones stay empty. */
struct supervisor_incoming {
    uint64_t seq;
    const char *exec, *record;
    size_t record_len;
    uint64_t version, pid, stdout_end, stderr_end;
    bool has_version, has_offsets, stopping;
    char **stats;
    struct err err;
    int fd; /* owned until a callback takes it */
};

static void supervisor_conn_incoming_field(struct supervisor_incoming *m, const struct sup_value *v)
{
    switch (v->tag) {
    case SUP_TAG_EXEC:
        m->exec = v->data;
        break;
    case SUP_TAG_RECORD:
        m->record = v->data;
        m->record_len = v->length;
        break;
    case SUP_TAG_VERSION:
        m->version = v->u64;
        m->has_version = true;
        break;
    case SUP_TAG_PID:
        m->pid = v->u64;
        break;
    case SUP_TAG_STATE:
        m->stopping = v->u64 == SUP_STOPPING;
        break;
    case SUP_TAG_STDOUT:
        m->stdout_end = v->u64;
        m->has_offsets = true;
        break;
    case SUP_TAG_STDERR:
        m->stderr_end = v->u64;
        m->has_offsets = true;
        break;
    case SUP_TAG_STAT:
        strv_add(&m->stats, v->data);
        break;
    default: /* from a newer version, or read by sup_read_err() */
        break;
    }
}

static void supervisor_conn_on_answer(struct supervisor_conn *l, struct supervisor_incoming *m)
{
    struct supervisor_request *q = supervisor_conn_request_take(l, m->seq);

    if (!q)
        return; /* not requested, or timed out: the descriptor is closed */
    supervisor_conn_request_report(l, q, m->err.code ? &m->err : NULL, TAKE_FD(m->fd), m->stats);
    supervisor_conn_request_free(q);
}

static void supervisor_conn_drop_request(struct supervisor_conn *l, uint64_t seq)
{
    struct supervisor_request *q = supervisor_conn_request_take(l, seq);

    if (q)
        supervisor_conn_request_free(q);
}

static void supervisor_conn_on_ended(struct supervisor_conn *l, const struct supervisor_incoming *m)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct end_record rec;

    if (end_record_parse(m->record ? m->record : "", m->record_len, &rec, &err) < 0) {
        rec = (struct end_record){.cause = END_ENGINE_LOST, .exit_code = -1};
        snprintf(rec.message, sizeof(rec.message), "the supervisor's end record is not valid: %s",
                 err.msg);
    }
    l->events->ended(l->arg, m->exec, &rec);
}

static void supervisor_conn_dispatch_exec(struct supervisor_conn *l, enum sup_msg_type type,
                                          struct supervisor_incoming *m)
{
    if (type == SUP_STARTED) {
        supervisor_conn_drop_request(l, m->seq);
        l->events->started(l->arg, m->exec, (int)m->pid, TAKE_FD(m->fd));
    } else if (type == SUP_EXEC_FAILED) {
        supervisor_conn_drop_request(l, m->seq);
        if (m->stopping && l->events->refused)
            l->events->refused(l->arg, m->exec, &m->err);
        else
            l->events->start_failed(l->arg, m->exec, &m->err);
    } else if (type == SUP_OUTPUT) {
        l->events->output(l->arg, m->exec, m->stdout_end, m->stderr_end);
    } else if (type == SUP_ENDED) {
        supervisor_conn_on_ended(l, m);
    }
}

static void supervisor_conn_dispatch(struct supervisor_conn *l, unsigned type,
                                     struct supervisor_incoming *m)
{
    switch (type) {
    case SUP_HELLO:
        if (m->has_version && m->version >> 32 != SUP_VERSION_MAJOR)
            supervisor_conn_break(l, "peer has another protocol version");
        break;
    case SUP_RESULT:
    case SUP_STATS:
        supervisor_conn_on_answer(l, m);
        break;
    case SUP_ATTACHED:
        supervisor_conn_on_answer(l, m);
        if (!l->freed && m->exec && m->has_offsets)
            l->events->output(l->arg, m->exec, m->stdout_end, m->stderr_end);
        break;
    case SUP_STARTED:
    case SUP_EXEC_FAILED:
    case SUP_OUTPUT:
    case SUP_ENDED:
        if (m->exec)
            supervisor_conn_dispatch_exec(l, type, m);
        else
            supervisor_conn_break(l, "message about an exec without its id");
        break;
    default: /* STOPPED: the connection ends next; newer types are ignored */
        break;
    }
}

static int supervisor_conn_parse_packet(struct supervisor_incoming *m, size_t len,
                                        unsigned *ret_type, struct err *err)
{
    struct sup_reader rd;
    struct sup_value v;
    int r;

    r = sup_read(&rd, supervisor_conn_packet, len, err);
    if (r < 0)
        return r;
    m->seq = rd.head.seq;
    while ((r = sup_next(&rd, &v, err)) > 0)
        supervisor_conn_incoming_field(m, &v);
    if (r < 0)
        return r;
    sup_read_err(supervisor_conn_packet, len, &m->err);
    if (rd.head.type == SUP_EXEC_FAILED && !m->err.code)
        err_set(&m->err, ERR_ENGINE, "the supervisor gave no reason");
    *ret_type = rd.head.type;
    return 0;
}

/* False: nothing more to read, or the connection has ended. */
static bool supervisor_conn_read_one(struct supervisor_conn *l)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct supervisor_incoming m = {.fd = -1};
    size_t n_fds = 1;
    unsigned type;
    ssize_t n;

    n = fd_recv(l->fd, supervisor_conn_packet, sizeof(supervisor_conn_packet), &m.fd, &n_fds,
                MSG_DONTWAIT);
    if (n == -EAGAIN)
        return false;
    if (n <= 0) {
        supervisor_conn_break(l, n ? strerror((int)-n) : "closed by the supervisor");
        return false;
    }
    if (supervisor_conn_parse_packet(&m, (size_t)n, &type, &err) < 0)
        supervisor_conn_break(l, err.msg);
    else
        supervisor_conn_dispatch(l, type, &m);
    strv_free(m.stats);
    err_done(&m.err);
    fd_close(m.fd);
    return !l->freed && !l->broken;
}

/* ---- sending ---- */

/* True when the kernel has the message, or when the connection is dead. */
static bool supervisor_conn_send_now(struct supervisor_conn *l, const void *data, size_t len,
                                     int fd)
{
    int r = fd_send(l->fd, data, len, &fd, fd >= 0, MSG_DONTWAIT);

    if (r == -EAGAIN)
        return false;
    if (fd_send_is_short(r)) {
        l->out_at = time_mono() + SUPERVISOR_CONN_SHORT_USEC;
        return false;
    }
    /* Messages of the supervisor may still be unread: the reader finds the end of the
     * connection. */
    if (r < 0 && r != -EPIPE && r != -ECONNRESET)
        supervisor_conn_break(l, strerror(-r));
    return true;
}

/* The socket may report room while the kernel is short of memory. */
static void supervisor_conn_watch_socket(struct supervisor_conn *l)
{
    if (!l->broken)
        loop_watch_set(l->watch, l->out_first && !l->out_at ? LOOP_READ | LOOP_WRITE : LOOP_READ);
}

static void supervisor_conn_flush_queue(struct supervisor_conn *l)
{
    l->out_at = 0;
    while (l->out_first && !l->broken) {
        struct outgoing *o = l->out_first;

        if (!supervisor_conn_send_now(l, o->data, o->len, o->fd))
            break;
        supervisor_conn_outgoing_pop(l);
    }
    supervisor_conn_watch_socket(l);
}

static void supervisor_conn_on_timer(void *arg)
{
    struct supervisor_conn *l = arg;

    supervisor_conn_enter(l);
    supervisor_conn_report_due(l);
    if (!l->freed && !l->broken && l->out_at && time_mono() >= l->out_at)
        supervisor_conn_flush_queue(l);
    if (!l->freed && l->broken)
        supervisor_conn_report_closed(l);
    if (!l->freed)
        supervisor_conn_timer_arm(l);
    supervisor_conn_leave(l);
}

static void supervisor_conn_on_event(void *arg, int events)
{
    struct supervisor_conn *l = arg;

    supervisor_conn_enter(l);
    if (events & LOOP_WRITE)
        supervisor_conn_flush_queue(l);
    if (events & LOOP_READ)
        for (int i = 0;
             i < SUPERVISOR_CONN_READS_PER_TURN && !l->broken && supervisor_conn_read_one(l); i++)
            ;
    if (!l->freed)
        supervisor_conn_timer_arm(l);
    supervisor_conn_leave(l);
}

static void supervisor_conn_enqueue(struct supervisor_conn *l, const void *data, size_t len, int fd)
{
    struct outgoing *o = xmalloc(sizeof(*o) + len);

    *o = (struct outgoing){.fd = fd, .len = len};
    memcpy(o->data, data, len);
    *l->out_last = o;
    l->out_last = &o->next;
    l->out_bytes += len;
    supervisor_conn_watch_socket(l);
    supervisor_conn_timer_arm(l);
}

/* Takes the fd. On failure nothing was sent. */
static int supervisor_conn_send(struct supervisor_conn *l, struct sup_writer *w, int fd,
                                size_t bound, struct err *err)
{
    int r = 0;

    if (l->broken) {
        r = err_set(err, ERR_ENGINE, "the sandbox has ended");
    } else if (sup_finish(w, err) < 0) {
        r = -ERR_LIMIT;
    } else if (sup_check_known(sup_type(w), l->minor, err) < 0) {
        r = -ERR_UNSUPPORTED;
    } else if (l->out_bytes + w->buf.len > bound) {
        r = err_set(err, ERR_LIMIT, "the sandbox's supervisor does not read its messages");
    } else if (l->out_first || !supervisor_conn_send_now(l, buf_data(&w->buf), w->buf.len, fd)) {
        supervisor_conn_enqueue(l, buf_data(&w->buf), w->buf.len, TAKE_FD(fd));
    }
    fd_close(fd);
    sup_writer_done(w);
    return r;
}

/* A message whose answer nobody needs. It cannot be refused; it can only end the connection. */
void supervisor_conn_notify(struct supervisor_conn *l, struct sup_writer *w)
{
    if (supervisor_conn_send(l, w, -1, SUPERVISOR_CONN_QUEUE_HARD, NULL) < 0 && !l->broken)
        supervisor_conn_break(l, "the supervisor does not read");
}

static struct supervisor_request *supervisor_conn_add_request(struct supervisor_conn *l,
                                                              uint64_t timeout)
{
    struct supervisor_request *q = xnew0(struct supervisor_request);

    q->seq = l->last_seq;
    q->by = timeout ? deadline_in(timeout) : (struct deadline){DEADLINE_NEVER};
    q->next = l->requests;
    l->requests = q;
    return q;
}

struct supervisor_request *supervisor_conn_unmade(struct supervisor_conn *l, struct sup_writer *w,
                                                  const struct err *why)
{
    struct supervisor_request *q = supervisor_conn_add_request(l, 0);

    err_copy(&q->err, why);
    sup_writer_done(w);
    supervisor_conn_timer_arm(l);
    return q;
}

struct supervisor_request *supervisor_conn_request(struct supervisor_conn *l, struct sup_writer *w,
                                                   int fd, uint64_t timeout)
{
    struct supervisor_request *q = supervisor_conn_add_request(l, timeout);

    supervisor_conn_send(l, w, fd, SUPERVISOR_CONN_QUEUE_SOFT, &q->err);
    supervisor_conn_timer_arm(l);
    return q;
}

uint64_t supervisor_conn_next_seq(struct supervisor_conn *l)
{
    return ++l->last_seq;
}

void supervisor_conn_begin(struct supervisor_conn *l, struct sup_writer *w, enum sup_msg_type type,
                           const char *exec)
{
    *w = (struct sup_writer){0};
    sup_begin(w, type, supervisor_conn_next_seq(l));
    sup_put_str(w, SUP_TAG_EXEC, exec);
}

uint32_t supervisor_conn_minor(const struct supervisor_conn *l)
{
    return l->minor;
}

struct supervisor_conn *supervisor_conn_open(struct loop *loop, int fd, uint32_t minor,
                                             const struct supervisor_events *events, void *arg)
{
    struct supervisor_conn *l = xnew0(struct supervisor_conn);
    int room = 2 * SUP_MSG_MAX;

    /* A packet must fit as a whole; a machine tuned for small buffers would refuse our largest. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    l->fd = fd;
    l->minor = minor;
    l->events = events;
    l->arg = arg;
    l->out_last = &l->out_first;
    l->timer = loop_timer_new(loop, supervisor_conn_on_timer, l);
    l->watch = loop_watch_new(loop, fd, supervisor_conn_on_event, l);
    loop_watch_set(l->watch, LOOP_READ);
    return l;
}
