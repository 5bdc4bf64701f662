/*
 * The parts of lib/os that can be tested without a sandbox.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/caps.h"
#include "lib/os/cgroup.h"
#include "lib/os/ns.h"
#include "lib/os/pidfd.h"
#include "lib/os/process.h"
#include "lib/os/pty.h"
#include "lib/os/rlimit.h"
#include "lib/os/rmtree.h"
#include "lib/os/user.h"
#include "tap.h"

struct place {
    char dir[40];
    int fd;
};

static void place_done(struct place *p)
{
    fd_close(p->fd);
    rmtree(AT_FDCWD, p->dir, NULL);
}

#define PLACE(p)                                                                                   \
    __attribute__((cleanup(place_done))) struct place p = {"/dev/shm/test-os-XXXXXX", -1};         \
    CHECK(mkdtemp(p.dir));                                                                         \
    p.fd = open(p.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);                                        \
    CHECK(p.fd >= 0)

static void touch(int dir, const char *name)
{
    close(openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static bool exists(int dir, const char *name)
{
    return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

TEST(rmtree_removes_files_and_folders)
{
    PLACE(p);
    CHECK(rmtree(p.fd, "nothing", NULL) == 0);
    touch(p.fd, "file");
    CHECK(rmtree(p.fd, "file", NULL) == 0 && !exists(p.fd, "file"));
    CHECK(mkdirat(p.fd, "a", 0700) == 0 && mkdirat(p.fd, "a/b", 0) == 0);
    for (int i = 0; i < 3000; i++) {
        char name[32];

        snprintf(name, sizeof(name), "a/f%d", i);
        touch(p.fd, name);
        snprintf(name, sizeof(name), "a/d%d", i);
        CHECK(i % 10 || mkdirat(p.fd, name, 0700) == 0);
        snprintf(name, sizeof(name), "a/d%d/x", i);
        if (i % 10 == 0)
            touch(p.fd, name);
    }
    CHECK(rmtree(p.fd, "a", NULL) == 0 && !exists(p.fd, "a"));
}

TEST(rmtree_follows_no_symlink)
{
    int r;

    PLACE(p);
    CHECK(mkdirat(p.fd, "canary", 0700) == 0 && mkdirat(p.fd, "tree", 0700) == 0);
    touch(p.fd, "canary/bird");
    CHECK(symlinkat("../canary", p.fd, "tree/link") == 0);
    r = rmtree(p.fd, "tree", NULL);
    unlinkat(p.fd, "tree/link", 0); /* if rmtree() left it */
    CHECK(exists(p.fd, "canary/bird"));
    CHECK(r == 0 && !exists(p.fd, "tree"));
    CHECK(symlinkat("canary", p.fd, "top") == 0);
    CHECK(rmtree(p.fd, "top", NULL) == 0 && !exists(p.fd, "top"));
    CHECK(exists(p.fd, "canary/bird"));
}

TEST(rmtree_survives_a_deep_chain)
{
    enum { DEPTH = 100000 };
    int fd, fds;

    PLACE(p);
    CHECK(mkdirat(p.fd, "deep", 0700) == 0);
    fd = openat(p.fd, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < DEPTH; i++) {
        int next;

        CHECK(mkdirat(fd, "d", 0700) == 0);
        if (i % 1000 == 0)
            touch(fd, "f");
        next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        fd = next;
    }
    close(fd);
    fds = dup(0);
    close(fds);
    CHECK(rmtree(p.fd, "deep", NULL) == 0 && !exists(p.fd, "deep"));
    fd = dup(0);
    CHECK(fd == fds); /* none is left open */
    close(fd);
}

TEST(rmtree_crosses_no_mount)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *inner = NULL;
    int r;

    if (geteuid() != 0)
        SKIP("needs root");
    PLACE(p);
    CHECK(mkdirat(p.fd, "tree", 0700) == 0 && mkdirat(p.fd, "tree/m", 0700) == 0 &&
          mkdirat(p.fd, "canary", 0700) == 0);
    touch(p.fd, "canary/bird");
    inner = xasprintf("%s/tree/m", p.dir);
    {
        _cleanup_free_ char *canary = xasprintf("%s/canary", p.dir);

        if (mount(canary, inner, NULL, MS_BIND, NULL) < 0)
            SKIP("cannot mount here");
    }
    r = rmtree(p.fd, "tree", &err);
    umount2(inner, MNT_DETACH);
    CHECK(exists(p.fd, "canary/bird"));
    CHECK(r == -ERR_CONFLICT);
    CHECK(rmtree(p.fd, "tree", NULL) == 0);
}

/* A mount namespace in which the name of the first terminal leads to a file of another kind. */
static bool lay_false_terminal(const char *canary)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", "/dev/pts", "tmpfs", 0, NULL) == 0 && mkdir("/dev/pts/pts", 0755) == 0 &&
           mount("devpts", "/dev/pts/pts", "devpts", 0, "newinstance,ptmxmode=0666") == 0 &&
           file_replace(AT_FDCWD, "/dev/pts/ptmx", "", 0, 0644, false, NULL) >= 0 &&
           mount("/dev/pts/pts/ptmx", "/dev/pts/ptmx", NULL, MS_BIND, NULL) == 0 &&
           symlink(canary, "/dev/pts/0") == 0;
}

/* 0: it is the terminal's other end; 1: it is not; 77: cannot be tried here. */
static int open_false_terminal(const char *canary)
{
    int master, slave;

    if (!lay_false_terminal(canary))
        return 77;
    if (pty_open(24, 80, &master, &slave, NULL) < 0)
        return 2;
    return isatty(slave) ? 0 : 1;
}

TEST(a_terminal_is_not_opened_by_its_name)
{
    _cleanup_free_ char *canary = NULL;
    int status = -1;
    pid_t pid;

    if (geteuid() != 0)
        SKIP("needs root");
    PLACE(p);
    touch(p.fd, "canary");
    canary = xasprintf("%s/canary", p.dir);
    pid = fork();
    if (pid == 0)
        _exit(open_false_terminal(canary));
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        SKIP("cannot mount here");
    CHECK(WEXITSTATUS(status) == 0);
}

TEST(pidfd_reaps_with_status_and_usage)
{
    struct rusage ru;
    int fd = -1, status;
    pid_t pid;

    pid = ns_clone(0, -1, &fd);
    if (pid == 0)
        _exit(7);
    CHECK(pid > 0 && pidfd_reap(fd, true, &status, &ru) == 1);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(pidfd_signal(fd, SIGTERM) == -ESRCH && pidfd_reap(fd, false, NULL, NULL) == -ECHILD);
    close(fd);
    pid = ns_clone(0, -1, &fd);
    if (pid == 0)
        for (;;)
            pause();
    CHECK(pidfd_reap(fd, false, &status, NULL) == 0);
    CHECK(pidfd_signal(fd, SIGUSR1) == 0 && pidfd_reap(fd, true, &status, NULL) == 1);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
    close(fd);
}

/* Runs fn in a child; its exit status. */
static int in_child(int (*fn)(void))
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0)
        _exit(fn());
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* As an ordinary user: a chain, deeper than rmtree() walks, of folders without any right for us. */
static int remove_forbidden(void)
{
    char dir[] = "/dev/shm/test-os-XXXXXX";
    int fd, top;

    if (geteuid() == 0 &&
        (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0))
        return 1;
    if (!mkdtemp(dir))
        return 2;
    top = fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 200; i++) {
        int next;

        touch(fd, "f");
        if (mkdirat(fd, "d", 0700) < 0)
            return 3;
        next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd != top && fchmod(fd, i % 2 ? 0 : 0500) < 0)
            return 4;
        fd = next;
    }
    return rmtree(AT_FDCWD, dir, NULL) < 0 || exists(AT_FDCWD, dir) ? 5 : 0;
}

TEST(rmtree_opens_up_what_is_its_users)
{
    CHECK(in_child(remove_forbidden) == 0);
}

static int drop_all(void)
{
    if (caps_bound(CAPS_BIT(CAP_CHOWN), NULL) < 0 || caps_set(CAPS_BIT(CAP_CHOWN), NULL) < 0)
        return 1;
    if (prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN) != 0 || prctl(PR_CAPBSET_READ, CAP_CHOWN) != 1)
        return 2;
    if (caps_set(CAPS_BIT(CAP_CHOWN) | CAPS_BIT(CAP_KILL), NULL) >= 0)
        return 3; /* what is gone does not come back */
    return caps_set(CAPS_NONE, NULL) < 0 ? 4 : 0;
}

TEST(capabilities_are_dropped_for_good)
{
    if (geteuid() != 0)
        SKIP("needs root");
    CHECK(in_child(drop_all) == 0);
}

static int lower_limits(void)
{
    struct rlimit rl;

    if (rlimit_set(RLIMIT_NOFILE, 100, 200, NULL) < 0 || getrlimit(RLIMIT_NOFILE, &rl) < 0)
        return 1;
    if (rl.rlim_cur != 100 || rl.rlim_max != 200)
        return 2;
    if (rlimit_set(RLIMIT_NOFILE, 300, 400, NULL) < 0 || getrlimit(RLIMIT_NOFILE, &rl) < 0)
        return 3;
    return rl.rlim_max == 200 && rl.rlim_cur == 200 ? 0 : 4;
}

TEST(limits_never_rise)
{
    CHECK(in_child(lower_limits) == 0);
}

TEST(cgroups_are_made_used_and_removed)
{
    const char *const parent = "ripcord-test", *const root = "00000000000000aa";
    struct cgroup_limits limits = {.memory = 64 << 20, .cpu_milli = 500, .pids = 20};
    _cleanup_err_ struct err err = ERR_INIT;
    struct cgroup_group g = CGROUP_GROUP_INIT;
    struct cgroup_usage u;
    char id[17], **ids = NULL;
    struct cgroup c;
    int pidfd = -1, status, up[2];
    pid_t pid;

    snprintf(id, sizeof(id), "%016x", (unsigned)getpid());
    CHECK(cgroup_open(&c, parent, root, id, &err) == 0);
    if (STREQ(c.ops->name, "none"))
        SKIP("no cgroup may be made here");
    cgroup_limit(&c, &limits);
    CHECK(cgroup_group_open(&c, "x-1", true, &g, &err) == 0);
    CHECK(cgroup_list(parent, root, &ids, NULL) == 0 && strv_contains(ids, id));
    strv_free(ids);
    CHECK(pipe2(up, O_CLOEXEC) == 0);
    pid = ns_clone(0, cgroup_group_clone_fd(&g), &pidfd);
    if (pid == 0) {
        if (cgroup_group_enter(&c, &g) < 0)
            _exit(1);
        if (fork() == 0 && (setsid() < 0 || write(up[1], "", 1) != 1))
            _exit(1);
        for (;;)
            pause();
    }
    close(up[1]);
    CHECK(read(up[0], &(char){0}, 1) == 1);
    close(up[0]);
    CHECK(pid > 0 && cgroup_group_populated(&g) && !cgroup_group_remove(&c, "x-1"));
    CHECK(!cgroup_is_rest(parent, root, id));
    cgroup_usage(&c, &g, &u);
    CHECK(u.cpu_usec > 0 || u.memory_peak > 0);
    CHECK(cgroup_freeze(&c, true, &err) == 0 && cgroup_freeze(&c, false, &err) == 0);
    CHECK(cgroup_group_kill(&c, &g));
    CHECK(pidfd_reap(pidfd, true, &status, NULL) == 1 && WTERMSIG(status) == SIGKILL);
    close(pidfd);
    cgroup_group_done(&g);
    CHECK(cgroup_remove(&c, 60000000, &err) == 0);
    cgroup_close(&c);
    CHECK(cgroup_list(parent, root, &ids, NULL) == 0 && !strv_contains(ids, id));
    strv_free(ids);
    CHECK(cgroup_sweep(parent, root, id, &err) == 0); /* fine when there is nothing */
    cgroup_remove_root(parent, root);
}

static void put_text(int dir, const char *name, const char *text)
{
    _cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && fd_write_all(fd, text, strlen(text)) == 0);
}

/* A v2 sandbox with a limit of 23 and a group, as plain files. */
TEST(refused_processes_belong_to_the_group_that_asked)
{
    PLACE(p);
    PLACE(q);
    struct cgroup c = {.dir = {[CGROUP_UNIFIED] = p.fd, [CGROUP_PIDS] = -1}};
    struct cgroup_group g = {.dir = {[CGROUP_UNIFIED] = q.fd}};
    struct cgroup_pids before;

    put_text(p.fd, "pids.max", "23\n");
    put_text(p.fd, "pids.current", "4\n");
    put_text(p.fd, "pids.events", "max 2\n");
    put_text(q.fd, "pids.current", "1\n");
    put_text(q.fd, "pids.peak", "1\n");
    put_text(q.fd, "pids.events", "max 0\n");
    cgroup_pids_look(&c, &g, &before);
    CHECK(before.others == 3 && cgroup_pids_denied_since(&c, &g, &before, true) == 0);
    /* Linux 6.11 and later: at the limit. */
    put_text(p.fd, "pids.events", "max 7\n");
    CHECK(cgroup_pids_denied_since(&c, &g, &before, true) == 5);
    put_text(q.fd, "pids.peak", "20\n"); /* the other three have used it up */
    CHECK(cgroup_pids_denied_since(&c, &g, &before, false) == 0);
    put_text(q.fd, "pids.peak", "21\n");
    CHECK(cgroup_pids_denied_since(&c, &g, &before, false) == 5);
    put_text(p.fd, "pids.current", "2\n"); /* one of the three has ended, perhaps before */
    CHECK(cgroup_pids_denied_since(&c, &g, &before, false) == 0);
    /* Before: in the group. */
    put_text(q.fd, "pids.events", "max 4\n");
    CHECK(cgroup_pids_denied_since(&c, &g, &before, false) == 4);
}

TEST(a_process_is_known_by_its_cgroup)
{
    const char *const parent = "ripcord-test", *const root = "00000000000000ab";
    char id[CGROUP_NAME_MAX];
    struct cgroup_group g = CGROUP_GROUP_INIT;
    int pidfd = -1;
    struct cgroup c;
    pid_t pid;

    snprintf(id, sizeof(id), "%036x", (unsigned)getpid());
    CHECK(cgroup_open(&c, parent, root, id, NULL) == 0);
    if (c.dir[CGROUP_UNIFIED] < 0)
        SKIP("no cgroup may be made here");
    CHECK(cgroup_group_open(&c, "x-1", false, &g, NULL) == 0);
    pid = ns_clone(0, cgroup_group_clone_fd(&g), &pidfd);
    if (pid == 0)
        for (;;)
            pause();
    CHECK(pidfd_in_cgroup(pidfd, pid, id));
    CHECK(!pidfd_in_cgroup(pidfd, pid, "x-1")); /* too short to mean it */
    CHECK(!pidfd_in_cgroup(pidfd, getpid(), id));
    CHECK(pidfd_signal(pidfd, SIGKILL) == 0 && pidfd_reap(pidfd, true, NULL, NULL) == 1);
    CHECK(!pidfd_in_cgroup(pidfd, pid, id));
    close(pidfd);
    cgroup_group_done(&g);
    CHECK(cgroup_remove(&c, 2000000, NULL) == 0);
    cgroup_close(&c);
    cgroup_remove_root(parent, root);
}

/* ---- passwd and group ---- */

TEST(passwd_is_parsed_strictly)
{
    char text[] = "broken line\nroot:x:0:0:root:/root:/bin/sh\nbig:x:4294967296:0::/:/bin/sh\n"
                  "neg:x:-1:0::/:/bin/sh\nshort:x:5:5:/\nagent:x:1000:100:,,,:home:/bin/sh\n"
                  "agent:x:0:0::/root:/bin/sh\n";
    struct user u = {0};
    char *copy;

    copy = xstrdup(text);
    CHECK(user_from_passwd(copy, "agent", 0, &u));
    CHECK(u.uid == 1000 && u.gid == 100); /* the first entry counts */
    CHECK_STR(u.home, "/");               /* not absolute */
    free(copy);
    static const char *const absent[] = {"big", "neg", "short", "broken line", ""};
    for (size_t i = 0; i < ARRAY_SIZE(absent); i++) {
        copy = xstrdup(text);
        CHECK(!user_from_passwd(copy, absent[i], 0, &u));
        free(copy);
    }
    copy = xstrdup(text);
    CHECK(user_from_passwd(copy, NULL, 0, &u));
    CHECK_STR(u.name, "root");
    free(copy);
}

TEST(groups_are_bounded)
{
    _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
    struct user u = {.gid = 1000, .name = "agent"};

    CHECK(buf_append_str(&b, "agent:x:1000:agent\nother:x:7:agentx,xagent\n") == 0);
    for (int i = 0; i < 200; i++)
        CHECK(buf_appendf(&b, "g%d:x:%d:bob,agent\n", i, 2000 + i) == 0);
    user_groups_from(buf_data(&b), &u);
    CHECK(u.n_groups == USER_GROUPS_MAX && u.groups[0] == 2000);
}

TEST(users_that_do_not_parse_are_refused)
{
    static const char *const bad[] = {"4294967296", "-1", "0x0",      "1000:", ":0",
                                      " 0",         "+1", "nobody\n", "65536", "1000:4294967296"};
    struct user u;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (user_resolve(bad[i], &u, NULL) >= 0)
            printf("# '%s' was accepted\n", bad[i]);
        CHECK(user_resolve(bad[i], &u, NULL) == -ERR_INVALID);
    }
    CHECK(user_resolve("0", &u, NULL) == 0 && u.uid == 0);
    CHECK(user_resolve("54321:12345", &u, NULL) == 0 && u.uid == 54321 && u.gid == 12345);
    CHECK(user_resolve("54321", &u, NULL) == 0 && u.gid == 54321);
}

/* Runs a shell that prints two descriptors; each has the number that the other shall get. */
TEST(descriptors_of_a_program_do_not_meet_each_other)
{
    static const char *const argv[] = {"sh", "-c",
                                       "cat <&7 && cat <&8 && ! test -e /proc/self/fd/9", NULL};
    _cleanup_close_ int one = -1, two = -1, out = -1, said = -1;
    int saved[] = {fcntl(7, F_DUPFD_CLOEXEC, 40), fcntl(8, F_DUPFD_CLOEXEC, 40)}, p[2];
    char text[16] = {0};
    pid_t pid;

    CHECK(memfd_sealed("one", "one,", 4, &one, NULL) == 0);
    CHECK(memfd_sealed("two", "two", 3, &two, NULL) == 0);
    CHECK(pipe2(p, O_CLOEXEC) == 0);
    said = p[0];
    out = p[1];
    CHECK(dup3(one, 8, O_CLOEXEC) == 8 && dup3(two, 7, O_CLOEXEC) == 7);
    CHECK(process_start(&(struct process_spec){.path = "/bin/sh",
                                               .argv = argv,
                                               .fds = {{8, 7}, {7, 8}, {-1, 9}, {out, 1}},
                                               .n_fds = 4},
                        &pid) == 0);
    out = fd_close(out);
    CHECK(process_wait(pid) == 0 && process_wait(pid) == -1);
    CHECK(fd_read_full(said, text, sizeof(text)) == 7 && STREQ(text, "one,two"));
    for (int i = 0; i < 2; i++) {
        close(7 + i);
        if (saved[i] >= 0)
            dup3(saved[i], 7 + i, O_CLOEXEC);
        fd_close(saved[i]);
    }
}

TEST(a_missing_program_fails_at_once)
{
    static const char *const argv[] = {"nothing", NULL};
    pid_t pid;

    CHECK(process_start(&(struct process_spec){.path = "/nowhere/nothing", .argv = argv}, &pid) ==
          ENOENT);
}
