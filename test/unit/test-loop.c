#include "tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/loop/loop.h"

DEFINE_CLEANUP(struct loop *, loop_free);
#define _cleanup_loop_ _cleanup_(loop_freep)

struct trace {
    struct loop *loop;
    int n, stop_at, events;
    struct loop_watch *watch;
    struct loop_timer *timer;
    int fd;
};

static void count(void *arg)
{
    struct trace *t = arg;

    if (++t->n == t->stop_at)
        loop_stop(t->loop);
}

static void defer_again(void *arg)
{
    struct trace *t = arg;

    if (++t->n == t->stop_at)
        loop_stop(t->loop);
    else
        loop_defer(t->loop, defer_again, t);
}

TEST(defer_runs_later_and_in_order)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct trace t = {.stop_at = 3};

    CHECK(loop_new(&l, NULL) == 0);
    t.loop = l;
    loop_defer(l, count, &t);
    CHECK(t.n == 0);
    loop_defer(l, defer_again, &t);
    loop_run(l);
    CHECK(t.n == 3);
}

TEST(defer_at_free_still_runs)
{
    struct loop *l = NULL;
    struct trace t = {.stop_at = -1};

    CHECK(loop_new(&l, NULL) == 0);
    loop_defer(l, count, &t);
    loop_free(l);
    CHECK(t.n == 1);
}

TEST(timer_fires_not_early)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct trace t = {.stop_at = 1};
    struct loop_timer *timer;
    uint64_t start = time_mono();

    CHECK(loop_new(&l, NULL) == 0);
    t.loop = l;
    timer = loop_timer_new(l, count, &t);
    loop_timer_set(timer, 10 * USEC_PER_MSEC, false);
    loop_run(l);
    loop_timer_free(timer);
    CHECK(t.n == 1);
    CHECK(time_mono() - start >= 10 * USEC_PER_MSEC);
}

TEST(timer_repeats_and_stops)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct trace t = {.stop_at = 3};
    struct loop_timer *timer, *never;

    CHECK(loop_new(&l, NULL) == 0);
    t.loop = l;
    timer = loop_timer_new(l, count, &t);
    never = loop_timer_new(l, count, &t);
    loop_timer_set(never, 0, false);
    loop_timer_stop(never);
    loop_timer_set(timer, 0, true);
    loop_run(l);
    loop_timer_free(timer);
    loop_timer_free(never);
    loop_timer_free(NULL);
    CHECK(t.n == 3);
}

static void free_own_watch(void *arg, int events)
{
    struct trace *t = arg;

    t->events |= events;
    t->n++;
    loop_watch_free(t->watch);
    t->fd = fd_close(t->fd);
    loop_stop(t->loop);
}

TEST(watch_freed_and_fd_closed_in_its_own_callback)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct trace t = {0};
    int p[2];

    CHECK(loop_new(&l, NULL) == 0);
    CHECK(pipe2(p, O_CLOEXEC) == 0);
    t = (struct trace){.loop = l, .fd = p[0]};
    t.watch = loop_watch_new(l, p[0], free_own_watch, &t);
    CHECK(t.watch);
    loop_watch_set(t.watch, LOOP_READ);
    CHECK(write(p[1], "x", 1) == 1);
    loop_run(l);
    close(p[1]);
    CHECK(t.n == 1 && t.events == LOOP_READ && t.fd == -1);
}

TEST(watch_reports_hangup_and_error)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct trace t = {0};
    int p[2];

    CHECK(loop_new(&l, NULL) == 0);
    CHECK(pipe2(p, O_CLOEXEC) == 0);
    close(p[0]); /* the write end now gives POLLERR */
    t = (struct trace){.loop = l, .fd = p[1]};
    t.watch = loop_watch_new(l, p[1], free_own_watch, &t);
    CHECK(t.watch);
    loop_watch_set(t.watch, LOOP_WRITE);
    loop_run(l);
    CHECK(t.n == 1 && (t.events & LOOP_WRITE));
}

TEST(watch_of_a_pidfd)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct trace t = {0};
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    CHECK(pid > 0);
    CHECK(loop_new(&l, NULL) == 0);
    t = (struct trace){.loop = l, .fd = (int)syscall(SYS_pidfd_open, pid, 0)};
    t.watch = loop_watch_new(l, t.fd, free_own_watch, &t);
    CHECK(t.watch);
    loop_watch_set(t.watch, LOOP_READ);
    loop_run(l);
    CHECK(t.n == 1 && waitpid(pid, NULL, 0) == pid);
}

TEST(watch_of_a_plain_file_is_refused)
{
    _cleanup_loop_ struct loop *l = NULL;
    _cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    CHECK(loop_new(&l, NULL) == 0);
    CHECK(!loop_watch_new(l, fd, free_own_watch, NULL));
}

static void stop_paused(void *arg)
{
    struct trace *t = arg;

    loop_watch_free(t->watch);
    loop_stop(t->loop);
}

TEST(watch_paused_says_nothing)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct trace t = {0};
    int p[2];

    CHECK(loop_new(&l, NULL) == 0);
    CHECK(pipe2(p, O_CLOEXEC) == 0);
    t = (struct trace){.loop = l, .fd = -1};
    t.watch = loop_watch_new(l, p[0], free_own_watch, &t);
    loop_watch_set(t.watch, LOOP_READ);
    loop_watch_set(t.watch, 0);
    CHECK(write(p[1], "x", 1) == 1);
    t.timer = loop_timer_new(l, stop_paused, &t);
    loop_timer_set(t.timer, 5000, false);
    loop_run(l);
    loop_timer_free(t.timer);
    close(p[0]);
    close(p[1]);
    CHECK(t.n == 0);
}

static void on_signal(void *arg, int sig)
{
    struct trace *t = arg;

    t->events = sig;
    loop_stop(t->loop);
}

TEST(signal)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct trace t = {0};
    struct loop_signal *s;

    CHECK(loop_new(&l, NULL) == 0);
    t.loop = l;
    s = loop_signal_new(l, SIGUSR1, on_signal, &t);
    CHECK(s);
    kill(getpid(), SIGUSR1);
    loop_run(l);
    loop_signal_free(s);
    CHECK(t.events == SIGUSR1);
}
