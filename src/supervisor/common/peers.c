/*
 * The daemons at the other end: connections, HELLO, sending. Up to SUPERVISOR_QUEUE_MAX bytes wait
 * for a peer that does not read. Then we disconnect it; it can connect again and ask for the state.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "supervisor/common/supervisor.h"

enum { SHORT_USEC = 1000 };

/* ---- sending ---- */

static void peers_pop(struct supervisor_peer *p)
{
    struct supervisor_packet *k = p->first;

    p->first = k->next;
    if (!p->first)
        p->last = &p->first;
    p->queued -= k->len;
    fd_close(k->fd);
    free(k);
}

static void peers_enqueue(struct supervisor_peer *p, const struct buf *b, int fd)
{
    struct supervisor_packet *k;

    if (p->queued + b->len > SUPERVISOR_QUEUE_MAX) {
        log_warn("a daemon does not read its messages; its connection is closed");
        p->dead = true;
        fd_close(fd);
        return;
    }
    k = xmalloc(sizeof(*k) + b->len);
    *k = (struct supervisor_packet){.fd = fd, .len = b->len};
    memcpy(k->data, buf_data(b), b->len);
    *p->last = k;
    p->last = &k->next;
    p->queued += k->len;
    source_set(p->sup, &p->src, EPOLLIN | EPOLLOUT);
}

/* 0 sent, -EAGAIN, or the peer is dead. A kernel that is short of memory must not end the
 * connection: the daemon would take the sandbox for lost. */
static int peers_send_packet(struct supervisor_peer *p, const void *data, size_t len, int fd)
{
    int r = fd_send(p->src.fd, data, len, &fd, fd >= 0, MSG_DONTWAIT);

    if (fd_send_is_short(r)) {
        usleep(SHORT_USEC); /* the socket stays writable, so the loop returns here at once */
        r = -EAGAIN;
    }
    if (r < 0 && r != -EAGAIN)
        p->dead = true;
    return r;
}

void peer_send(struct supervisor_peer *p, struct sup_writer *w, int fd)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (sup_finish(w, &err) < 0) {
        log_warn("a message was not sent: %s", err.msg);
        fd_close(fd);
    } else if (p->dead) {
        fd_close(fd);
    } else if (p->first || p->held ||
               peers_send_packet(p, buf_data(&w->buf), w->buf.len, fd) == -EAGAIN) {
        peers_enqueue(p, &w->buf, fd);
    } else {
        fd_close(fd);
    }
    sup_writer_done(w);
}

void peer_result(struct supervisor_peer *p, uint64_t seq, const struct err *err)
{
    struct sup_writer w;

    sup_begin(&w, SUP_RESULT, seq);
    if (err && err->code)
        sup_put_err(&w, err);
    peer_send(p, &w, -1);
}

void peers_broadcast(struct supervisor *s, struct sup_writer *w)
{
    for (struct supervisor_peer *p = s->peers; p; p = p->next) {
        struct sup_writer copy = {.buf = BUF_INIT(SUP_MSG_MAX), .overflow = w->overflow};

        if (buf_append(&copy.buf, buf_data(&w->buf), w->buf.len) < 0)
            copy.overflow = 1;
        peer_send(p, &copy, -1);
    }
    sup_writer_done(w);
}

static void peers_flush(struct supervisor_peer *p)
{
    while (p->first && !p->dead) {
        if (peers_send_packet(p, p->first->data, p->first->len, p->first->fd) == -EAGAIN)
            return;
        peers_pop(p);
    }
    source_set(p->sup, &p->src, EPOLLIN);
}

void peer_hang_up(int fd)
{
    char byte;

    /* Closing a unix socket with unread data resets the peer, which then loses our last messages.
     * So we stop receiving and read what has arrived. */
    shutdown(fd, SHUT_RD);
    while (recv(fd, &byte, 1, MSG_DONTWAIT) > 0)
        ;
}

void peers_finish(struct supervisor *s, uint64_t usec)
{
    struct deadline by = deadline_in(usec);

    for (struct supervisor_peer *p = s->peers; p; p = p->next) {
        while (p->first && !p->dead && !deadline_passed(&by)) {
            struct pollfd fd = {.fd = p->src.fd, .events = POLLOUT};

            if (poll(&fd, 1, deadline_ms(&by)) > 0)
                peers_flush(p);
        }
        peer_hang_up(p->src.fd);
    }
}

/* ---- coming and going ---- */

static void peers_greet(struct supervisor_peer *p)
{
    struct supervisor *s = p->sup;
    struct sup_writer w;

    sup_begin(&w, SUP_HELLO, 0);
    sup_put_u64(&w, SUP_TAG_VERSION, (uint64_t)SUP_VERSION_MAJOR << 32 | SUP_VERSION_MINOR);
    sup_put_str(&w, SUP_TAG_SANDBOX, s->sandbox_id);
    sup_put_u64(&w, SUP_TAG_PID, (uint64_t)s->pid);
    sup_put_u64(&w, SUP_TAG_STATE, s->state);
    sup_put_str(&w, SUP_TAG_HASH, s->hash);
    sup_put_u64(&w, SUP_TAG_UNENFORCED, s->unenforced);
    peer_send(p, &w, -1);
}

/* If a daemon ends before it has sent all of a command's input, the command sees an early end of
 * file. The end record must say so. */
static void peers_note_lost_input(struct supervised_exec *x, const struct supervisor_peer *p)
{
    if (!x->input_whole && (x->starter == p || attachment_find(x, p)))
        x->input_lost = true;
}

/* The kernel closes the descriptors of a dying process one by one, with milliseconds between a
 * command's stdin and the socket to us. It releases the memory first: 0 pages mean that the process
 * is ending. If it has gone altogether, a child that it was starting holds the socket a moment
 * longer. */
static bool peers_is_ending(const struct supervisor_peer *p)
{
    struct ucred who;
    socklen_t len = sizeof(who);
    _cleanup_close_ int fd = -1;
    char path[32], pages;

    if (getsockopt(p->src.fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/statm", who.pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT && who.pid > 0;
    return read(fd, &pages, 1) == 1 && pages == '0';
}

static bool peers_has_hung_up(const struct supervisor_peer *p)
{
    struct pollfd fd = {.fd = p->src.fd};

    return poll(&fd, 1, 0) > 0 && fd.revents & (POLLHUP | POLLERR);
}

void peers_note_input(struct supervised_exec *x)
{
    for (const struct supervisor_peer *p = x->input_whole ? NULL : x->sup->peers; p; p = p->next)
        /* In this order, because the process may end between the two checks. */
        if (p->dead || peers_is_ending(p) || peers_has_hung_up(p))
            peers_note_lost_input(x, p);
}

/* Removes all references to a peer that has gone. */
static void peers_forget(struct supervisor_peer *p)
{
    for (struct supervised_exec *x = p->sup->execs; x; x = x->next) {
        peers_note_lost_input(x, p);
        if (x->starter == p)
            x->starter = NULL;
        attachments_remove(x, p);
        streams_wake(x);
    }
    p->sup->ops->forget(p->sup, p);
}

void peer_free(struct supervisor_peer *p)
{
    peers_forget(p);
    while (p->first)
        peers_pop(p);
    source_close(p->sup, &p->src);
    free(p);
}

/* The first message must be HELLO with our major version. */
static int peers_check_hello(struct supervisor_peer *p, struct sup_reader *r, struct err *err)
{
    uint64_t version = 0;
    struct sup_value v;
    int n;

    if (r->head.type != SUP_HELLO)
        return err_set(err, ERR_INVALID, "the first message must be HELLO");
    while ((n = sup_next(r, &v, err)) > 0)
        if (v.tag == SUP_TAG_VERSION)
            version = v.u64;
    if (n < 0)
        return n;
    if (version >> 32 != SUP_VERSION_MAJOR)
        return err_set(err, ERR_UNSUPPORTED, "this supervisor speaks protocol version %d, not %u",
                       SUP_VERSION_MAJOR, (unsigned)(version >> 32));
    p->greeted = true;
    return 0;
}

/* Takes the fd that came with the packet, or -1. */
static void peers_handle(struct supervisor_peer *p, const char *packet, size_t len, int fd)
{
    _cleanup_close_ int came = fd;
    _cleanup_err_ struct err err = ERR_INIT;
    struct sup_reader r;
    int n;

    n = sup_read(&r, packet, len, &err);
    if (n >= 0 && p->greeted) {
        command_run(p, &r, TAKE_FD(came));
        return;
    }
    if (n < 0 || peers_check_hello(p, &r, &err) < 0) {
        peer_result(p, 0, &err);
        p->dead = true;
    }
}

static void peers_on_peer(struct loop_source *src, uint32_t events)
{
    struct supervisor_peer *p = container_of(src, struct supervisor_peer, src);
    char *packet = supervisor_io(p->sup);
    size_t n_fds = 1;
    int fd = -1;
    ssize_t n;

    if (events & EPOLLOUT)
        peers_flush(p);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    n = fd_recv(src->fd, packet, SUP_MSG_MAX, &fd, &n_fds, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    if (n <= 0)
        p->dead = true;
    else
        peers_handle(p, packet, (size_t)n, n_fds ? fd : -1);
}

static int peer_new(struct supervisor *s, int fd, bool held, struct err *err)
{
    struct supervisor_peer *p = xnew0(struct supervisor_peer);
    int r;

    p->sup = s;
    p->held = held;
    p->last = &p->first;
    r = source_add(s, &p->src, fd, EPOLLIN, peers_on_peer, err);
    if (r < 0) {
        fd_close(fd);
        free(p);
        return r;
    }
    p->next = s->peers;
    s->peers = p;
    return 0;
}

int peer_add(struct supervisor *s, int fd, struct err *err)
{
    int r = peer_new(s, fd, false, err);

    if (r < 0)
        return r;
    peers_greet(s->peers);
    return 0;
}

/* True if the next message may be handled before the sandbox is up: only the start of a command. */
static bool peers_next_is_early(int fd)
{
    struct sup_msg head;

    return recv(fd, &head, sizeof(head), MSG_PEEK | MSG_DONTWAIT) == (ssize_t)sizeof(head) &&
           (head.type == SUP_HELLO || sup_starts_exec(head.type));
}

int peer_early(struct supervisor *s, int fd, struct err *err)
{
    int r = s->peers ? 0 : peer_new(s, fd, true, err);

    if (r < 0 || s->peers->dead || !peers_next_is_early(fd))
        return r;
    peers_on_peer(&s->peers->src, EPOLLIN);
    return 1;
}

/* The held messages follow HELLO and the news. */
void peer_release(struct supervisor_peer *p, struct sup_writer *news)
{
    struct supervisor_packet *held = TAKE_PTR(p->first);

    p->last = &p->first;
    p->held = false;
    peers_greet(p);
    peer_send(p, news, -1);
    while (*p->last)
        p->last = &(*p->last)->next;
    *p->last = held;
    while (*p->last)
        p->last = &(*p->last)->next;
    source_set(p->sup, &p->src, p->first ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* The folder has mode 0700 and the socket 0600; in addition we check the peer's credentials. */
static bool peers_may_connect(const struct supervisor *s, int fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);
    size_t n = 0;

    for (const struct supervisor_peer *p = s->peers; p; p = p->next)
        n++;
    return n < SUPERVISOR_PEERS_MAX && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
           (who.uid == 0 || who.uid == geteuid());
}

static void peers_on_connect(struct loop_source *src, uint32_t events _unused_)
{
    struct supervisor *s = container_of(src, struct supervisor, listener);
    int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    if (peers_may_connect(s, fd))
        peer_add(s, fd, NULL);
    else
        fd_close(fd);
}

int peers_listen(struct supervisor *s, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    r = unix_listen(s->run_dirfd, SUP_SOCKET, SOCK_SEQPACKET | SOCK_NONBLOCK, 0600, &fd, err);
    if (r < 0)
        return r;
    r = source_add(s, &s->listener, fd, EPOLLIN, peers_on_connect, err);
    if (r < 0)
        return r;
    TAKE_FD(fd);
    return 0;
}
