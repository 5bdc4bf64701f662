/*
 * fault-inject kill|fault|malloc N NAME [+]PID
 * fault-inject kill|fault|malloc N NAME PROGRAM ARG...
 * fault-inject kill|fault|malloc @FILE NAME ...
 *
 * Traces process PID (with a plus also the processes that it started before), or PROGRAM from its
 * first call on, and all their new children. At the N-th system call of processes named NAME it
 * kills that process, or makes the call fail. `fault` counts only calls that can fail on a healthy
 * machine: files, mounts, processes, sockets. `malloc` counts allocations of programs that contain
 * alloc.c. With @FILE it takes not the N-th call but the first one at a site (site.h) that FILE
 * does not list yet, and adds the site to FILE.
 *
 * It prints "ready" when it traces, "done CALL" when it has injected the fault and detached, or
 * "idle" when all traced processes ended before that.
 *
 * x86-64 only: it changes registers to make a call fail.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc.h"
#include "lib/base/macro.h"
#include "site.h"

#ifdef __x86_64__

enum { SYSCALL_STOP = SIGTRAP | 0x80, NAME_SIZE = 32, SITES_MAX = 32768, NAMES = 64 };

/* Which of the calls that count is meant. */
struct aim {
    long left;        /* the last of so many */
    const char *file; /* or a new one: of places that are not here */
    uint64_t sites[SITES_MAX];
    size_t n_sites;
};

/* clang-format off */
static const struct { int nr, errnum; } breakable[] = {
    {SYS_openat, EMFILE}, {SYS_openat2, EMFILE}, {SYS_mkdirat, ENOSPC}, {SYS_symlinkat, ENOSPC}, {SYS_unlinkat, EIO},
    {SYS_renameat, EIO}, {SYS_renameat2, EIO}, {SYS_rename, EIO}, {SYS_fsync, EIO}, {SYS_fdatasync, EIO}, {SYS_ftruncate, ENOSPC},
    {SYS_write, ENOSPC}, {SYS_pwrite64, ENOSPC}, {SYS_writev, EIO}, {SYS_fsopen, EPERM}, {SYS_fsmount, EPERM}, {SYS_fsconfig, EINVAL},
    {SYS_move_mount, EPERM}, {SYS_open_tree, EPERM}, {SYS_mount_setattr, EPERM}, {SYS_mount, EPERM}, {SYS_umount2, EPERM}, {SYS_pivot_root, EPERM},
    {SYS_clone3, EAGAIN}, {SYS_clone, EAGAIN}, {SYS_vfork, EAGAIN}, {SYS_setns, EPERM}, {SYS_unshare, EPERM}, {SYS_socket, EMFILE},
    {SYS_socketpair, EMFILE}, {SYS_memfd_create, EMFILE}, {SYS_pipe2, EMFILE}, {SYS_sendmsg, ENOBUFS}, {SYS_accept4, EMFILE}, {SYS_dup3, EMFILE},
    {SYS_statx, EIO}, {SYS_fchown, EPERM}, {SYS_fchownat, EPERM}, {SYS_setresuid, EAGAIN}, {SYS_prctl, EINVAL}, {SYS_capset, EPERM},
};
/* clang-format on */

/* Names of tasks, because they are needed at every call. */
static struct {
    pid_t pid;
    char name[NAME_SIZE];
} names[NAMES];

static void read_name(pid_t pid, char ret[static NAME_SIZE])
{
    char path[NAME_SIZE + 16];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    ret[0] = '\0';
    f = fopen(path, "re");
    if (f && fgets(ret, NAME_SIZE, f))
        ret[strcspn(ret, "\n")] = '\0';
    if (f)
        fclose(f);
}

static bool is_named(pid_t pid, const char *name)
{
    const size_t i = (size_t)pid % NAMES;

    if (names[i].pid != pid) {
        names[i].pid = pid;
        read_name(pid, names[i].name);
    }
    return STREQ(names[i].name, name);
}

static void forget(void)
{
    memset(names, 0, sizeof(names));
    site_forget();
}

/* What is remembered of tasks is not true any more when this call has been made. */
static bool is_change(const struct __ptrace_syscall_info *info)
{
    switch (info->entry.nr) {
    case SYS_mmap:
    case SYS_mprotect:
        return info->entry.args[2] & PROT_EXEC;
    case SYS_munmap:
        return true;
    case SYS_prctl:
        return info->entry.args[0] == PR_SET_NAME;
    default:
        return false;
    }
}

static int errno_for(long nr)
{
    for (size_t i = 0; i < ARRAY_SIZE(breakable); i++)
        if (breakable[i].nr == nr)
            return breakable[i].errnum;
    return 0;
}

/* The call does not happen; what it returns is set when it would have ended. */
static void break_call(pid_t pid, int errnum)
{
    struct user_regs_struct regs;

    ptrace(PTRACE_GETREGS, pid, NULL, &regs);
    regs.orig_rax = (unsigned long long)-1;
    ptrace(PTRACE_SETREGS, pid, NULL, &regs);
    ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
    waitpid(pid, NULL, __WALL);
    ptrace(PTRACE_GETREGS, pid, NULL, &regs);
    regs.rax = (unsigned long long)-errnum;
    ptrace(PTRACE_SETREGS, pid, NULL, &regs);
}

static bool is_allocation(const struct __ptrace_syscall_info *info)
{
    return info->entry.nr == SYS_getrandom && info->entry.args[2] == ALLOC_MARK;
}

/* The error that the call gets; 0 when the call does not count, -1 for `kill`. An
 * allocation counts only for `malloc`. */
static int answer_for(const struct __ptrace_syscall_info *info, const char *what)
{
    if (STREQ(what, "malloc"))
        return is_allocation(info) ? ENOMEM : 0;
    if (is_allocation(info))
        return 0;
    return STREQ(what, "fault") ? errno_for((long)info->entry.nr) : -1;
}

static bool read_aim(const char *text, struct aim *ret)
{
    unsigned long long site;
    FILE *f;

    if (text[0] != '@') {
        ret->left = strtol(text, NULL, 10);
        return ret->left > 0;
    }
    ret->file = text + 1;
    f = fopen(ret->file, "a+e");
    while (f && ret->n_sites < SITES_MAX && fscanf(f, "%llx", &site) == 1)
        ret->sites[ret->n_sites++] = site;
    return f && fclose(f) == 0;
}

static bool is_meant(pid_t pid, const struct __ptrace_syscall_info *info, struct aim *aim)
{
    uint64_t site;
    FILE *f;

    if (!aim->file)
        return --aim->left <= 0;
    site = site_of(pid, info->entry.nr, info->instruction_pointer, info->stack_pointer);
    for (size_t i = 0; i < aim->n_sites; i++)
        if (aim->sites[i] == site)
            return false;
    f = fopen(aim->file, "ae");
    if (f) {
        fprintf(f, "%llx\n", (unsigned long long)site);
        fclose(f);
    }
    return true;
}

/* At a stop of a call: true when the deed is done. */
static bool inject(pid_t pid, const char *what, const char *name, struct aim *aim)
{
    struct __ptrace_syscall_info info;
    int answer;

    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return false;
    answer = answer_for(&info, what);
    if (!answer || !is_named(pid, name) || !is_meant(pid, &info, aim)) {
        if (is_change(&info))
            forget();
        return false;
    }
    if (answer > 0)
        break_call(pid, answer);
    else
        kill(pid, SIGKILL);
    printf("done %llu\n", (unsigned long long)info.entry.nr);
    fflush(stdout);
    return true;
}

static bool follow(pid_t pid)
{
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;

    return ptrace(PTRACE_SEIZE, pid, NULL, options) == 0 &&
           ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0;
}

/* It waits for us before it becomes the program; our stdout stays ours. */
static bool begin(char **argv)
{
    int go[2];
    pid_t pid;

    if (pipe2(go, O_CLOEXEC) < 0)
        return false;
    pid = fork();
    if (pid == 0) {
        char byte;
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        close(go[1]);
        if (null < 0 || dup2(null, STDOUT_FILENO) < 0 || read(go[0], &byte, 1) != 1)
            _exit(1);
        setsid();
        execv(argv[0], argv);
        _exit(1);
    }
    return pid > 0 && follow(pid) && write(go[1], "g", 1) == 1 && close(go[1]) == 0;
}

static bool follow_all(const char *pid, bool children);

/* The processes that it started before: prewarmed shims and their descendants. */
static void follow_children(long pid, long task)
{
    char path[64], child[16];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", pid, task);
    f = fopen(path, "re");
    while (f && fscanf(f, "%15s", child) == 1)
        follow_all(child, true);
    if (f)
        fclose(f);
}

static bool follow_all(const char *pid, bool children)
{
    char path[64];
    const struct dirent *e;
    DIR *tasks_dir;
    int n = 0;

    snprintf(path, sizeof(path), "/proc/%ld/task", strtol(pid, NULL, 10));
    tasks_dir = opendir(path);
    while (tasks_dir && (e = readdir(tasks_dir))) {
        if (e->d_name[0] == '.')
            continue;
        n += follow((pid_t)strtol(e->d_name, NULL, 10));
        if (children)
            follow_children(strtol(pid, NULL, 10), strtol(e->d_name, NULL, 10));
    }
    if (tasks_dir)
        closedir(tasks_dir);
    return n > 0;
}

/* Let the task go on; a signal that stopped it is given back, but for those that are ptrace's. */
static void go_on(pid_t pid, int status)
{
    int sig = WSTOPSIG(status);
    bool ours = sig == SYSCALL_STOP || status >> 16 || sig == SIGTRAP;

    if (status >> 16 == PTRACE_EVENT_STOP && sig != SIGTRAP) { /* a real stop: leave it so */
        ptrace(PTRACE_LISTEN, pid, NULL, NULL);
        return;
    }
    ptrace(PTRACE_SYSCALL, pid, NULL, ours ? 0L : (long)sig);
}

int main(int argc, char **argv)
{
    static struct aim aim;
    int status;
    pid_t pid;

    if (argc < 5 || !read_aim(argv[2], &aim) ||
        !(argv[4][0] == '/' ? begin(argv + 4) : follow_all(argv[4], argv[4][0] == '+')))
        return 2;
    puts("ready");
    fflush(stdout);
    while ((pid = waitpid(-1, &status, __WALL)) > 0) {
        if (!WIFSTOPPED(status) || status >> 16)
            forget(); /* it runs another program, or its number may be reused */
        if (!WIFSTOPPED(status))
            continue;
        if (WSTOPSIG(status) == SYSCALL_STOP && inject(pid, argv[1], argv[3], &aim))
            return 0; /* the end of a tracer lets its tracees go */
        go_on(pid, status);
    }
    puts("idle");
    return 0;
}

#else
int main(void)
{
    return 77;
}
#endif
