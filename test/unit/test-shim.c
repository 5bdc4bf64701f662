/*
 * The shim on the real kernel. Each test builds a sandbox, runs commands in it, and checks their
 * output, the records, and that nothing is left.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/os/pidfd.h"
#include "shim-fixture.h"
#include "tap.h"

#define UP(b)                                                                                      \
    do {                                                                                           \
        if (box_unavailable())                                                                     \
            SKIP(box_unavailable());                                                               \
        box_init(&(b));                                                                            \
        if (box_up(&(b)) < 0)                                                                      \
            printf("# start: %s\n", (b).err.msg);                                                  \
        CHECK((b).err.code == ERR_NONE);                                                           \
    } while (0)

TEST(streams_and_status)
{
    struct box_result r;
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b);
    box_run(&b, "a1", "echo out; echo err >&2; exit 7", &r);
    CHECK(r.ended);
    CHECK_STR(r.out, "out\n");
    CHECK_STR(r.err, "err\n");
    CHECK(r.rec.cause == END_EXITED && r.rec.exit_code == 7 && r.rec.signal == 0);
    CHECK(r.rec.drained && r.rec.stdout_bytes == 4 && r.rec.stderr_bytes == 4);
    CHECK(r.rec.cpu_usec > 0 && r.rec.memory_peak > 0 && r.rec.memory_limit == b.plan.memory);
    box_result_done(&r);
    box_run(&b, "a2", "kill -TERM $$", &r);
    CHECK(r.rec.cause == END_SIGNALED && r.rec.signal == SIGTERM && r.rec.exit_code == -1);
    box_result_done(&r);
    box_stop(&b);
    CHECK(box_leftovers(&b) == 0);
}

TEST(identity_and_names)
{
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b);
    SAYS(b, "a1", "id -u; id -g; id -G; pwd; echo $HOME $USER",
         "1000\n1000\n1000 2000\n/home/agent\n/home/agent agent\n");
    SAYS(b, "a2",
         "hostname; grep CapEff /proc/self/status; grep CapBnd /proc/self/status; grep NoNewPrivs "
         "/proc/self/status",
         "box\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\n");
    SAYS(b, "a3", "cat /proc/1/comm; ls /proc/self/fd | wc -l", "ripcord-init\n4\n");
    box_stop(&b);
}

TEST(root_inside_has_the_listed_capabilities)
{
    struct box_result r;
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b);
    box_exec_begin(
        &b, &w, "a1",
        "id -u; echo $HOME; grep CapEff /proc/self/status; touch /etc/x && stat -c %u /etc/x");
    sup_put_str(&w, SUP_TAG_USER, "root");
    box_send(&b, &w);
    box_collect(&b, "a1", &r);
    /* CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT */
    CHECK_STR(r.out, "0\n/root\nCapEff:\t00000000000405fb\n0\n");
    box_result_done(&r);
    box_stop(&b);
}

TEST(file_systems)
{
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b);
    SAYS(b, "a1", "touch /usr/x 2>&1", "touch: cannot touch '/usr/x': Read-only file system\n");
    SAYS(b, "a2", "touch /home/agent/f /tmp/f /scratch/f /dev/shm/f && echo ok", "ok\n");
    SAYS(b, "a3", "touch /etc/x /sys/x /dev/x 2>/dev/null; ls /etc/x /sys/x /dev/x 2>/dev/null",
         "");
    SAYS(b, "a4", "grep -c -e ripcord -e /tmp/ /proc/self/mountinfo", "0\n");
    SAYS(b, "a5", "stat -c %U:%a /usr /home/agent /tmp", "root:755\nagent:755\nroot:1777\n");
    SAYS(b, "a6", "echo x > /proc/sys/kernel/hostname", "");
    SAYS(b, "a7",
         "head -c 4 /dev/zero | wc -c; echo x > /dev/null; cat /proc/keys /proc/interrupts | wc -c",
         "4\n0\n");
    SAYS(b, "a8", "unshare -U true 2>/dev/null || echo denied", "denied\n");
    SAYS(b, "a9", "dd if=/dev/zero of=/tmp/big bs=1M count=100 2>/dev/null || echo full", "full\n");
    box_stop(&b);
    CHECK(box_leftovers(&b) == 0);
}

TEST(home_and_root_survive_a_stop)
{
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b);
    SAYS(b, "a1", "echo kept > f", "");
    box_stop(&b);
    b.sock = fd_close(b.sock);
    CHECK(box_up(&b) >= 0);
    SAYS(b, "a2", "cat f", "kept\n");
    box_stop(&b);
}

/* NULL: a disk of its own can be made, as `image`. */
static const char *make_disk(const char *image)
{
    char *const argv[] = {"mkfs.ext4", "-q", "-F", (char *)image, NULL}, *env[] = {NULL};
    _cleanup_close_ int fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int status = -1;
    pid_t pid;

    if (fd < 0 || ftruncate(fd, 32 << 20) < 0 || access("/dev/loop-control", R_OK | W_OK) < 0)
        return "no loop devices";
    if (posix_spawn(&pid, "/sbin/mkfs.ext4", NULL, NULL, argv, env) != 0)
        return "no mkfs.ext4";
    return waitpid(pid, &status, 0) == pid && status == 0 ? NULL : "mkfs.ext4 failed";
}

/* Writes a file into the root layer, as root inside. */
static bool mark_root(struct box *b, const char *id)
{
    struct box_result r;
    struct sup_writer w;
    bool done;

    box_exec_begin(b, &w, id, "echo kept > /etc/mark");
    sup_put_str(&w, SUP_TAG_USER, "0");
    box_send(b, &w);
    box_collect(b, id, &r);
    done = r.ended && end_record_status(&r.rec) == 0;
    box_result_done(&r);
    return done;
}

static int up_with_hash(struct box *b, const char *hash)
{
    free(b->plan.hash);
    b->plan.hash = xstrdup(hash);
    b->sock = fd_close(b->sock);
    return box_up(b);
}

TEST(a_disk_keeps_the_old_root_until_the_new_spec_is_stored)
{
    static const char mark[] = "cat /etc/mark 2>/dev/null || echo none";
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;
    const char *why;

    if (box_unavailable())
        SKIP(box_unavailable());
    box_init(&b);
    b.plan.disk_image = xasprintf("%s/disk.img", b.dir);
    why = make_disk(b.plan.disk_image);
    if (why)
        SKIP(why);
    CHECK(up_with_hash(&b, "old") >= 0);
    CHECK(mark_root(&b, "a1"));
    box_stop(&b);
    for (int i = 0; i < 2; i++) { /* the second time it is not made new, but not stored either */
        CHECK(up_with_hash(&b, "new") >= 0);
        SAYS(b, i ? "b2" : "b1", mark, "none\n");
        box_stop(&b);
    }
    CHECK(up_with_hash(&b, "old") >= 0);
    SAYS(b, "a2", mark, "kept\n");
    box_stop(&b);

    CHECK(up_with_hash(&b, "new") >= 0);
    box_begin(&b, &w, SUP_SETTLED, NULL);
    box_send(&b, &w);
    SAYS(b, "b3", mark, "none\n"); /* and SETTLED came before it */
    box_stop(&b);
    CHECK(up_with_hash(&b, "old") >= 0);
    SAYS(b, "a3", mark, "none\n");
    box_stop(&b);
    CHECK(box_leftovers(&b) == 0);
}

TEST(start_failures_are_reported)
{
    struct box_result r;
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b);
    box_begin(&b, &w, SUP_EXEC, "a1");
    sup_put_str(&w, SUP_TAG_ARG, "no-such-command");
    box_send(&b, &w);
    box_collect(&b, "a1", &r);
    CHECK(r.start.code == ERR_NOT_FOUND);
    CHECK_STR(r.start.msg, "command 'no-such-command' not found");
    CHECK(r.rec.cause == END_START_FAILED && end_record_status(&r.rec) == 127);
    box_result_done(&r);

    box_begin(&b, &w, SUP_EXEC, "a2");
    sup_put_str(&w, SUP_TAG_ARG, "/etc/passwd");
    box_send(&b, &w);
    box_collect(&b, "a2", &r);
    CHECK(r.start.code == ERR_DENIED && end_record_status(&r.rec) == 126);
    box_result_done(&r);

    box_exec_begin(&b, &w, "a3", "true");
    sup_put_str(&w, SUP_TAG_USER, "nobody-here");
    box_send(&b, &w);
    box_collect(&b, "a3", &r);
    CHECK(r.start.code == ERR_INVALID && end_record_status(&r.rec) == 125);
    box_result_done(&r);

    /* The leaked-descriptor attack: a working folder through /proc/self/fd. */
    for (int i = 0; i < 12; i++) {
        char id[8], cwd[32];

        snprintf(id, sizeof(id), "c%d", i);
        snprintf(cwd, sizeof(cwd), "/proc/self/fd/%d", i);
        box_exec_begin(&b, &w, id, "true");
        sup_put_str(&w, SUP_TAG_CWD, cwd);
        box_send(&b, &w);
        box_collect(&b, id, &r);
        CHECK(r.rec.cause == END_START_FAILED);
        box_result_done(&r);
    }
    box_stop(&b);
    CHECK(box_leftovers(&b) == 0);
}

TEST(timeout_kills_the_whole_tree)
{
    struct box_result r;
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b);
    box_exec_begin(&b, &w, "a1",
                   "setsid sleep 777 & (setsid setsid sleep 777 &); trap '' TERM; sleep 777");
    sup_put_u64(&w, SUP_TAG_TIMEOUT, 300000);
    box_send(&b, &w);
    box_collect(&b, "a1", &r);
    CHECK(r.rec.cause == END_TIMEOUT && r.rec.signal == SIGKILL);
    CHECK(r.rec.wall_usec >= 300000 && r.rec.wall_usec < 20 * USEC_PER_SEC);
    box_result_done(&r);
    SAYS(b, "a2", "pgrep sleep | wc -l", "0\n");

    box_exec_begin(&b, &w, "a3", "echo a; sleep 0.2; echo b; sleep 777");
    sup_put_u64(&w, SUP_TAG_IDLE_TIMEOUT, 1500000);
    box_send(&b, &w);
    box_collect(&b, "a3", &r);
    CHECK(r.rec.cause == END_IDLE_TIMEOUT && r.rec.wall_usec >= 1700000);
    CHECK_STR(r.out, "a\nb\n");
    box_result_done(&r);
    box_stop(&b);
}

TEST(oom_is_recognized_by_the_counter)
{
    struct box_result r;
    _cleanup_box_ struct box b = BOX_EMPTY;

    if (box_unavailable())
        SKIP(box_unavailable());
    box_init(&b);
    b.plan.memory = 32 << 20;
    CHECK(box_up(&b) >= 0);
    if (b.unenforced & LIMIT_MEMORY) {
        box_stop(&b);
        SKIP("no memory limit here");
    }
    box_run(&b, "a1", "exec head -c 200M /dev/zero | exec tail", &r); /* tail keeps it all */
    CHECK(r.rec.oom_kills >= 1);
    box_result_done(&r);
    box_run(&b, "a2", "exec tail /dev/zero", &r);
    CHECK(r.rec.cause == END_OOM && r.rec.signal == SIGKILL && r.rec.oom_kills == 1);
    CHECK(r.rec.memory_limit == b.plan.memory && r.rec.memory_peak > b.plan.memory / 2);
    box_result_done(&r);
    box_run(&b, "a3", "kill -KILL $$", &r);
    CHECK(r.rec.cause == END_SIGNALED && r.rec.signal == SIGKILL);
    box_result_done(&r);
    box_stop(&b);
}

TEST(pids_limit)
{
    struct box_result r;
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b);
    box_run(&b, "a1", "for i in $(seq 200); do sleep 777 & done; exit 0", &r);
    CHECK(r.ended && r.rec.pids_denied > 0 && r.rec.cause == END_PIDS_LIMIT);
    box_result_done(&r);
    box_stop(&b);
    CHECK(box_leftovers(&b) == 0);
}

TEST(kill_and_signal)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct box_result r;
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;
    size_t len;

    UP(b);
    box_exec_begin(&b, &w, "a1",
                   "trap 'echo usr; exit 3' USR1; echo up; while :; do sleep 0.01; done");
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_STARTED, packet, &len, NULL) && box_said(&b, "a1", "up\n"));
    box_begin(&b, &w, SUP_SIGNAL, "a1");
    sup_put_u64(&w, SUP_TAG_SIGNAL, SIGUSR1);
    box_send(&b, &w);
    box_collect(&b, "a1", &r);
    CHECK_STR(r.out, "up\nusr\n");
    CHECK(r.rec.cause == END_EXITED && r.rec.exit_code == 3);
    box_result_done(&r);

    box_exec_begin(&b, &w, "a2", "sleep 777 & sleep 777");
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_STARTED, packet, &len, NULL));
    box_begin(&b, &w, SUP_KILL, "a2");
    box_send(&b, &w);
    box_collect(&b, "a2", &r);
    CHECK(r.rec.cause == END_KILLED && r.rec.drained);
    box_result_done(&r);

    box_begin(&b, &w, SUP_KILL, "nothere");
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_RESULT, packet, &len, NULL));
    CHECK(sup_read_err(packet, len, NULL) == -ERR_NOT_FOUND);
    box_stop(&b);
}

TEST(daemonised_child)
{
    struct box_result r;
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b);
    box_run(&b, "a1", "(sleep 777; echo late) & echo main", &r);
    CHECK(r.ended && r.rec.cause == END_EXITED && r.rec.exit_code == 0 && !r.rec.drained);
    CHECK_STR(r.out, "main\n");
    box_result_done(&r);
    SAYS(b, "a2", "pgrep -x sleep | wc -l", "1\n");
    box_stop(&b);
    CHECK(box_leftovers(&b) == 0);
}

/* Each process is dead when its output ends, but the last one may not be reaped yet. */
TEST(orphans_are_reaped)
{
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b);
    SAYS(b, "a1",
         "for i in 1 2 3 4 5 6 7 8; do x=$( (echo &) ); done;"
         "dead=$(cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.Z');"
         "[ $dead -lt 4 ] && echo few",
         "few\n");
    box_stop(&b);
}

TEST(stdin_and_half_close)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct box_result r;
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;
    size_t len;
    int fd;

    UP(b);
    box_exec_begin(&b, &w, "a1", "cat; echo done");
    sup_put_u64(&w, SUP_TAG_FLAGS, SUP_EXEC_STDIN);
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_STARTED, packet, &len, &fd));
    CHECK(fd >= 0 && write(fd, "hi\n", 3) == 3);
    close(fd);
    box_collect(&b, "a1", &r);
    CHECK_STR(r.out, "hi\ndone\n");
    box_result_done(&r);
    SAYS(b, "a2", "cat; echo empty", "empty\n");
    box_stop(&b);
}

static pid_t pid_of(const char *packet, size_t len)
{
    struct sup_reader rd;
    struct sup_value v;
    pid_t pid = 0;

    if (sup_read(&rd, packet, len, NULL) >= 0)
        while (sup_next(&rd, &v, NULL) > 0)
            if (v.tag == SUP_TAG_PID)
                pid = (pid_t)v.u64;
    return pid;
}

/* True if the process has ended and nobody has reaped it. */
static bool is_zombie(pid_t pid)
{
    struct deadline by = deadline_in(60 * USEC_PER_SEC);
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    do {
        _cleanup_free_ char *text = NULL;
        const char *state;

        if (file_read(AT_FDCWD, path, 4096, &text, NULL, NULL) < 0)
            return false;
        state = strrchr(text, ')');
        if (state && state[1] && state[2] == 'Z')
            return true;
        usleep(1000);
    } while (!deadline_passed(&by));
    return false;
}

/* A dead daemon's pipe may close before its socket: the command ends, and the shim sees that
 * first. */
TEST(input_lost_with_the_daemon_is_reported)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct box_result r;
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;
    int fd = -1, first;
    size_t len;
    pid_t pid;

    UP(b);
    box_exec_begin(&b, &w, "a1", "exec cat");
    sup_put_u64(&w, SUP_TAG_FLAGS, SUP_EXEC_STDIN | SUP_EXEC_ATTACH);
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_STARTED, packet, &len, &fd));
    pid = pid_of(packet, len);
    first = b.sock;
    b.sock = box_connect(&b);
    /* When it sends HELLO, it has closed its own copy of the pipe. */
    CHECK(box_expect(&b, SUP_HELLO, packet, &len, NULL));
    CHECK(pidfd_signal(b.pidfd, SIGSTOP) == 0);
    close(fd);
    CHECK(is_zombie(pid));
    close(first);
    CHECK(pidfd_signal(b.pidfd, SIGCONT) == 0);
    box_collect(&b, "a1", &r);
    CHECK(strstr(r.rec.message, "input was truncated"));
    box_result_done(&r);
    box_stop(&b);
}

enum { SLOW_TO_CLOSE = 128 << 20, SLOW_FD = 500, LAST_FD = 501 };

/* A daemon that dies slowly: many milliseconds pass between the end of a command's stdin and the
 * end of the socket. The kernel closes descriptors from the highest number down and has much to
 * free in between. */
_noreturn_ static void die_slowly(struct box *b)
{
    char *packet = xmalloc(SUP_MSG_MAX), *memory;
    struct sup_writer w;
    size_t len;
    int fd = -1, slow = memfd_create("slow", MFD_CLOEXEC);

    b->sock = box_connect(b);
    box_exec_begin(b, &w, "a1", "exec cat");
    sup_put_u64(&w, SUP_TAG_FLAGS, SUP_EXEC_STDIN | SUP_EXEC_ATTACH);
    box_send(b, &w);
    if (slow < 0 || ftruncate(slow, SLOW_TO_CLOSE) < 0 ||
        !box_expect(b, SUP_STARTED, packet, &len, &fd))
        _exit(1);
    memory = mmap(NULL, SLOW_TO_CLOSE, PROT_READ | PROT_WRITE, MAP_SHARED, slow, 0);
    if (memory == MAP_FAILED)
        _exit(1);
    memset(memory, 'x', SLOW_TO_CLOSE);
    if (dup2(slow, SLOW_FD) < 0 || dup2(fd, LAST_FD) < 0)
        _exit(1);
    close(slow);
    close(fd);
    usleep(100000); /* cat reads */
    _exit(0);
}

TEST(input_lost_with_a_slowly_dying_daemon_is_reported)
{
    struct box_result r;
    _cleanup_box_ struct box b = BOX_EMPTY;
    int status = -1;
    pid_t pid;

    UP(b);
    pid = fork();
    if (pid == 0)
        die_slowly(&b);
    CHECK(pid > 0);
    box_collect(&b, "a1", &r);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(strstr(r.rec.message, "input was truncated"));
    box_result_done(&r);
    box_stop(&b);
}

TEST(terminal)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct box_result r;
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;
    size_t len;
    int fd;

    UP(b);
    box_exec_begin(&b, &w, "a1",
                   "test -t 0 && test -t 1 && test -t 2 && tty; stat -c %U $(tty); stty size; read "
                   "x; stty size; echo got $x");
    sup_put_u64(&w, SUP_TAG_FLAGS, SUP_EXEC_TTY | SUP_EXEC_STDIN);
    sup_put_u64(&w, SUP_TAG_ROWS, 30);
    sup_put_u64(&w, SUP_TAG_COLS, 90);
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_STARTED, packet, &len, &fd));
    CHECK(box_said(&b, "a1", "30 90\r\n"));
    box_begin(&b, &w, SUP_RESIZE, "a1");
    sup_put_u64(&w, SUP_TAG_ROWS, 40);
    sup_put_u64(&w, SUP_TAG_COLS, 100);
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_RESULT, packet, &len, NULL));
    CHECK(fd >= 0 && write(fd, "word\n", 5) == 5);
    close(fd);
    box_collect(&b, "a1", &r);
    CHECK_STR(r.out, "/dev/pts/0\r\nagent\r\n30 90\r\nword\r\n40 100\r\ngot word\r\n");
    box_result_done(&r);
    box_stop(&b);
}

TEST(large_output_is_exact)
{
    struct box_result r;
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b);
    box_run(&b, "a1", "seq 1000000 1 5000000; exit 0", &r); /* 32 MB: three segments */
    CHECK(r.rec.stdout_bytes == 4000001 * 8 && r.out_len == r.rec.stdout_bytes);
    for (unsigned i = 0; i < 4000001; i += 997) {
        char want[16];

        snprintf(want, sizeof(want), "%07u\n", 1000000 + i);
        CHECK(memcmp(r.out + (size_t)i * 8, want, 8) == 0);
    }
    box_result_done(&r);
    box_stop(&b);
}

TEST(budget_drops_the_oldest_without_a_reader)
{
    struct box_result r;
    _cleanup_box_ struct box b = BOX_EMPTY;

    if (box_unavailable())
        SKIP(box_unavailable());
    box_init(&b);
    b.plan.journal_budget = 20 << 20;
    CHECK(box_up(&b) >= 0);
    box_run(&b, "a1", "head -c 100M /dev/zero", &r);
    CHECK(r.rec.exit_code == 0 && r.rec.stdout_bytes == 100 << 20);
    CHECK(r.rec.stdout_dropped >= 80 << 20 && r.rec.stdout_dropped % (16 << 20) == 0);
    box_result_done(&r);
    box_stop(&b);
}

/* The stdout offset of one OUTPUT. */
static uint64_t offset_of(const char *packet, size_t len)
{
    struct sup_reader r;
    struct sup_value v;
    uint64_t at = 0;

    if (sup_read(&r, packet, len, NULL) < 0)
        return 0;
    while (sup_next(&r, &v, NULL) > 0)
        if (v.tag == SUP_TAG_STDOUT)
            at = v.u64;
    return at;
}

/* OUTPUT or ENDED, the one that comes first; 0 if neither comes in time. */
static int next_news(struct box *b, char *packet, size_t *len, int ms)
{
    struct pollfd p = {.fd = b->sock, .events = POLLIN};
    int type = 0;

    while (type != SUP_OUTPUT && type != SUP_ENDED) {
        if (poll(&p, 1, ms) <= 0)
            return 0;
        type = box_recv(b, packet, len, NULL);
        if (type <= 0)
            return 0;
    }
    return type;
}

/* Without the guard under test a message will come, however long that takes on a busy machine. */
static int patience(void)
{
    const char *without = getenv("RIPCORD_WITHOUT");

    return without && *without ? 60000 : 500;
}

TEST(attached_reader_holds_the_writer_up)
{
    enum { AHEAD = 22 << 20 };
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;
    uint64_t at = 0, now;
    size_t len;
    int type;

    if (box_unavailable())
        SKIP(box_unavailable());
    box_init(&b);
    b.plan.journal_budget = 20 << 20;
    CHECK(box_up(&b) >= 0);
    box_exec_begin(&b, &w, "a1", "head -c 100M /dev/zero");
    sup_put_u64(&w, SUP_TAG_FLAGS, SUP_EXEC_ATTACH);
    box_send(&b, &w);
    CHECK(next_news(&b, packet, &len, BOX_WAIT_MS) == SUP_OUTPUT);
    now = offset_of(packet, len);
    CHECK(next_news(&b, packet, &len, patience()) == 0); /* unread, it cannot end */
    for (type = SUP_OUTPUT; type == SUP_OUTPUT; now = offset_of(packet, len)) {
        CHECK(now > at && now <= at + AHEAD);
        at = now;
        box_begin(&b, &w, SUP_ACK, "a1");
        sup_put_u64(&w, SUP_TAG_STDOUT, at);
        box_send(&b, &w);
        type = next_news(&b, packet, &len, BOX_WAIT_MS);
    }
    CHECK(type == SUP_ENDED && at > (100 << 20) - AHEAD);
    box_stop(&b);
}

TEST(pause_and_resume)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct box_result r;
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;
    _cleanup_free_ char *heard = NULL;
    size_t len;
    int fd;

    UP(b);
    box_exec_begin(&b, &w, "a1", "echo up; exec cat");
    sup_put_u64(&w, SUP_TAG_FLAGS, SUP_EXEC_STDIN);
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_STARTED, packet, &len, &fd) && box_said(&b, "a1", "up\n"));
    box_begin(&b, &w, SUP_PAUSE, NULL);
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_RESULT, packet, &len, NULL));
    CHECK(sup_read_err(packet, len, NULL) == 0);
    CHECK(fd >= 0 && write(fd, "said\n", 5) == 5);
    close(fd);
    usleep(500000); /* a message would have arrived by now */
    heard = box_heard(&b, "a1");
    CHECK_STR(heard, "up\n");
    box_exec_begin(&b, &w, "a2", "true");
    box_send(&b, &w);
    box_collect(&b, "a2", &r);
    CHECK(r.start.code == ERR_CONFLICT);
    box_result_done(&r);
    box_begin(&b, &w, SUP_RESUME, NULL);
    box_send(&b, &w);
    box_collect(&b, "a1", &r);
    CHECK_STR(r.out, "up\nsaid\n");
    CHECK(r.rec.wall_usec >= 500000);
    box_result_done(&r);
    box_stop(&b);
}

TEST(stop_ends_execs_with_a_grace)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct box_result r;
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;
    size_t len;

    UP(b);
    box_exec_begin(&b, &w, "a1",
                   "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done");
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_STARTED, packet, &len, NULL));
    box_exec_begin(&b, &w, "a2", "trap '' TERM; echo up; while :; do sleep 0.01; done");
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_STARTED, packet, &len, NULL));
    CHECK(box_said(&b, "a1", "up\n") && box_said(&b, "a2", "up\n"));
    box_begin(&b, &w, SUP_STOP, NULL);
    sup_put_u64(&w, SUP_TAG_GRACE, 1500000);
    box_send(&b, &w);
    box_collect(&b, "a1", &r);
    CHECK_STR(r.out, "up\nbye\n");
    CHECK(r.rec.cause == END_SANDBOX_STOPPED && r.rec.exit_code == 0);
    box_result_done(&r);
    box_collect(&b, "a2", &r);
    CHECK(r.rec.cause == END_SANDBOX_STOPPED && r.rec.signal == SIGKILL);
    box_result_done(&r);
    CHECK(box_expect(&b, SUP_STOPPED, packet, &len, NULL));
    CHECK(box_wait(&b) == 0);
    CHECK(box_leftovers(&b) == 0);
}

TEST(ephemeral_goes_by_itself)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct box_result r;
    _cleanup_box_ struct box b = BOX_EMPTY;
    size_t len;

    if (box_unavailable())
        SKIP(box_unavailable());
    box_init(&b);
    b.plan.ephemeral = true;
    CHECK(box_up(&b) >= 0);
    box_run(&b, "a1", "sleep 777 & echo hi; exit 5", &r);
    CHECK_STR(r.out, "hi\n");
    CHECK(r.rec.cause == END_EXITED && r.rec.exit_code == 5 && r.rec.drained);
    box_result_done(&r);
    CHECK(box_expect(&b, SUP_STOPPED, packet, &len, NULL));
    CHECK(box_wait(&b) == 0);
    CHECK(box_leftovers(&b) == 0);
}

TEST(outlives_the_daemon)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct box_result r;
    struct sup_writer w;
    _cleanup_box_ struct box b = BOX_EMPTY;
    size_t len;

    UP(b);
    box_exec_begin(&b, &w, "a1",
                   "trap 'echo 2; exit 4' USR1; echo 1; while :; do sleep 0.01; done");
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_STARTED, packet, &len, NULL) && box_said(&b, "a1", "1\n"));
    b.sock = fd_close(b.sock);
    b.sock = box_connect(&b);
    CHECK(b.sock >= 0);
    box_begin(&b, &w, SUP_SIGNAL, "a1");
    sup_put_u64(&w, SUP_TAG_SIGNAL, SIGUSR1);
    box_send(&b, &w);
    box_collect(&b, "a1", &r);
    CHECK_STR(r.out, "1\n2\n");
    CHECK(r.rec.exit_code == 4);
    box_result_done(&r);
    SAYS(b, "a2", "echo again", "again\n");
    box_stop(&b);
    CHECK(box_leftovers(&b) == 0);
}

TEST(pid_1_killed)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct box_result r;
    struct sup_writer w;
    pid_t init;
    _cleanup_box_ struct box b = BOX_EMPTY;
    size_t len;

    UP(b);
    close(b.sock);
    b.sock = box_connect(&b);
    CHECK(box_expect(&b, SUP_HELLO, packet, &len, NULL));
    init = pid_of(packet, len);
    box_exec_begin(&b, &w, "a1", "sleep 777");
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_STARTED, packet, &len, NULL));
    CHECK(init > 1 && kill(init, SIGKILL) == 0);
    box_collect(&b, "a1", &r);
    CHECK(r.rec.cause == END_SANDBOX_STOPPED && r.rec.signal == SIGKILL);
    box_result_done(&r);
    CHECK(box_wait(&b) == 0);
    CHECK(box_leftovers(&b) == 0);
}

TEST(shim_killed_ends_the_sandbox)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct sup_writer w;
    struct deadline by = deadline_in(60 * USEC_PER_SEC);
    _cleanup_box_ struct box b = BOX_EMPTY;
    size_t len;
    int left = 1;

    UP(b);
    box_exec_begin(&b, &w, "a1", "setsid sleep 777 & sleep 777");
    box_send(&b, &w);
    CHECK(box_expect(&b, SUP_STARTED, packet, &len, NULL));
    /* Orphans become our children: pid 1 of a container may reap them late. */
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    pidfd_signal(b.pidfd, SIGKILL);
    while (left && !deadline_passed(&by)) {
        usleep(20000);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        left = box_leftovers_now(&b) - 1; /* the cgroup folder is the daemon's to remove */
    }
    CHECK(left == 0);
}

TEST(hostile_root_is_refused)
{
    _cleanup_box_ struct box b = BOX_EMPTY;

    if (box_unavailable())
        SKIP(box_unavailable());
    box_init(&b);
    {
        _cleanup_free_ char *dev = xasprintf("%s/lower/dev", b.dir);

        CHECK(rmdir(dev) == 0 && symlink("/proc/sys/kernel", dev) == 0);
    }
    CHECK(box_up(&b) < 0);
    CHECK(strstr(b.err.msg, "/dev") != NULL && b.err.hint != NULL);
    CHECK(box_wait(&b) == 1 << 8);
    CHECK(box_leftovers(&b) == 0);
}

TEST(mounts)
{
    _cleanup_box_ struct box b = BOX_EMPTY;
    char *source;

    if (box_unavailable())
        SKIP(box_unavailable());
    box_init(&b);
    source = xasprintf("%s/shared", b.dir);
    CHECK(mkdir(source, 0700) == 0 && chown(source, 4242, 4242) == 0);
    b.plan.mounts = xcalloc(2, sizeof(*b.plan.mounts));
    b.plan.mounts[0] =
        (struct plan_mount){.source = xstrdup(source), .target = xstrdup("/work/rw")};
    b.plan.mounts[1] = (struct plan_mount){
        .source = xstrdup(source), .target = xstrdup("/home/agent/ro"), .read_only = true};
    b.plan.n_mounts = 2;
    CHECK(box_up(&b) >= 0);
    SAYS(b, "a1",
         "echo x > /work/rw/f; stat -c %u:%g /work/rw /work/rw/f; cat ro/f; touch ro/y 2>/dev/null "
         "|| echo ro",
         "1000:1000\n1000:1000\nx\nro\n");
    box_stop(&b);
    CHECK(box_leftovers(&b) == 0);
    free(source);
}
