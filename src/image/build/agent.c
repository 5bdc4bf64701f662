#include "image/build/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image/build/agent-relay.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "lib/os/caps.h"
#include "lib/os/confine.h"

#define SOCKET_NAME "agent"

const char *agent_id(const struct dockerfile_mount *m)
{
    return m->id && *m->id ? m->id : "default";
}

/* ---- the agent's socket ---- */

struct agent_place {
    int dir;
    const char *name; /* borrowed from the path: the socket in dir */
    struct stat st;
};

#define PLACE_INIT                                                                                 \
    {                                                                                              \
        .dir = -1                                                                                  \
    }

static void agent_place_done(struct agent_place *p)
{
    fd_close(p->dir);
}
#define _cleanup_place_ __attribute__((cleanup(agent_place_done)))

static int agent_place_find(const char *path, struct agent_place *ret, struct err *err)
{
    int r = dir_open_above(path, &ret->dir, &ret->name, err);

    if (r < 0)
        return r;
    if (fstatat(ret->dir, ret->name, &ret->st, 0) < 0)
        return err_sys(err, errno, "stat '%.200s'", path);
    if (!S_ISSOCK(ret->st.st_mode))
        return err_set(err, ERR_INVALID, "'%.200s' is not a socket", path);
    return 0;
}

int agent_check(const char *id, const char *path, struct err *err)
{
    _cleanup_place_ struct agent_place p = PLACE_INIT;
    _cleanup_err_ struct err why = ERR_INIT;
    _cleanup_close_ int fd = -1;

    if (agent_place_find(path, &p, &why) >= 0 &&
        unix_connect(p.dir, p.name, SOCK_STREAM | SOCK_NONBLOCK, &fd, &why) >= 0)
        return 0;
    err_set(err, ERR_INVALID, "ssh agent '%.64s' does not answer at '%.200s': %s", id, path,
            why.msg);
    return err_hint(err, "Check it with `SSH_AUTH_SOCK=%.200s ssh-add -l`.", path);
}

/* ---- the relay ---- */

/*
 * The agent accepts only its own user. Root would be accepted too, but could do more than needed.
 */
static int agent_become_owner(const struct stat *st, struct err *err)
{
    if (st->st_uid != geteuid())
        return caps_become(st->st_uid, st->st_gid, err);
    (void)caps_bound(CAPS_NONE, NULL); /* fails for an ordinary user, who has none */
    return caps_set(CAPS_NONE, err);
}

static int agent_confine_relay(struct err *err)
{
    /* clang-format off */
    static const int calls[] = {
        SYS_read, SYS_close, SYS_ppoll, SYS_accept4, SYS_socket, SYS_connect, SYS_sendto,
#ifdef SYS_poll
        SYS_poll,
#endif
        SYS_mmap, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_futex, SYS_getrandom, SYS_restart_syscall,
        SYS_rt_sigreturn, SYS_exit, SYS_exit_group,
    };
    /* clang-format on */

    return confine_to(calls, ARRAY_SIZE(calls), false, err);
}

/* After the change of ids, because that clears the parent-death signal. */
static int agent_tie_to(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return -errno;
    return getppid() == parent ? 0 : -ESRCH;
}

enum { LISTENER_FD, STATUS_FD, N_FDS };

/* Closes all descriptors of the build, so that the relay holds neither connections nor locks. */
static int agent_keep_only(int listener, int status)
{
    if (dup2(listener, LISTENER_FD) < 0 || dup2(status, STATUS_FD) < 0 ||
        syscall(SYS_close_range, N_FDS, ~0U, 0) < 0)
        return -errno;
    return 0;
}

/* Drops all privileges, then tests that the agent can be reached without them. 0 or -errno. */
static int agent_prepare_relay(int listener, int status, const struct agent_place *at, pid_t parent)
{
    int r;

    if (fchdir(at->dir) < 0 || agent_become_owner(&at->st, NULL) < 0 || agent_tie_to(parent) < 0 ||
        agent_keep_only(listener, status) < 0 || agent_confine_relay(NULL) < 0)
        _exit(1); /* the parent sees the end of the status socket */
    r = agent_dial(at->name);
    if (r >= 0)
        fd_close(r);
    return MIN(r, 0);
}

_noreturn_ static void agent_be_relay(int listener, int status, const struct agent_place *at,
                                      pid_t parent)
{
    int r = agent_prepare_relay(listener, status, at, parent);

    (void)!send(STATUS_FD, &r, sizeof(r), MSG_NOSIGNAL);
    close(STATUS_FD);
    if (r >= 0)
        agent_relay(LISTENER_FD, at->name);
    _exit(1);
}

static int agent_start_relay(int listener, const struct agent_place *at, pid_t *ret,
                             struct err *err)
{
    pid_t self = getpid(), pid;
    int status[2], r = -EPERM;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, status) < 0)
        return err_sys(err, errno, "make a pair of sockets");
    pid = fork();
    if (pid == 0)
        agent_be_relay(listener, status[1], at, self);
    fd_close(status[1]);
    if (pid > 0 && fd_read_full(status[0], &r, sizeof(r)) != (ssize_t)sizeof(r))
        r = -EPERM;
    fd_close(status[0]);
    if (pid > 0 && r >= 0) {
        *ret = pid;
        return 0;
    }
    if (pid > 0)
        agent_end(pid);
    return err_sys(err, pid < 0 ? EAGAIN : -r, "connect to the ssh agent as its user %u",
                   at->st.st_uid);
}

/* ---- the command's socket ---- */

struct socket_owner {
    const char *path; /* in the workspace */
    uid_t uid;
    gid_t gid;
};

/* In a child, whose user namespace has the ids of the command's sandbox. */
static int agent_chown_socket(void *arg, int dir, struct err *err)
{
    const struct socket_owner *o = arg;

    if (fchownat(dir, o->path, o->uid, o->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "set the owner of the agent's socket");
    return 0;
}

static int agent_make_socket(struct workspace *w, const struct dockerfile_mount *m,
                             char **ret_source, int *ret_fd, struct err *err)
{
    _cleanup_free_ char *folder = NULL, *path = NULL;
    _cleanup_close_ int dir = -1, fd = -1;
    struct socket_owner o = {.uid = mount_number(m->uid, 10, 0),
                             .gid = mount_number(m->gid, 10, 0)};
    mode_t mode = mount_number(m->mode, 8, 0600) & 0777;
    int r;

    r = workspace_folder(w, 0700, &folder, err);
    if (r < 0)
        return r;
    r = dir_open(w->dir, folder, &dir, err);
    if (r < 0)
        return r;
    r = unix_listen(dir, SOCKET_NAME, SOCK_STREAM | SOCK_NONBLOCK, mode, &fd, err);
    if (r < 0)
        return r;
    path = xasprintf("%s/" SOCKET_NAME, folder);
    o.path = path;
    r = workspace_run(w, &(struct workspace_job){.fn = agent_chown_socket, .arg = &o}, err);
    if (r < 0)
        return r;
    *ret_source = xasprintf("%s/%s", w->path, path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int agent_serve(struct workspace *w, const struct dockerfile_mount *m, const char *path,
                       char **ret_source, pid_t *ret, struct err *err)
{
    _cleanup_place_ struct agent_place at = PLACE_INIT;
    _cleanup_free_ char *source = NULL;
    _cleanup_close_ int listener = -1;
    int r;

    r = agent_place_find(path, &at, err);
    if (r < 0)
        return r;
    r = agent_make_socket(w, m, &source, &listener, err);
    if (r < 0)
        return r;
    r = agent_start_relay(listener, &at, ret, err);
    if (r < 0)
        return r;
    *ret_source = TAKE_PTR(source);
    return 0;
}

int agent_start(struct workspace *w, const struct dockerfile_mount *m, const char *path,
                char **ret_source, pid_t *ret, struct err *err)
{
    if (agent_serve(w, m, path, ret_source, ret, err) < 0)
        return err_wrap(err, "ssh mount at '%.200s'", m->target);
    return 0;
}

void agent_end(pid_t pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
