#include "daemon/engine/supervisors.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "daemon/engine/handshake.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/fd.h"
#include "lib/os/pidfd.h"
#include "proto/supervisor.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* linux 6.5 */
#endif

void supervisors_init(struct supervisors *s)
{
    *s = (struct supervisors){.runs = -1};
    pthread_mutex_init(&s->lock, NULL);
}

void supervisors_done(struct supervisors *s)
{
    map_done(&s->children);
    pthread_mutex_destroy(&s->lock);
}

void supervisors_add(struct supervisors *s, const char *id, pid_t pid)
{
    pthread_mutex_lock(&s->lock);
    map_remove(&s->children, id);
    map_add(&s->children, id, (void *)(intptr_t)pid);
    pthread_mutex_unlock(&s->lock);
}

/* A connected, non-blocking socket; ERR_NOT_FOUND when no supervisor listens. */
static int supervisors_dial(const struct supervisors *s, const char *id, int *ret, struct err *err)
{
    _cleanup_close_ int dir = -1;
    _cleanup_err_ struct err why = ERR_INIT;

    if (dir_open(s->runs, id, &dir, &why) >= 0 &&
        unix_connect(dir, SUP_SOCKET, SOCK_SEQPACKET | SOCK_NONBLOCK, ret, &why) >= 0)
        return 0;
    if (why.errnum == ENOENT || why.errnum == ECONNREFUSED)
        return err_set(err, ERR_NOT_FOUND, "sandbox '%s' has no running supervisor", id);
    if (why.errnum == EAGAIN)
        return err_set(err, ERR_TIMEOUT, "the supervisor of sandbox '%s' refuses connections", id);
    return err_move(err, &why);
}

int supervisors_connect(struct supervisors *s, const char *id, const struct deadline *by,
                        struct engine_sandbox *ret, struct err *err)
{
    struct engine_sandbox sandbox = {.supervisor_fd = -1};
    _cleanup_close_ int fd = -1;
    int r;

    r = supervisors_dial(s, id, &fd, err);
    if (r < 0)
        return r;
    r = handshake_hello(fd, id, by, &sandbox, err);
    if (r == -ERR_ENGINE) {
        /* It closed the connection instead of answering: it was about to end. */
        err_done(err);
        return err_set(err, ERR_NOT_FOUND, "the supervisor of sandbox '%s' has just ended", id);
    }
    if (r < 0)
        return err_wrap(err, "connect to sandbox '%s'", id);
    snprintf(sandbox.id, sizeof(sandbox.id), "%s", id);
    sandbox.supervisor_fd = TAKE_FD(fd);
    *ret = sandbox;
    return 0;
}

/* ---- ending a supervisor ---- */

static bool supervisors_peer_gone(int sock)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

/*
 * The process at the other end. Before Linux 6.5 only its pid is known: when the connection still
 * stands after the pidfd was opened, the pid was not reused.
 */
static int supervisors_peer_pidfd(int sock, int *ret, struct err *err)
{
    struct ucred cred;
    socklen_t len = sizeof(*ret);
    int r;

    if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, ret, &len) == 0)
        return 0;
    len = sizeof(cred);
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return err_sys(err, errno, "ask for the supervisor's pid");
    r = pidfd_open_pid(cred.pid, ret, err);
    if (r < 0)
        return r;
    if (supervisors_peer_gone(sock)) {
        *ret = fd_close(*ret);
        return err_set(err, ERR_NOT_FOUND, "the supervisor has ended");
    }
    return 0;
}

static int supervisors_wait_end(int pidfd, const char *id, const struct deadline *by,
                                struct err *err)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int r;

    do
        r = poll(&p, 1, deadline_ms(by));
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return err_set(err, ERR_TIMEOUT, "the supervisor of sandbox '%s' did not end after SIGKILL",
                       id);
    return 0;
}

static int supervisors_end_child(pid_t pid, const char *id, const struct deadline *by,
                                 struct err *err)
{
    _cleanup_close_ int pidfd = -1;
    int r;

    if (waitpid(pid, NULL, WNOHANG) == pid)
        return 0;
    r = pidfd_open_pid(pid, &pidfd, err);
    if (r < 0)
        return r;
    pidfd_signal(pidfd, SIGKILL);
    r = supervisors_wait_end(pidfd, id, by, err);
    if (r < 0)
        return r;
    waitpid(pid, NULL, 0);
    return r;
}

static int supervisors_end_peer(const struct supervisors *s, const char *id,
                                const struct deadline *by, struct err *err)
{
    _cleanup_close_ int sock = -1, pidfd = -1;
    int r;

    r = supervisors_dial(s, id, &sock, err);
    if (r < 0)
        return r;
    r = supervisors_peer_pidfd(sock, &pidfd, err);
    if (r < 0)
        return r;
    pidfd_signal(pidfd, SIGKILL);
    return supervisors_wait_end(pidfd, id, by, err);
}

int supervisors_end(struct supervisors *s, const char *id, const struct deadline *by,
                    struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    pid_t pid;
    int r;

    pthread_mutex_lock(&s->lock);
    pid = (pid_t)(intptr_t)map_remove(&s->children, id);
    pthread_mutex_unlock(&s->lock);
    r = pid ? supervisors_end_child(pid, id, by, &why) : supervisors_end_peer(s, id, by, &why);
    if (r < 0 && pid)
        supervisors_add(s, id, pid); /* we still have to reap it */
    return r < 0 && r != -ERR_NOT_FOUND ? err_move(err, &why) : 0;
}
