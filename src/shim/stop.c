/*
 * The end of a sandbox, for whatever reason: told to stop, ephemeral and done, pid 1 gone. SIGTERM
 * to the commands, a grace, then pid 1 is killed, with which the kernel ends every process in the
 * pid namespace. The sandbox is over when pid 1 is reaped and every exec has its end record.
 */
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "os/pidfd.h"
#include "shim/shim.h"

enum { CGROUP_WAIT_SEC = 2, FLUSH_WAIT_SEC = 1 };

static void kill_init(struct shim *s)
{
    if (s->kill_sent)
        return;
    s->kill_sent = true;
    pidfd_signal(s->init.fd, SIGKILL);
}

void stop_begin(struct shim *s, uint64_t grace_usec)
{
    bool again = s->state == SHIM_STOPPING;
    struct deadline by = deadline_in(grace_usec);

    /* A second, shorter order counts. */
    s->stop_by.at = again ? MIN(s->stop_by.at, by.at) : by.at;
    if (again)
        return;
    if (s->state == SHIM_PAUSED)
        cgroup_freeze(&s->cgroup, false, NULL); /* frozen processes hear no signal */
    s->state = SHIM_STOPPING;
    for (struct exec *x = s->execs; x; x = x->next) {
        x->stopped = x->state == EXEC_STARTING || x->state == EXEC_RUNNING;
        if (x->state == EXEC_RUNNING)
            pidfd_signal(x->main.fd, SIGTERM);
    }
    stop_advance(s);
}

static void finish(struct shim *s)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct shim_writer w;

    jobs_end(s);
    source_close(s, &s->listener);
    unlinkat(s->run_dirfd, SHIM_SOCKET, 0);
    cgroup_group_done(&s->init_group);
    for (struct exec *x = s->execs; x; x = x->next)
        cgroup_group_done(&x->group);
    if (cgroup_remove(&s->cgroup, CGROUP_WAIT_SEC * USEC_PER_SEC, &err) < 0)
        log_warn("sandbox %s: %s; the daemon removes it later", s->plan.sandbox_id, err.msg);
    shim_begin(&w, SHIM_STOPPED, 0);
    peers_broadcast(s, &w);
    peers_finish(s, FLUSH_WAIT_SEC * USEC_PER_SEC);
    s->over = true;
}

void stop_advance(struct shim *s)
{
    if (s->over)
        return;
    if (!execs_live(s) || deadline_passed(&s->stop_by))
        kill_init(s);
    if (s->init_gone && !execs_live(s))
        finish(s);
}

/*
 * Pid 1 cannot be reaped before everything in its namespace is, so the commands' deaths are seen
 * first. Its socket, though, is closed before the kernel kills them.
 */
void stop_if_init_dies(struct shim *s)
{
    char byte;

    if (s->state == SHIM_STOPPING || recv(s->init_sock, &byte, 1, MSG_DONTWAIT) != 0)
        return;
    log_warn("sandbox %s: pid 1 has died; all in it ends", s->plan.sandbox_id);
    stop_begin(s, 0);
}

void stop_on_init(struct source *src, uint32_t events _unused_)
{
    struct shim *s = container_of(src, struct shim, init);

    if (pidfd_reap(src->fd, false, NULL, NULL) == 0)
        return;
    source_close(s, src);
    s->init_gone = true;
    s->kill_sent = true;
    stop_if_init_dies(s);
}
