/*
 * A child reports its result in a fixed struct in shared memory. The parent checks that struct like
 * all other data from the child.
 */
#include "image/archive/confined.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/xalloc.h"
#include "lib/os/caps.h"
#include "lib/os/confine.h"
#include "lib/os/landlock.h"
#include "lib/os/mount.h"
#include "lib/os/ns.h"
#include "lib/os/pidfd.h"
#include "lib/os/rlimit.h"
#include "lib/os/rmtree.h"

enum { FILES_MAX = 64, TREE_FILES_MAX = 512, IDS = 65536, PIECE = 256 << 10 };

/* xz allows windows of up to 1.5 GiB; those of images need 64 MiB. */
#define MEMORY_MAX GIB(1)

struct confined_result {
    int code; /* enum err_code; ERR_CODE_MAX: the child has not finished */
    int errnum;
    char msg[1024], hint[256];
    char out[CONFINED_OUT_MAX];
};

/* clang-format off */
/* For every child: reading and writing its descriptors, and what libc needs. */
static const int calls_bytes[] = {
    SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_close, SYS_lseek, SYS_fcntl, SYS_fstat, SYS_newfstatat,
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_getrandom, SYS_clock_gettime,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_restart_syscall, SYS_exit, SYS_exit_group,
    SYS_getpid, SYS_gettid, SYS_tgkill, /* abort() */
};
/* Also for a child with a folder. */
static const int calls_files[] = {
    SYS_ftruncate, SYS_openat, SYS_openat2, SYS_statx, SYS_getdents64, SYS_mkdirat, SYS_mknodat, SYS_symlinkat, SYS_linkat,
    SYS_unlinkat, SYS_fchmod, SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_fsetxattr,
    SYS_flistxattr, SYS_fgetxattr, SYS_fremovexattr, SYS_readlinkat,
};
/* clang-format on */

#define CAPS_FILES                                                                                 \
    (CAPS_BIT(CAP_CHOWN) | CAPS_BIT(CAP_DAC_OVERRIDE) | CAPS_BIT(CAP_FOWNER) | CAPS_BIT(CAP_FSETID))

/* ---- in the child ---- */

static bool confined_is_kept(const struct confined_job *job, int fd)
{
    for (size_t i = 0; i < job->n_fds; i++)
        if (job->fds[i] == fd)
            return true;
    return false;
}

/* The parent's stdout carries its answer: a child must not write there. */
static int confined_replace_stdio(const struct confined_job *job)
{
    _cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 0; fd < 3; fd++)
        if (!confined_is_kept(job, fd) && (null < 0 || dup2(null, fd) < 0))
            return -1;
    return 0;
}

static int confined_close_others(const struct confined_job *job)
{
    unsigned next = 3;

    for (;;) {
        int least = -1;

        for (size_t i = 0; i < job->n_fds; i++)
            if (job->fds[i] >= (int)next && (least < 0 || job->fds[i] < least))
                least = job->fds[i];
        if (least < 0)
            return (int)syscall(SYS_close_range, next, ~0U, 0);
        if (least > (int)next && syscall(SYS_close_range, next, least - 1, 0) < 0)
            return -1;
        next = (unsigned)least + 1;
    }
}

static int confined_limit_self(rlim_t files, struct err *err)
{
    int r;

    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    r = rlimit_set(RLIMIT_CORE, 0, 0, err);
    if (r < 0)
        return r;
    r = rlimit_set(RLIMIT_NOFILE, files, files, err);
    if (r < 0)
        return r;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    r = rlimit_set(RLIMIT_AS, MEMORY_MAX, MEMORY_MAX, err);
    if (r < 0)
        return r;
#endif
    return 0;
}

/* The working folder is mounted on itself and becomes "/"; all other mounts are detached. */
static int confined_enter_folder(struct err *err)
{
    _cleanup_close_ int tree = -1, dir = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r;

    if (dir < 0)
        return err_sys(err, errno, "open the root folder");
    r = mount_make_private(err);
    if (r < 0)
        return r;
    r = mount_clone(dir, "", MOUNT_SAFE | MOUNT_RECURSIVE, &tree, err);
    if (r < 0)
        return r;
    r = mount_set(tree, MOUNT_SAFE | MOUNT_NOEXEC, -1, err);
    if (r < 0)
        return r;
    r = mount_attach(tree, dir, "", err);
    if (r < 0)
        return r;
    return mount_pivot(tree, err);
}

static int confined_allow_calls(bool files, struct err *err)
{
    int calls[ARRAY_SIZE(calls_bytes) + ARRAY_SIZE(calls_files)];

    memcpy(calls, calls_bytes, sizeof(calls_bytes));
    memcpy(calls + ARRAY_SIZE(calls_bytes), calls_files, sizeof(calls_files));
    return confine_to(calls, files ? ARRAY_SIZE(calls) : ARRAY_SIZE(calls_bytes), false, err);
}

/* The order matters: each guard takes away rights that the ones before it need. */
static int confined_set_guards(const struct confined_job *job, int *root, struct err *err)
{
    uint64_t keep = job->dir >= 0 ? CAPS_FILES : CAPS_NONE;
    int r;

    if (GUARD("stdio") && confined_replace_stdio(job) < 0)
        return err_sys(err, errno, "open '/dev/null'");
    if (job->dir >= 0 && GUARD("root")) {
        r = confined_enter_folder(err);
        if (r < 0)
            return r;
    }
    if (GUARD("descriptors") && confined_close_others(job) < 0)
        return err_sys(err, errno, "close descriptors");
    if (job->dir >= 0) {
        r = dir_open(AT_FDCWD, "/", root, err);
        if (r < 0)
            return r;
    }
    if (GUARD("rlimits")) {
        r = confined_limit_self(job->trees ? TREE_FILES_MAX : FILES_MAX, err);
        if (r < 0)
            return r;
    }
    if (GUARD("capabilities")) {
        r = caps_bound(keep, err);
        if (r < 0)
            return r;
        r = caps_set(keep, err);
        if (r < 0)
            return r;
    }
    if (GUARD("landlock")) {
        r = landlock_confine(job->dir >= 0 ? "/" : NULL, 0, err);
        if (r < 0)
            return r;
    }
    return GUARD("seccomp") ? confined_allow_calls(job->dir >= 0, err) : 0;
}

static int confined_run(const struct confined_job *job, void *out, struct err *err)
{
    int root = -1, r;

    r = job->prepare ? job->prepare(job->arg, err) : 0;
    if (r < 0)
        return err_wrap(err, "confine a helper process");
    r = confined_set_guards(job, &root, err);
    if (r < 0)
        return err_wrap(err, "confine a helper process");
    return job->fn(job->arg, root, out, err);
}

static _noreturn_ void confined_child(const struct confined_job *job, int go,
                                      struct confined_result *w)
{
    struct err err = ERR_INIT;
    char byte;
    int r;

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (read(go, &byte, 1) != 1)
        _exit(1);
    r = confined_run(job, w->out, &err);
    snprintf(w->msg, sizeof(w->msg), "%s", err.msg ? err.msg : "");
    snprintf(w->hint, sizeof(w->hint), "%s", err.hint ? err.hint : "");
    w->errnum = err.errnum;
    w->code = (int)err.code;
    _exit(r < 0);
}

/* ---- in the parent ---- */

static int confined_write_maps(pid_t pid, const struct confined_ids *ids, struct err *err)
{
    const struct ns_map all = {0, 0, IDS, NULL};
    const struct ns_map uid = {0, geteuid(), 1, NULL}, gid = {0, getegid(), 1, NULL};

    switch (ids->kind) {
    case CONFINED_RANGE:
        return ns_write_maps(pid, &all, &all, false, err);
    case CONFINED_SUB:
        return submap_write(pid, &ids->sub, err);
    case CONFINED_OWN:
        break;
    }
    return ns_write_maps(pid, &uid, &gid, true, err);
}

static int confined_make_result(struct confined_result **ret, struct err *err)
{
    struct confined_result *w =
        mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (w == MAP_FAILED)
        return err_sys(err, errno, "share memory with a helper process");
    w->code = ERR_CODE_MAX;
    *ret = w;
    return 0;
}

/*
 * A descriptor belongs to the mount on which it was opened, and a new mount namespace cannot use
 * that mount. Only the working folder is carried over, so the child starts in its folder.
 */
static pid_t confined_clone_in(int dir, uint64_t flags, int *pidfd)
{
    _cleanup_close_ int back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    pid_t pid;

    if (back < 0 || (dir >= 0 && fchdir(dir) < 0))
        return -errno;
    pid = ns_clone(flags, -1, pidfd);
    if (pid != 0 && fchdir(back) < 0)
        return -errno;
    return pid;
}

static uint64_t confined_namespaces(void)
{
    static const struct {
        uint64_t flag;
        const char *guard;
    } some[] = {{CLONE_NEWPID, "pids"}, {CLONE_NEWNET, "network"}, {CLONE_NEWIPC, "ipc"}};
    uint64_t flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS;

    for (size_t i = 0; i < ARRAY_SIZE(some); i++)
        if (GUARD(some[i].guard))
            flags |= some[i].flag;
    return flags;
}

/* Fills *c as far as it gets. */
static int confined_launch(const struct confined_job *job, const struct confined_ids *ids,
                           struct confined *c, struct err *err)
{
    _cleanup_close_ int go = -1, go_in = -1;
    int p[2], r;
    pid_t pid;

    r = confined_make_result(&c->result, err);
    if (r < 0)
        return r;
    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "create a pipe");
    go = p[0];
    go_in = p[1];
    pid = confined_clone_in(job->dir, confined_namespaces(), &c->pidfd);
    if (pid == 0) {
        close(go_in); /* else the child would not see the end of the pipe when the parent dies */
        confined_child(job, go, c->result);
    }
    if (pid < 0)
        return err_sys(err, -pid, "create namespaces for a helper process");
    r = confined_write_maps(pid, ids, err);
    if (r < 0)
        return r;
    if (write(go_in, "g", 1) != 1)
        return err_sys(err, errno, "start a helper process");
    return 0;
}

int confined_start(const struct confined_job *job, const struct confined_ids *ids,
                   struct confined *ret, struct err *err)
{
    struct confined c = CONFINED_INIT;
    int r = confined_launch(job, ids, &c, err);

    if (r < 0) {
        confined_done(&c);
        return r;
    }
    *ret = c;
    return 0;
}

int confined_start_piped(struct confined_job *job, bool reads, int *its,
                         const struct confined_ids *ids, struct confined *ret, int *ret_fd,
                         struct err *err)
{
    _cleanup_close_ int ours = -1;
    int p[2], r;

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "create a pipe");
    (void)fcntl(p[1], F_SETPIPE_SZ, PIECE);
    ours = p[reads ? 1 : 0];
    *its = job->fds[job->n_fds++] = p[reads ? 0 : 1];
    r = confined_start(job, ids, ret, err);
    fd_close(*its);
    if (r < 0)
        return r;
    *ret_fd = TAKE_FD(ours);
    return 0;
}

int confined_drain(int fd, confined_put_fn put, void *to, char digest[static DIGEST_MAX],
                   struct err *err)
{
    _cleanup_free_ char *buf = xmalloc(PIECE);
    struct digest_state *d = digest_begin();
    int r = 0;

    while (r == 0) {
        ssize_t n = read(fd, buf, PIECE);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            r = err_sys(err, errno, "read from a helper process");
        if (n <= 0)
            break;
        digest_add(d, buf, (size_t)n);
        if (put)
            r = put(to, buf, (size_t)n, err);
    }
    digest_end(d, digest);
    return r;
}

static int confined_check_result(const struct confined_result *w, int status, struct err *err)
{
    struct confined_result said = *w; /* one copy: the child's memory can still change */

    said.msg[sizeof(said.msg) - 1] = said.hint[sizeof(said.hint) - 1] = '\0';
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && said.code == ERR_NONE)
        return 0;
    if (WIFSIGNALED(status))
        return err_set(err, ERR_INVALID, "the helper process was killed by signal %d",
                       WTERMSIG(status));
    if (said.code <= ERR_NONE || said.code >= ERR_CODE_MAX)
        return err_set(err, ERR_SYSTEM, "the helper process ended without a result");
    err_set(err, (enum err_code)said.code, "%s", said.msg);
    if (err)
        err->errnum = said.errnum;
    return *said.hint ? err_hint(err, "%s", said.hint) : -said.code;
}

int confined_wait(struct confined *c, void *out, size_t out_len, struct err *err)
{
    int status = 0, r;

    r = pidfd_reap(c->pidfd, true, &status, NULL);
    if (r < 0)
        return err_sys(err, -r, "wait for a helper process");
    c->pidfd = fd_close(c->pidfd);
    r = confined_check_result(c->result, status, err);
    if (r < 0)
        return r;
    if (out)
        memcpy(out, c->result->out, MIN(out_len, sizeof(c->result->out)));
    return 0;
}

void confined_done(struct confined *c)
{
    if (c->pidfd >= 0) {
        pidfd_signal(c->pidfd, SIGKILL);
        pidfd_reap(c->pidfd, true, NULL, NULL);
        c->pidfd = fd_close(c->pidfd);
    }
    if (c->result)
        munmap(c->result, sizeof(*c->result));
    c->result = NULL;
}

/* ---- removal ---- */

struct confined_removal {
    int dirfd;
    const char *name;
};

static int confined_remove_mapped(void *arg)
{
    const struct confined_removal *m = arg;

    return rmtree(m->dirfd, m->name, NULL) < 0;
}

int confined_remove(const struct confined_ids *ids, int dirfd, const char *name, struct err *err)
{
    struct confined_removal m = {dirfd, name};
    _cleanup_err_ struct err why = ERR_INIT;
    int r = rmtree(dirfd, name, &why);

    if (r >= 0)
        return 0;
    if (ids->kind != CONFINED_SUB)
        return err_move(err, &why);
    r = submap_run(&ids->sub, confined_remove_mapped, &m, err);
    return r > 0 ? err_move(err, &why) : r;
}
