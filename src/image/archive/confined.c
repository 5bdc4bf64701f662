/*
 * See confined.h. What a child tells is a fixed struct in shared memory, which is checked like
 * everything else that comes from it.
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

/* A window of xz can be 1.5 GiB; what images hold needs 64 MiB. */
#define MEMORY_MAX GIB(1)

struct confined_word {
    int code; /* enum err_code; ERR_CODE_MAX: it has not come to an end */
    int errnum;
    char msg[1024], hint[256];
    char out[CONFINED_OUT_MAX];
};

/* clang-format off */
/* For all: bytes of the descriptors that it has, and libc itself. */
static const int calls_bytes[] = {
    SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_close, SYS_lseek, SYS_fcntl, SYS_fstat, SYS_newfstatat,
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_getrandom, SYS_clock_gettime,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_restart_syscall, SYS_exit, SYS_exit_group,
    SYS_getpid, SYS_gettid, SYS_tgkill, /* abort() */
};
/* For those with a folder, too. */
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

/* Our own stdout is what our caller believes. */
static int confined_hush(const struct confined_job *job)
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
    if (r >= 0)
        r = rlimit_set(RLIMIT_NOFILE, files, files, err);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (r >= 0)
        r = rlimit_set(RLIMIT_AS, MEMORY_MAX, MEMORY_MAX, err);
#endif
    return r;
}

/* The working folder becomes "/", mounted on itself, and all else is let go. */
static int confined_enter_folder(struct err *err)
{
    _cleanup_close_ int tree = -1, dir = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r;

    if (dir < 0)
        return err_sys(err, errno, "open the root folder");
    r = mount_make_private(err);
    if (r >= 0)
        r = mount_clone(dir, "", MOUNT_SAFE | MOUNT_RECURSIVE, &tree, err);
    if (r >= 0)
        r = mount_set(tree, MOUNT_SAFE | MOUNT_NOEXEC, -1, err);
    if (r >= 0)
        r = mount_attach(tree, dir, "", err);
    if (r >= 0)
        r = mount_pivot(tree, err);
    return r;
}

static int confined_allow_calls(bool files, struct err *err)
{
    int calls[ARRAY_SIZE(calls_bytes) + ARRAY_SIZE(calls_files)];

    memcpy(calls, calls_bytes, sizeof(calls_bytes));
    memcpy(calls + ARRAY_SIZE(calls_bytes), calls_files, sizeof(calls_files));
    return confine_to(calls, files ? ARRAY_SIZE(calls) : ARRAY_SIZE(calls_bytes), false, err);
}

static int confined_wall_in(const struct confined_job *job, int *root, struct err *err)
{
    uint64_t keep = job->dir >= 0 ? CAPS_FILES : CAPS_NONE;
    int r = job->prepare ? job->prepare(job->arg, err) : 0;

    if (r >= 0 && GUARD("stdio") && confined_hush(job) < 0)
        r = err_sys(err, errno, "open '/dev/null'");
    if (r >= 0 && job->dir >= 0 && GUARD("root"))
        r = confined_enter_folder(err);
    if (r >= 0 && GUARD("descriptors") && confined_close_others(job) < 0)
        r = err_sys(err, errno, "close descriptors");
    if (r >= 0 && job->dir >= 0)
        r = dir_open(AT_FDCWD, "/", root, err);
    if (r >= 0 && GUARD("rlimits"))
        r = confined_limit_self(job->trees ? TREE_FILES_MAX : FILES_MAX, err);
    if (r >= 0 && GUARD("capabilities"))
        r = caps_bound(keep, err);
    if (r >= 0 && GUARD("capabilities"))
        r = caps_set(keep, err);
    if (r >= 0 && GUARD("landlock"))
        r = landlock_confine(job->dir >= 0 ? "/" : NULL, 0, err);
    if (r >= 0 && GUARD("seccomp"))
        r = confined_allow_calls(job->dir >= 0, err);
    return r;
}

static void confined_tell(struct confined_word *w, const struct err *err)
{
    snprintf(w->msg, sizeof(w->msg), "%s", err->msg ? err->msg : "");
    snprintf(w->hint, sizeof(w->hint), "%s", err->hint ? err->hint : "");
    w->errnum = err->errnum;
    w->code = (int)err->code;
}

static _noreturn_ void confined_child(const struct confined_job *job, int go,
                                      struct confined_word *w)
{
    struct err err = ERR_INIT;
    int root = -1, r;
    char byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (read(go, &byte, 1) != 1)
        _exit(1);
    r = confined_wall_in(job, &root, &err);
    if (r < 0)
        err_wrap(&err, "confine a helper process");
    else
        r = job->fn(job->arg, root, w->out, &err);
    confined_tell(w, &err);
    _exit(r < 0);
}

/* ---- in the parent ---- */

static int confined_write_maps(pid_t pid, const struct confined_ids *ids, struct err *err)
{
    const struct ns_map all = {0, 0, IDS};
    const struct ns_map uid = {0, geteuid(), 1}, gid = {0, getegid(), 1};

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

static int confined_make_word(struct confined_word **ret, struct err *err)
{
    struct confined_word *w =
        mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (w == MAP_FAILED)
        return err_sys(err, errno, "share memory with a helper process");
    w->code = ERR_CODE_MAX;
    *ret = w;
    return 0;
}

/*
 * A descriptor stays with the mount that it was opened on, which a new mount namespace cannot use;
 * the working folder is the one thing that comes along. So the child is born in its folder.
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

int confined_start(const struct confined_job *job, const struct confined_ids *ids,
                   struct confined *ret, struct err *err)
{
    struct confined c = CONFINED_INIT;
    _cleanup_close_ int go = -1, go_in = -1;
    int p[2], r;
    pid_t pid;

    r = confined_make_word(&c.word, err);
    if (r < 0)
        return r;
    if (pipe2(p, O_CLOEXEC) < 0) {
        r = err_sys(err, errno, "create a pipe");
        confined_done(&c);
        return r;
    }
    go = p[0];
    go_in = p[1];
    pid = confined_clone_in(job->dir, confined_namespaces(), &c.pidfd);
    if (pid == 0) {
        close(go_in); /* else its end would never be seen */
        confined_child(job, go, c.word);
    }
    r = pid < 0 ? err_sys(err, -pid, "create namespaces for a helper process")
                : confined_write_maps(pid, ids, err);
    if (r >= 0 && write(go_in, "g", 1) != 1)
        r = err_sys(err, errno, "start a helper process");
    if (r < 0)
        confined_done(&c);
    else
        *ret = c;
    return r;
}

int confined_start_piped(struct confined_job *job, bool reads, int *its,
                         const struct confined_ids *ids, struct confined *ret, int *ret_fd,
                         struct err *err)
{
    int p[2], r;

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "create a pipe");
    (void)fcntl(p[1], F_SETPIPE_SZ, PIECE);
    *its = job->fds[job->n_fds++] = p[reads ? 0 : 1];
    r = confined_start(job, ids, ret, err);
    fd_close(*its);
    if (r < 0)
        fd_close(p[reads ? 1 : 0]);
    else
        *ret_fd = p[reads ? 1 : 0];
    return r;
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

static int confined_judge(const struct confined_word *w, int status, struct err *err)
{
    struct confined_word said = *w; /* it may still be able to write there: once, and checked */

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
    r = confined_judge(c->word, status, err);
    if (r >= 0 && out)
        memcpy(out, c->word->out, MIN(out_len, sizeof(c->word->out)));
    return r;
}

void confined_done(struct confined *c)
{
    if (c->pidfd >= 0) {
        pidfd_signal(c->pidfd, SIGKILL);
        pidfd_reap(c->pidfd, true, NULL, NULL);
        c->pidfd = fd_close(c->pidfd);
    }
    if (c->word)
        munmap(c->word, sizeof(*c->word));
    c->word = NULL;
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

    if (r >= 0 || ids->kind != CONFINED_SUB)
        return r < 0 ? err_move(err, &why) : 0;
    r = submap_run(&ids->sub, confined_remove_mapped, &m, err);
    if (r > 0)
        return err_move(err, &why);
    return r;
}
