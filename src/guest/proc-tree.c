#include "guest/proc-tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"
#include "lib/os/pidfd.h"

enum {
    PROCS_MAX = 1 << 16, /* per scan; the next scan meets the rest */
    STAT_SIZE = 1024,
    STOP_LOOKS = 32,
    LOST_LOOKS = 2000,
    LOST_PAUSE_NSEC = 1000000,
};

struct proc {
    pid_t pid, ppid;
    uint64_t start; /* pid and start time together identify a process */
    char state;
    bool chosen;
};

struct procs {
    struct proc *v; /* owned */
    size_t n, room;
};

#define _cleanup_procs_ _cleanup_(proc_tree_procs_done)

static void proc_tree_procs_done(struct procs *p)
{
    free(p->v);
}

/* ---- scanning ---- */

/* The name may contain blanks and parentheses; the last ')' ends it. The fields after it: state,
 * ppid, and as the 22nd of proc(5) the start time. */
static bool proc_tree_parse_stat(char *text, struct proc *ret)
{
    char *p = strrchr(text, ')'), *word;

    if (!p || p[1] != ' ')
        return false;
    p += 2;
    for (int field = 3; field <= 22; field++) {
        word = strsep(&p, " ");
        if (!word || !*word)
            return false;
        if (field == 3)
            ret->state = *word;
        else if (field == 4)
            ret->ppid = (pid_t)strtol(word, NULL, 10);
        else if (field == 22)
            ret->start = strtoull(word, NULL, 10);
    }
    return true;
}

static bool proc_tree_read_proc(int proc, pid_t pid, struct proc *ret)
{
    char path[32], text[STAT_SIZE];
    _cleanup_close_ int fd = -1;
    ssize_t n;

    snprintf(path, sizeof(path), "%d/stat", (int)pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    *ret = (struct proc){.pid = pid};
    return proc_tree_parse_stat(text, ret);
}

static int proc_tree_by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct proc *)a)->pid, y = ((const struct proc *)b)->pid;

    return (x > y) - (x < y);
}

static void proc_tree_scan(DIR *dir, struct procs *p)
{
    struct proc one;

    p->n = 0;
    rewinddir(dir);
    for (const struct dirent *e; (e = readdir(dir)) && p->n < PROCS_MAX;) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);

        if (pid <= 0 || !proc_tree_read_proc(dirfd(dir), pid, &one))
            continue;
        if (p->n == p->room) {
            p->room = p->room ? p->room * 2 : 64;
            p->v = xreallocarray(p->v, p->room, sizeof(*p->v));
        }
        p->v[p->n++] = one;
    }
    if (p->n)
        qsort(p->v, p->n, sizeof(*p->v), proc_tree_by_pid);
}

/* ---- choosing ---- */

static bool proc_tree_is_chosen(const struct procs *p, pid_t pid)
{
    const struct proc key = {.pid = pid},
                      *x = bsearch(&key, p->v, p->n, sizeof(*p->v), proc_tree_by_pid);

    return x && x->chosen;
}

/* Chooses also the children of chosen processes and of `root`. Children mostly have higher pids, so
 * one pass finds nearly all of them. */
static void proc_tree_choose_below(struct procs *p, pid_t root)
{
    bool more = true;

    while (more) {
        more = false;
        for (size_t i = 0; i < p->n; i++) {
            struct proc *x = &p->v[i];

            if (!x->chosen && (x->ppid == root || proc_tree_is_chosen(p, x->ppid)))
                more = x->chosen = true;
        }
    }
}

static bool proc_tree_is_dead(const struct proc *x)
{
    return x->state == 'Z' || x->state == 'X';
}

static bool proc_tree_runs(const struct proc *x)
{
    return !proc_tree_is_dead(x) && x->state != 'T' && x->state != 't';
}

/* ---- signalling ---- */

/* We compare the start time after we have opened the pidfd: if the pid was reused, no process is
 * hit. Without pidfds the signal goes to the pid. */
static bool proc_tree_signal_one(int proc, const struct proc *x, int sig)
{
    _cleanup_close_ int pidfd = -1;
    struct proc now;
    int r;

    pidfd_open_pid(x->pid, &pidfd, NULL);
    if (!proc_tree_read_proc(proc, x->pid, &now) || now.start != x->start)
        return false;
    r = pidfd >= 0 ? pidfd_signal(pidfd, sig) : -ENOSYS;
    if (r == -ENOSYS || r == -EPERM)
        r = kill(x->pid, sig) < 0 ? -errno : 0;
    return r == 0;
}

static size_t proc_tree_signal_chosen(int proc, const struct procs *p, int sig)
{
    size_t met = 0;

    for (size_t i = 0; i < p->n; i++) {
        const struct proc *x = &p->v[i];

        if (x->chosen && (sig == SIGSTOP ? proc_tree_runs(x) : !proc_tree_is_dead(x)))
            met += proc_tree_signal_one(proc, x, sig);
    }
    return met;
}

/* ---- the caller's own tree ---- */

/*
 * A stopped process cannot fork, and still counts against the process limit. So repeated scans
 * catch up with any fork bomb; killing at once would make room for new processes.
 */
bool proc_tree_kill_own(void)
{
    _cleanup_procs_ struct procs p = {0};
    _cleanup_closedir_ DIR *dir = opendir("/proc");
    size_t running = 1;

    if (!dir)
        return false;
    for (int i = 0; i < STOP_LOOKS && running; i++) {
        proc_tree_scan(dir, &p);
        proc_tree_choose_below(&p, getpid());
        running = proc_tree_signal_chosen(dirfd(dir), &p, SIGSTOP);
    }
    proc_tree_signal_chosen(dirfd(dir), &p, SIGKILL);
    return true;
}

/* ---- every process ---- */

static bool proc_tree_init_is_ours(void)
{
    char text[STAT_SIZE], *open_, *close_;
    _cleanup_close_ int fd = open("/proc/1/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (n <= 0)
        return false;
    text[n] = '\0';
    open_ = strchr(text, '(');
    close_ = strrchr(text, ')');
    if (!open_ || !close_)
        return false;
    *close_ = '\0';
    return STREQ(open_ + 1, PROC_TREE_INIT_NAME);
}

void proc_tree_kill_everybody(void)
{
    if (proc_tree_init_is_ours())
        kill(-1, SIGKILL);
}

/* ---- processes without a guest ---- */

static bool proc_tree_is_given(const pid_t *guests, size_t n, const struct proc *x)
{
    if (x->ppid != 0) /* not a guest: the parent of a guest is the engine, outside */
        return false;
    for (size_t i = 0; i < n; i++)
        if (guests[i] == x->pid && x->pid != getpid() && x->pid != 1)
            return true;
    return false;
}

int proc_tree_kill_lost(const pid_t *guests, size_t n, size_t *ret, struct err *err)
{
    const struct timespec pause = {.tv_nsec = LOST_PAUSE_NSEC};
    _cleanup_procs_ struct procs p = {0};
    _cleanup_closedir_ DIR *dir = opendir("/proc");
    size_t killed = 0, met = 0;

    if (!dir)
        return err_sys(err, errno, "open '/proc'");
    if (!proc_tree_init_is_ours())
        return err_set(err, ERR_DENIED, "pid 1 is not ripcord-guest; no process was killed");
    for (int i = 0; i < LOST_LOOKS; i++) {
        proc_tree_scan(dir, &p);
        for (size_t k = 0; k < p.n; k++)
            p.v[k].chosen = proc_tree_is_given(guests, n, &p.v[k]);
        proc_tree_choose_below(&p, 1);
        if (proc_tree_signal_chosen(dirfd(dir), &p, SIGSTOP) && i % STOP_LOOKS != STOP_LOOKS - 1)
            continue;
        met = proc_tree_signal_chosen(dirfd(dir), &p, SIGKILL);
        if (met == 0) {
            *ret = killed;
            return 0;
        }
        killed += met;
        nanosleep(&pause, NULL);
    }
    return err_set(err, ERR_TIMEOUT, "%zu processes survive SIGKILL", met);
}
