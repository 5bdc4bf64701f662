/*
 * A sandbox's supervisor after its start: finding it, ending it, sweeping up behind it.
 *
 * Who the supervisor is, is never taken from a remembered number. A shim that we started is our
 * child, and its pid stays its own until we reap it; any other is the peer of its socket, asked
 * from the kernel while the connection stands.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fd.h"
#include "base/log.h"
#include "engine/handshake.h"
#include "engine/native/native.h"
#include "shim/proto.h"
#include "engine/native/trash.h"
#include "os/cgroup.h"
#include "os/pidfd.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* linux 6.5 */
#endif

static void lock(struct native_engine *n)
{
    pthread_mutex_lock(&n->lock);
}

static void unlock(struct native_engine *n)
{
    pthread_mutex_unlock(&n->lock);
}

void native_child_add(struct native_engine *n, const char *id, pid_t pid)
{
    lock(n);
    map_remove(&n->children, id);
    map_add(&n->children, id, (void *)(intptr_t)pid);
    unlock(n);
}

static pid_t child_take(struct native_engine *n, const char *id)
{
    pid_t pid;

    lock(n);
    pid = (pid_t)(intptr_t)map_remove(&n->children, id);
    unlock(n);
    return pid;
}

/* A connected, non-blocking socket; ERR_NOT_FOUND when nobody listens. */
static int dial(struct native_engine *n, const char *id, int *ret, struct err *err)
{
    _cleanup_close_ int dir = -1;
    _cleanup_err_ struct err why = ERR_INIT;

    if (dir_open(n->runs, id, &dir, &why) >= 0 &&
        unix_connect(dir, SHIM_SOCKET, SOCK_SEQPACKET | SOCK_NONBLOCK, ret, &why) >= 0)
        return 0;
    if (why.errnum == ENOENT || why.errnum == ECONNREFUSED)
        return err_set(err, ERR_NOT_FOUND, "no supervisor of sandbox '%s' lives", id);
    if (why.errnum == EAGAIN)
        return err_set(err, ERR_TIMEOUT, "the supervisor of sandbox '%s' takes no connection", id);
    return err_move(err, &why);
}

int native_connect(struct engine *e, const char *id, const struct deadline *by,
                   struct engine_box *ret, struct err *err)
{
    struct engine_box box = {.link_fd = -1};
    _cleanup_close_ int fd = -1;
    int r;

    r = dial(native_of(e), id, &fd, err);
    if (r < 0)
        return r;
    r = handshake_hello(fd, id, by, &box, err);
    if (r == -ERR_ENGINE) {
        /* It closed instead of answering: it was about to end. */
        err_done(err);
        return err_set(err, ERR_NOT_FOUND, "the supervisor of sandbox '%s' has just ended", id);
    }
    if (r < 0)
        return err_wrap(err, "connect to sandbox '%s'", id);
    snprintf(box.id, sizeof(box.id), "%s", id);
    box.link_fd = TAKE_FD(fd);
    *ret = box;
    return 0;
}

/* ---- ending it ---- */

static bool peer_gone(int sock)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

/*
 * The process that listens at the other end. Before linux 6.5 there is only its pid: while the line
 * stands after the pidfd is open, the number was still its own.
 */
static int peer_pidfd(int sock, int *ret, struct err *err)
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
    if (peer_gone(sock)) {
        *ret = fd_close(*ret);
        return err_set(err, ERR_NOT_FOUND, "the supervisor has ended");
    }
    return 0;
}

static int wait_end(int pidfd, const char *id, const struct deadline *by, struct err *err)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int r;

    do
        r = poll(&p, 1, deadline_ms(by));
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return err_set(err, ERR_TIMEOUT, "the supervisor of sandbox '%s' does not die", id);
    return 0;
}

static int end_child(pid_t pid, const char *id, const struct deadline *by, struct err *err)
{
    _cleanup_close_ int pidfd = -1;
    int r;

    if (waitpid(pid, NULL, WNOHANG) == pid)
        return 0;
    r = pidfd_open_pid(pid, &pidfd, err);
    if (r < 0)
        return r;
    pidfd_signal(pidfd, SIGKILL);
    r = wait_end(pidfd, id, by, err);
    if (r >= 0)
        waitpid(pid, NULL, 0);
    return r;
}

static int end_stranger(struct native_engine *n, const char *id, const struct deadline *by,
                        struct err *err)
{
    _cleanup_close_ int sock = -1, pidfd = -1;
    int r;

    r = dial(n, id, &sock, err);
    if (r >= 0)
        r = peer_pidfd(sock, &pidfd, err);
    if (r < 0)
        return r;
    pidfd_signal(pidfd, SIGKILL);
    return wait_end(pidfd, id, by, err);
}

static int end_supervisor(struct native_engine *n, const char *id, const struct deadline *by,
                          struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    pid_t pid = child_take(n, id);
    int r;

    r = pid ? end_child(pid, id, by, &why) : end_stranger(n, id, by, &why);
    if (r < 0 && pid)
        native_child_add(n, id, pid); /* still ours to reap */
    return r < 0 && r != -ERR_NOT_FOUND ? err_move(err, &why) : 0;
}

static void nap(void)
{
    const struct timespec ms = {.tv_nsec = 2000000};

    nanosleep(&ms, NULL);
}

/* Killed processes leave their cgroups a little later: until the deadline, try again. */
static int sweep_cgroups(struct native_engine *n, const char *id, const struct deadline *by,
                         struct err *err)
{
    for (;;) {
        _cleanup_err_ struct err why = ERR_INIT;

        if (cgroup_sweep(NATIVE_CGROUP_PARENT, n->root_id, id, &why) >= 0)
            return 0;
        if (deadline_passed(by))
            return err_move(err, &why);
        nap();
    }
}

void native_tidy_network(struct native_engine *n, const struct deadline *by)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (network_tidy(&n->net, by, &err) < 0)
        log_debug("network: %s", err.msg);
}

int native_cleanup(struct engine *e, const char *id, const struct deadline *by, struct err *err)
{
    struct native_engine *n = native_of(e);
    int r;

    r = end_supervisor(n, id, by, err);
    if (r >= 0)
        r = sweep_cgroups(n, id, by, err);
    if (r >= 0)
        r = trash_throw(n->trash, n->runs, id, err);
    native_tidy_network(n, by);
    return r < 0 ? err_wrap(err, "clean up sandbox '%s'", id) : 0;
}
