/*
 * Threads for calls that block, and the pipe that returns their results. A thread gets only its
 * work. It writes the work's address to the pipe.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "supervisor/relay/relay.h"

enum { THREAD_STACK = 512 << 10 };

/* More execs at once would only wait inside the engine. */
static const unsigned limits[WORK_KINDS] = {
    [WORK_CONTROL] = 64,
    [WORK_OPEN] = 8,
    [WORK_LOSS] = 32,
};

void work_post(struct relay_work *w)
{
    /* A write of eight bytes to a pipe is atomic. If the pipe is full, the thread waits until the
     * loop has read some. */
    fd_write_all(w->relay->results_end, &w, sizeof(w));
}

static void *relay_work_thread_main(void *arg)
{
    struct relay_work *w = arg;

    w->run(w);
    work_post(w);
    return NULL;
}

static int relay_work_spawn(struct relay_work *w)
{
    pthread_attr_t attr;
    pthread_t thread;
    int r;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, THREAD_STACK);
    r = pthread_create(&thread, &attr, relay_work_thread_main, w);
    pthread_attr_destroy(&attr);
    return r;
}

static void relay_work_start(struct relay *r, struct relay_work *w)
{
    int e;

    r->busy[w->kind]++;
    e = relay_work_spawn(w);
    if (e) {
        err_sys(&w->err, e, "start a thread");
        work_post(w);
    }
}

static void relay_work_pump(struct relay *r)
{
    for (struct relay_work **at = &r->waiting; *at;) {
        struct relay_work *w = *at;

        if (!w->dropped && r->busy[w->kind] >= limits[w->kind]) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        if (!w->next)
            r->waiting_last = at;
        if (w->dropped)
            w->done(w);
        else
            relay_work_start(r, w);
    }
}

void work_submit(struct relay *r, struct relay_work *w)
{
    w->next = NULL;
    w->relay = r;
    *r->waiting_last = w;
    r->waiting_last = &w->next;
    relay_work_pump(r);
}

static void relay_work_on_result(struct loop_source *src, uint32_t events _unused_)
{
    struct relay *r = container_of(src, struct relay, results);
    struct relay_work *w;

    if (read(src->fd, &w, sizeof(w)) != sizeof(w))
        return;
    if (w->run) /* else it is only a notification */
        r->busy[w->kind]--;
    w->done(w);
    relay_work_pump(r);
}

int works_open(struct relay *r, struct err *err)
{
    int ends[2], n;

    r->waiting_last = &r->waiting;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    r->results_end = ends[1];
    fd_set_nonblock(ends[0], true);
    n = source_add(&r->sup, &r->results, ends[0], EPOLLIN, relay_work_on_result, err);
    if (n < 0)
        fd_close(ends[0]);
    return n;
}
