/*
 * The seccomp filter, call by call. Our own BPF interpreter (bpf.h) runs it for every call number,
 * also for calls that this kernel or libc lacks. Some calls are also tested in the kernel.
 */
#include "lib/os/seccomp-filter.h"

#include <errno.h>
#include <fcntl.h>
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/os/rmtree.h"
#include "lib/os/seccomp-table.h"
#include "tap.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define HIGH (0x123ULL << 32)
enum { NUMBERS = 1200 };

static uint32_t verdict_of(enum seccomp_variant variant, const struct seccomp_data *d)
{
    static struct sock_filter *f[SECCOMP_VARIANTS];
    static size_t n[SECCOMP_VARIANTS];

    if (!f[variant])
        f[variant] = seccomp_filter_compile(variant, &n[variant]);
    return bpf_run(f[variant], n[variant], d);
}

/* The verdict of both filters, which must be the same; else a value that no test expects. */
static uint32_t verdict_on(uint32_t arch, int nr, uint64_t a0, uint64_t a1, uint64_t a2)
{
    struct seccomp_data d = {.nr = nr, .arch = arch, .args = {a0, a1, a2}};
    uint32_t v = verdict_of(SECCOMP_SET_ID, &d);

    return nr == SYS_openat2 || verdict_of(SECCOMP_NO_SET_ID, &d) == v ? v : ~0U;
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

    for (size_t i = 0; (c = seccomp_call_at(SECCOMP_SET_ID, i)); i++)
        if (STREQ(c->name, name))
            return c;
    return NULL;
}

static const struct seccomp_call *by_number(int nr)
{
    const struct seccomp_call *c;

    for (size_t i = 0; (c = seccomp_call_at(SECCOMP_SET_ID, i)); i++)
        if (c->nr == nr)
            return c;
    return NULL;
}

TEST(each_call_stands_once)
{
    const struct seccomp_call *c;

    for (size_t i = 0; (c = seccomp_call_at(SECCOMP_SET_ID, i)); i++) {
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

/* ---- without set-id bits ---- */

static uint32_t mode_verdict(enum seccomp_variant variant, int nr, unsigned arg, uint64_t mode,
                             unsigned flags_arg, uint64_t flags)
{
    struct seccomp_data d = {.nr = nr, .arch = ARCH};

    d.args[flags_arg] = flags;
    d.args[arg] = mode;
    return verdict_of(variant, &d);
}

static const struct {
    int nr;
    unsigned mode, flags; /* arguments; flags 0: the call has none that count */
} modes[] = {
#ifdef __x86_64__
    {SYS_chmod, 1, 0},  {SYS_creat, 1, 0},    {SYS_mknod, 1, 0}, {SYS_open, 2, 1},
#endif
    {SYS_fchmod, 1, 0}, {SYS_fchmodat, 2, 0}, {452, 2, 0},       {SYS_mknodat, 2, 0},
    {SYS_openat, 3, 2},
};

TEST(set_id_bits_are_refused_with_folders_of_the_host)
{
    static const uint64_t creating[] = {O_CREAT, O_CREAT | O_RDWR | O_EXCL, O_TMPFILE,
                                        O_TMPFILE | O_WRONLY, O_CREAT | HIGH};

    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        for (uint64_t mode = 0; mode < 0200000; mode += 0111)
            for (size_t f = 0; f < ARRAY_SIZE(creating); f++) {
                uint64_t m = mode | (mode & 01 ? HIGH : 0);
                uint32_t v = mode_verdict(SECCOMP_NO_SET_ID, modes[i].nr, modes[i].mode, m,
                                          modes[i].flags, creating[f]);

                CHECK(mode & 06000 ? refused(v, EPERM) : allowed(v));
                CHECK(allowed(mode_verdict(SECCOMP_SET_ID, modes[i].nr, modes[i].mode, m,
                                           modes[i].flags, creating[f])));
            }
    CHECK(refused(mode_verdict(SECCOMP_NO_SET_ID, SYS_openat2, 5, 0, 4, 0), ENOSYS));
    CHECK(allowed(mode_verdict(SECCOMP_SET_ID, SYS_openat2, 5, 0, 4, 0)));
}

TEST(the_mode_of_an_open_that_creates_nothing_does_not_count)
{
    static const uint64_t others[] = {O_RDONLY, O_RDWR | O_TRUNC, O_DIRECTORY, O_PATH, O_CLOEXEC};

    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        for (size_t f = 0; f < ARRAY_SIZE(others) && modes[i].flags; f++)
            CHECK(allowed(mode_verdict(SECCOMP_NO_SET_ID, modes[i].nr, modes[i].mode, 06777,
                                       modes[i].flags, others[f])));
}

/* ---- in the kernel ---- */

static int in_filter(int (*fn)(void))
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        size_t n;
        struct sock_filter *f = seccomp_filter_compile(SECCOMP_NO_SET_ID, &n);

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

/* ---- paths, with openat2() and without ---- */

static int opens_beneath(void)
{
    static const struct {
        const char *path;
        int flags;
        bool ok;
    } tries[] = {
        {"a", O_PATH | O_DIRECTORY, true},
        {"a/b", O_RDONLY | O_DIRECTORY, true},
        {"a//b/", O_PATH | O_DIRECTORY, true},
        {"a/b/file", O_RDONLY, true},
        {"./a/b/file", O_RDONLY, true},
        {"missing", O_RDONLY, false},
        {"a/b/file/x", O_RDONLY, false},
        {"to-a/b/file", O_RDONLY, false}, /* a link as a folder on the way */
        {"to-a", O_PATH | O_DIRECTORY, false},
        {"a/b/to-file", O_RDONLY, false}, /* a link at the end */
        {"a/to-root/etc/passwd", O_RDONLY, false},
        {"..", O_PATH | O_DIRECTORY, false},
        {"a/../../etc", O_PATH | O_DIRECTORY, false},
        {"/etc/passwd", O_RDONLY, false},
    };
    int dir = open("tree", O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
        int fd = fd_open_beneath(dir, tries[i].path, tries[i].flags);

        if ((fd >= 0) != tries[i].ok)
            return (int)i + 1;
        if (fd >= 0 && !(fcntl(fd, F_GETFD) & FD_CLOEXEC))
            return 100;
        fd_close(fd);
    }
    return 0;
}

TEST(paths_stay_beneath_with_either_call)
{
    char place[] = "/tmp/ripcord-beneath-XXXXXX";

    CHECK(mkdtemp(place) && chdir(place) == 0);
    CHECK(mkdir("tree", 0755) == 0 && mkdir("tree/a", 0755) == 0 && mkdir("tree/a/b", 0755) == 0);
    CHECK(close(open("tree/a/b/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) == 0);
    CHECK(symlink("a", "tree/to-a") == 0 && symlink("file", "tree/a/b/to-file") == 0 &&
          symlink("/", "tree/a/to-root") == 0);
    CHECK(opens_beneath() == 0);
    CHECK(in_filter(opens_beneath) == 0);
    CHECK(chdir("/") == 0 && rmtree(AT_FDCWD, place, NULL) == 0);
}
