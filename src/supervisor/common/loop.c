/*
 * The event loop: epoll, one event per turn. This costs one more system call per event than
 * batches; in return no handler can meet a source that another handler has just closed.
 */
#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/memory-release.h"
#include "supervisor/common/supervisor.h"

enum { IDLE_MS = 1000 };

int source_add(struct supervisor *s, struct loop_source *src, int fd, uint32_t events,
               void (*ready)(struct loop_source *, uint32_t), struct err *err)
{
    struct epoll_event ev = {.events = events, .data.ptr = src};

    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
        return err_sys(err, errno, "watch a descriptor");
    *src = (struct loop_source){.fd = fd, .events = events, .ready = ready};
    return 0;
}

void source_set(struct supervisor *s, struct loop_source *src, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = src};

    if (src->fd < 0 || src->events == events)
        return;
    /* A source without events is removed, because epoll would report its hang-up for ever. */
    if (!events)
        epoll_ctl(s->epoll, EPOLL_CTL_DEL, src->fd, NULL);
    else
        epoll_ctl(s->epoll, src->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, src->fd, &ev);
    src->events = events;
}

/* Removes the source explicitly: if another process holds the same open file, close() does not. */
void source_close(struct supervisor *s, struct loop_source *src)
{
    if (src->fd < 0)
        return;
    source_set(s, src, 0);
    src->fd = fd_close(src->fd);
}

char *supervisor_io(struct supervisor *s)
{
    void *p;

    if (s->io)
        return s->io;
    p = mmap(NULL, SUPERVISOR_IO_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        abort(); /* out of memory, as in xmalloc() */
    s->io = p;
    return s->io;
}

/* Frees peers and execs that ended in their own handler. */
static void supervisor_loop_sweep(struct supervisor *s)
{
    bool left = false;

    for (struct supervisor_peer **p = &s->peers; *p;) {
        struct supervisor_peer *gone = *p;

        if (!gone->dead) {
            p = &gone->next;
            continue;
        }
        *p = gone->next;
        peer_free(gone);
        left = true;
    }
    if (left && s->tied && !s->peers)
        stop_begin(s, 0);
    for (struct supervised_exec **x = &s->execs; *x;) {
        struct supervised_exec *gone = *x;

        if (!gone->freed) {
            x = &gone->next;
            continue;
        }
        *x = gone->next;
        exec_free(gone);
    }
}

/* Waits for one event. After a second without one, free memory and the program's pages are given
 * back. */
static int supervisor_loop_wait_event(struct supervisor *s, struct epoll_event *ev)
{
    int n = epoll_wait(s->epoll, ev, 1, execs_live(s) ? -1 : IDLE_MS);

    if (n != 0)
        return n;
    malloc_trim(0);
    memory_release();
    return epoll_wait(s->epoll, ev, 1, -1);
}

int loop_run(struct supervisor *s, struct err *err)
{
    while (!s->over) {
        struct epoll_event ev;
        struct loop_source *src;
        int n;

        timers_arm(s);
        /* Gives the buffer back while no exec is live: an idle sandbox should cost very little. */
        if (s->io && !execs_live(s)) {
            munmap(s->io, SUPERVISOR_IO_SIZE);
            s->io = NULL;
        }
        n = supervisor_loop_wait_event(s, &ev);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "wait for events");
        src = ev.data.ptr;
        src->ready(src, ev.events);
        supervisor_loop_sweep(s);
        if (s->state == SUP_STOPPING)
            stop_advance(s);
    }
    return 0;
}
