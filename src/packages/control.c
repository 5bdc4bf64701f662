/*
 * The control socket to the daemon: reads requests, sends their results and events.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "packages/packages.h"
#include "proto/packages.h"

enum { QUEUE_MAX = 256, EVENTS_PER_SECOND = 20 };
#define END_GRACE (2 * USEC_PER_SEC)

struct packages_packet {
    struct packages_packet *next;
    struct buf data;
    int fd; /* owned, or -1 */
};

struct packages_control {
    struct packages *pkgs;
    int fd;
    struct loop_watch *watch;
    struct loop_timer *end_timer;
    struct packages_packet *queue, **tail;
    unsigned queued;
    uint64_t second; /* the second in which `events` were sent */
    unsigned events;
    char *packet; /* buffer for the message that is read */
};

/* -- out -- */

static void packages_control_packet_free(struct packages_packet *p)
{
    buf_done(&p->data);
    fd_close(p->fd);
    free(p);
}

static void packages_control_flush(struct packages_control *c)
{
    while (c->queue) {
        struct packages_packet *p = c->queue;
        int r = fd_send(c->fd, buf_data(&p->data), p->data.len, &p->fd, p->fd >= 0, MSG_DONTWAIT);

        if (r == -EAGAIN)
            break;
        c->queue = p->next;
        if (!c->queue)
            c->tail = &c->queue;
        c->queued--;
        packages_control_packet_free(
            p); /* after an error the next read sees the end of the socket */
    }
    if (c->watch)
        loop_watch_set(c->watch, LOOP_READ | (c->queue ? LOOP_WRITE : 0));
}

/* Takes the writer's bytes and the descriptor. */
static void packages_control_enqueue(struct packages_control *c, struct sup_writer *w, int fd)
{
    struct packages_packet *p = xnew0(struct packages_packet);

    p->data = w->buf;
    p->fd = fd;
    *c->tail = p;
    c->tail = &p->next;
    c->queued++;
    packages_control_flush(c);
}

static void packages_control_send_writer(struct packages_control *c, struct sup_writer *w, int fd)
{
    if (sup_finish(w, NULL) < 0 || c->queued >= QUEUE_MAX) {
        sup_writer_done(w);
        fd_close(fd);
        return;
    }
    packages_control_enqueue(c, w, fd);
}

static void packages_control_begin(struct sup_writer *w, enum packages_msg_type type, uint64_t seq)
{
    sup_begin(w, (enum sup_msg_type)type, seq);
}

void control_event(struct packages_control *c, const char *json)
{
    uint64_t second = time_mono() / USEC_PER_SEC;
    struct sup_writer w;

    if (second != c->second) {
        c->second = second;
        c->events = 0;
    }
    if (c->events++ >= EVENTS_PER_SECOND)
        return;
    packages_control_begin(&w, PACKAGES_EVENT, 0);
    sup_put_str(&w, PACKAGES_TAG_JSON, json);
    packages_control_send_writer(c, &w, -1);
}

void control_ready(struct packages_control *c)
{
    struct sup_writer w;

    packages_control_begin(&w, PACKAGES_READY, 0);
    sup_put_u64(&w, SUP_TAG_VERSION, PACKAGES_VERSION);
    sup_put_u64(&w, SUP_TAG_PID, (uint64_t)getpid());
    packages_control_send_writer(c, &w, -1);
}

/* json: sent as a memfd beside the message; NULL: none. */
static void packages_control_send_result(void *arg, uint64_t seq, const char *json,
                                         const struct err *err)
{
    struct packages_control *c = arg;
    _cleanup_err_ struct err failed = ERR_INIT;
    struct sup_writer w;
    int fd = -1;

    if (json && memfd_sealed("ripcord-packages", json, strlen(json), &fd, &failed) < 0)
        err = &failed;
    packages_control_begin(&w, PACKAGES_RESULT, seq);
    if (err && err->code != ERR_NONE)
        sup_put_err(&w, err);
    packages_control_send_writer(c, &w, fd);
}

/* -- in -- */

struct message {
    uint16_t type;
    uint64_t seq, keep, age, flags;
    bool has_keep;
    const char *sandbox, *path;
    int fd; /* owned */
};

static int packages_control_read_message(struct packages_control *c, size_t len, struct message *m,
                                         struct err *err)
{
    struct sup_reader r = {0};
    struct sup_value v = {0};
    int n = sup_read(&r, c->packet, len, err);

    if (n < 0)
        return n;
    m->type = r.head.type;
    m->seq = r.head.seq;
    while ((n = sup_next(&r, &v, err)) > 0) {
        if (v.tag == SUP_TAG_SANDBOX)
            m->sandbox = v.data;
        else if (v.tag == SUP_TAG_PATH)
            m->path = v.data;
        else if (v.tag == PACKAGES_TAG_KEEP && v.length == 8) {
            m->keep = v.u64;
            m->has_keep = true;
        } else if (v.tag == PACKAGES_TAG_AGE && v.length == 8)
            m->age = v.u64;
        else if (v.tag == SUP_TAG_FLAGS && v.length == 8)
            m->flags = v.u64;
    }
    return n;
}

static int packages_control_do_listen(struct packages_control *c, struct message *m,
                                      struct err *err)
{
    if (!m->sandbox || !*m->sandbox || m->fd < 0)
        return err_set(err, ERR_INVALID, "LISTEN without a sandbox or a socket");
    return packages_listen(c->pkgs, m->sandbox, TAKE_FD(m->fd), m->flags & PACKAGES_LISTEN_OWNER,
                           err);
}

static void packages_control_do_forget(struct packages_control *c, const struct message *m)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (!m->sandbox || !packages_forget(c->pkgs, m->sandbox))
        err_set(&err, ERR_NOT_FOUND, "the package cache does not know sandbox '%s'",
                m->sandbox ? m->sandbox : "");
    packages_control_send_result(c, m->seq, NULL, &err);
}

static void packages_control_dispatch(struct packages_control *c, struct message *m)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *json = NULL;

    switch (m->type) {
    case PACKAGES_LISTEN:
        (void)packages_control_do_listen(c, m, &err);
        packages_control_send_result(c, m->seq, NULL, &err);
        break;
    case PACKAGES_FORGET:
        packages_control_do_forget(c, m);
        break;
    case PACKAGES_STATS:
        json = admin_stats(c->pkgs);
        packages_control_send_result(c, m->seq, json, NULL);
        break;
    case PACKAGES_LIST:
    case PACKAGES_SHOW:
    case PACKAGES_VERIFY:
    case PACKAGES_PRUNE:
        admin_run(c->pkgs, &(struct admin_request){.type = m->type,
                                                   .seq = m->seq,
                                                   .keep = m->keep,
                                                   .has_keep = m->has_keep,
                                                   .age = m->age,
                                                   .subject = m->path,
                                                   .fn = packages_control_send_result,
                                                   .arg = c});
        break;
    default:
        err_set(&err, ERR_UNSUPPORTED, "the package cache does not know message type %u", m->type);
        packages_control_send_result(c, m->seq, NULL, &err);
    }
}

static void packages_control_on_end(void *arg)
{
    struct packages_control *c = arg;

    loop_stop(c->pkgs->loop);
}

/* Accepts no new connection. Open requests get END_GRACE to finish. */
static void packages_control_daemon_gone(struct packages_control *c)
{
    loop_watch_free(TAKE_PTR(c->watch));
    for (struct packages_client *client = c->pkgs->clients; client; client = client->next)
        http_server_stop_accepting(client->server);
    loop_timer_set(c->end_timer, c->pkgs->open_requests ? END_GRACE : 0, false);
}

static void packages_control_on_message(struct packages_control *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct message m = {.fd = -1};
    size_t n_fds = 1;
    ssize_t n = fd_recv(c->fd, c->packet, SUP_MSG_MAX, &m.fd, &n_fds, MSG_DONTWAIT);

    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n <= 0) {
        packages_control_daemon_gone(c);
        return;
    }
    if (n_fds == 0)
        m.fd = -1;
    if (packages_control_read_message(c, (size_t)n, &m, &err) < 0)
        packages_control_send_result(c, m.seq, NULL, &err);
    else
        packages_control_dispatch(c, &m);
    fd_close(m.fd);
}

static void packages_control_on_event(void *arg, int events)
{
    struct packages_control *c = arg;

    if (events & LOOP_WRITE)
        packages_control_flush(c);
    if (events & LOOP_READ)
        packages_control_on_message(c);
}

int control_new(struct packages *pkgs, int fd, struct err *err)
{
    struct packages_control *c = xnew0(struct packages_control);

    c->pkgs = pkgs;
    c->fd = fd;
    c->tail = &c->queue;
    c->packet = xmalloc(SUP_MSG_MAX);
    c->end_timer = loop_timer_new(pkgs->loop, packages_control_on_end, c);
    c->watch = loop_watch_new(pkgs->loop, fd, packages_control_on_event, c);
    pkgs->control = c;
    if (!c->watch)
        return err_set(err, ERR_SYSTEM, "cannot watch the control socket");
    loop_watch_set(c->watch, LOOP_READ);
    return 0;
}

void control_free(struct packages_control *c)
{
    if (!c)
        return;
    loop_watch_free(c->watch);
    loop_timer_free(c->end_timer);
    while (c->queue) {
        struct packages_packet *p = c->queue;

        c->queue = p->next;
        packages_control_packet_free(p);
    }
    fd_close(c->fd);
    free(c->packet);
    free(c);
}
