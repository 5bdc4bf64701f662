/*
 * The seccomp filter, call by call. Our own BPF interpreter (bpf.h) runs it for every call number,
 * also for calls that this kernel or libc lacks. Some calls are also tested in the kernel.
 */
#include "lib/os/seccomp-filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf.h"
#include "lib/base/macro.h"
#include "lib/os/seccomp-table.h"
#include "tap.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define HIGH (0x123ULL << 32)
enum { NUMBERS = 1200 };

static uint32_t verdict_on(uint32_t arch, int nr, uint64_t a0, uint64_t a1, uint64_t a2)
{
    static struct sock_filter *f;
    static size_t n;
    struct seccomp_data d = {.nr = nr, .arch = arch, .args = {a0, a1, a2}};

    if (!f)
        f = seccomp_filter_compile(&n);
    return bpf_run(f, n, &d);
}

static uint32_t verdict(int nr, uint64_t a0, uint64_t a1, uint64_t a2)
{
    return verdict_on(ARCH, nr, a0, a1, a2);
}

static bool allowed(uint32_t v)
{
    return v == SECCOMP_RET_ALLOW;
}

static bool refused(uint32_t v, int errnum)
{
    return v == (SECCOMP_RET_ERRNO | (uint32_t)errnum);
}

static const struct seccomp_call *by_name(const char *name)
{
    const struct seccomp_call *c;

    for (size_t i = 0; (c = seccomp_call_at(i)); i++)
        if (STREQ(c->name, name))
            return c;
    return NULL;
}

static const struct seccomp_call *by_number(int nr)
{
    const struct seccomp_call *c;

    for (size_t i = 0; (c = seccomp_call_at(i)); i++)
        if (c->nr == nr)
            return c;
    return NULL;
}

TEST(each_call_stands_once)
{
    const struct seccomp_call *c;

    for (size_t i = 0; (c = seccomp_call_at(i)); i++) {
        CHECK(by_name(c->name) == c);
        CHECK(c->nr < 0 || by_number(c->nr) == c);
        CHECK(c->nr < NUMBERS);
    }
}

TEST(every_number_gets_what_the_table_says)
{
    for (int nr = 0; nr < NUMBERS; nr++) {
        const struct seccomp_call *c = by_number(nr);
        uint32_t v = verdict(nr, 0, 0, 0);

        if (!c)
            CHECK(refused(v, ENOSYS));
        else if (c->verdict == CALL_ALLOW)
            CHECK(allowed(v));
        else if (c->verdict == CALL_REFUSE)
            CHECK(refused(v, c->errnum));
    }
    CHECK(refused(verdict(0x3fffffff, 0, 0, 0), ENOSYS));
}

/* Not from the table: what must hold whatever is written there. By number where libc's header may
 * be too old to know it. */
TEST(what_must_never_be_allowed_is_not)
{
    static const char *const eperm[] = {"unshare",
                                        "setns",
                                        "mount",
                                        "umount2",
                                        "pivot_root",
                                        "fsopen",
                                        "fsconfig",
                                        "fsmount",
                                        "fspick",
                                        "open_tree",
                                        "open_tree_attr",
                                        "move_mount",
                                        "mount_setattr",
                                        "keyctl",
                                        "add_key",
                                        "request_key",
                                        "bpf",
                                        "perf_event_open",
                                        "userfaultfd",
                                        "open_by_handle_at",
                                        "name_to_handle_at",
                                        "fanotify_init",
                                        "pidfd_getfd",
                                        "process_madvise",
                                        "kcmp",
                                        "quotactl",
                                        "quotactl_fd",
                                        "acct",
                                        "swapon",
                                        "swapoff",
                                        "init_module",
                                        "finit_module",
                                        "delete_module",
                                        "kexec_load",
                                        "reboot",
                                        "settimeofday",
                                        "clock_settime",
                                        "clock_adjtime",
                                        "syslog",
                                        "vmsplice",
                                        "sethostname"};
    static const int numbers[] = {SYS_unshare,
                                  SYS_setns,
                                  SYS_mount,
                                  SYS_umount2,
                                  SYS_pivot_root,
                                  430,
                                  431,
                                  432,
                                  433,
                                  428,
                                  467,
                                  429,
                                  442,
                                  SYS_keyctl,
                                  SYS_add_key,
                                  SYS_request_key,
                                  SYS_bpf,
                                  SYS_perf_event_open,
                                  SYS_userfaultfd};
    static const int absent[] = {425,           426, 427, 435, SYS_io_setup,
                                 SYS_io_submit, 451, 457, 458, 470};

    for (size_t i = 0; i < ARRAY_SIZE(eperm); i++) {
        const struct seccomp_call *c = by_name(eperm[i]);

        CHECK(c && c->verdict == CALL_REFUSE && c->errnum == EPERM);
        CHECK(c && refused(verdict(c->nr, 0, 0, 0), EPERM));
    }
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        CHECK(refused(verdict(numbers[i], 0, 0, 0), EPERM));
    for (size_t i = 0; i < ARRAY_SIZE(absent); i++) /* io_uring, clone3, AIO, cachestat, ... */
        CHECK(refused(verdict(absent[i], 0, 0, 0), ENOSYS));
}

TEST(another_architecture_is_the_end)
{
    static const uint32_t others[] = {AUDIT_ARCH_I386, AUDIT_ARCH_ARM, AUDIT_ARCH_PPC64LE, 0,
                                      ARCH ^ __AUDIT_ARCH_64BIT};

    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        for (int nr = 0; nr < NUMBERS; nr++)
            CHECK(verdict_on(others[i], nr, 0, 0, 0) == SECCOMP_RET_KILL_PROCESS);
#ifdef __x86_64__
    for (int nr = 0; nr < NUMBERS; nr++) /* x32 */
        CHECK(verdict(0x40000000 | nr, 0, 0, 0) == SECCOMP_RET_KILL_PROCESS);
    CHECK(verdict(-1, 0, 0, 0) == SECCOMP_RET_KILL_PROCESS);
#endif
}

TEST(clone_makes_threads_and_processes_but_no_namespaces)
{
    static const uint64_t namespaces[] = {CLONE_NEWNS,  CLONE_NEWCGROUP, CLONE_NEWUTS,
                                          CLONE_NEWIPC, CLONE_NEWUSER,   CLONE_NEWPID,
                                          CLONE_NEWNET};
    const uint64_t thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                            CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
                            CLONE_CHILD_CLEARTID;

    CHECK(allowed(verdict(SYS_clone, SIGCHLD, 0, 0)));
    CHECK(allowed(verdict(SYS_clone, thread, 0, 0)));
    CHECK(allowed(verdict(SYS_clone, CLONE_PIDFD | CLONE_VFORK | CLONE_VM | SIGCHLD, 0, 0)));
    for (size_t i = 0; i < ARRAY_SIZE(namespaces); i++) {
        CHECK(refused(verdict(SYS_clone, namespaces[i], 0, 0), EPERM));
        CHECK(refused(verdict(SYS_clone, namespaces[i] | SIGCHLD, 0, 0), EPERM));
        CHECK(refused(verdict(SYS_clone, namespaces[i] | HIGH, 0, 0), EPERM));
    }
}

TEST(sockets_of_four_families)
{
    for (int family = 0; family < 100; family++) {
        bool known =
            family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK;

        for (int high = 0; high < 2; high++) {
            uint64_t f = (uint64_t)family | (high ? HIGH : 0);

            CHECK(known == allowed(verdict(SYS_socket, f, SOCK_STREAM, 0)));
            CHECK(known || refused(verdict(SYS_socket, f, SOCK_STREAM, 0), EAFNOSUPPORT));
            CHECK((family == AF_UNIX) == allowed(verdict(SYS_socketpair, f, SOCK_STREAM, 0)));
        }
    }
}

TEST(sockets_of_few_protocols)
{
    for (int protocol = 0; protocol < 300; protocol++) {
        bool inet = protocol == 0 || protocol == 6 || protocol == 17 || protocol == 255;
        uint32_t v4 = verdict(SYS_socket, AF_INET, SOCK_STREAM, (uint64_t)protocol);
        uint32_t v6 = verdict(SYS_socket, AF_INET6, SOCK_STREAM, (uint64_t)protocol);
        uint32_t nl = verdict(SYS_socket, AF_NETLINK, SOCK_RAW, (uint64_t)protocol | HIGH);

        CHECK((inet || protocol == 1) == allowed(v4));
        CHECK((inet || protocol == 58) == allowed(v6));
        CHECK((protocol == NETLINK_ROUTE) == allowed(nl));
        CHECK(allowed(nl) || refused(nl, EPROTONOSUPPORT));
    }
}

TEST(terminals_are_not_typed_into)
{
    static const uint64_t no[] = {0x5412, 0x541C, 0x5423};
    static const uint64_t yes[] = {TCGETS,  TIOCGWINSZ, FIONREAD, TIOCSCTTY,
                                   FIOCLEX, 0x5411,     0x5413,   0};

    for (size_t i = 0; i < ARRAY_SIZE(no); i++) {
        CHECK(refused(verdict(SYS_ioctl, 0, no[i], 0), EPERM));
        CHECK(refused(verdict(SYS_ioctl, 0, no[i] | HIGH, 0), EPERM));
        CHECK(refused(verdict(SYS_ioctl, 0, no[i] | 1ULL << 63, 0), EPERM));
    }
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        CHECK(allowed(verdict(SYS_ioctl, 0, yes[i], 0)));
}

TEST(personality_asks_and_debugs)
{
    CHECK(allowed(verdict(SYS_personality, 0xffffffff, 0, 0)));
    CHECK(allowed(verdict(SYS_personality, ~0ULL, 0, 0)));
    CHECK(allowed(verdict(SYS_personality, PER_LINUX, 0, 0)));
    CHECK(allowed(verdict(SYS_personality, ADDR_NO_RANDOMIZE, 0, 0)));
    CHECK(refused(verdict(SYS_personality, READ_IMPLIES_EXEC, 0, 0), EPERM));
    CHECK(refused(verdict(SYS_personality, MMAP_PAGE_ZERO | HIGH, 0, 0), EPERM));
}

TEST(filters_end_with_their_process)
{
    CHECK(allowed(verdict(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, 0)));
    CHECK(allowed(verdict(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, 0)));
    CHECK(
        refused(verdict(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0),
                EINVAL));
    CHECK(refused(verdict(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                          SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_LOG | HIGH, 0),
                  EINVAL));
}

/* ---- in the kernel ---- */

static int in_filter(int (*fn)(void))
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        size_t n;
        struct sock_filter *f = seccomp_filter_compile(&n);

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            seccomp_filter_install(f, n * sizeof(*f), NULL) < 0)
            _exit(100);
        _exit(fn());
    }
    waitpid(pid, &status, 0);
    return status;
}

static int works(void)
{
    int status;
    pid_t pid;

    if (unshare(CLONE_NEWUSER) == 0 || errno != EPERM)
        return 1;
    if (syscall(SYS_clone3, NULL, 0) == 0 || errno != ENOSYS)
        return 2;
    if (socket(AF_VSOCK, SOCK_STREAM, 0) >= 0 || errno != EAFNOSUPPORT)
        return 3;
    if (syscall(SYS_ioctl, 0, 0x5412 | HIGH, "x") == 0 || errno != EPERM)
        return 4;
    pid = fork();
    if (pid == 0)
        _exit(7);
    return waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7 ? 0 : 5;
}

#ifdef __x86_64__
static int by_int80(void)
{
    long pid;

    __asm__ volatile("int $0x80" : "=a"(pid) : "a"(20L) : "memory"); /* getpid of i386 */
    return 0;
}
#endif

TEST(the_kernel_agrees)
{
    CHECK(in_filter(works) == 0);
#ifdef __x86_64__
    int status = in_filter(by_int80);

    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
#endif
}
