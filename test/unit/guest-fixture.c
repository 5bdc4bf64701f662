#include "guest-fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/os/ns.h"
#include "lib/os/pidfd.h"
#include "lib/os/rmtree.h"

#if defined(__SANITIZE_ADDRESS__)
enum { PROGRAM_MODE = 0755 }; /* the sanitizer wants to read its own program */
#else
enum { PROGRAM_MODE = 0111 };
#endif

const char *gbox_unavailable(void)
{
    return geteuid() == 0 ? NULL : "needs root, for namespaces and a user";
}

/* ---- the place ---- */

static bool copy_program(const struct gbox *b, const char *variable, const char *name)
{
    const char *from = getenv(variable);
    _cleanup_free_ char *data = NULL, *to = xasprintf("%s/%s", b->dir, name);
    size_t len;

    if (!from || file_read(AT_FDCWD, from, 64 << 20, &data, &len, NULL) < 0)
        return false;
    return file_replace(AT_FDCWD, to, data, len, PROGRAM_MODE, false, NULL) >= 0 &&
           chmod(to, PROGRAM_MODE) == 0;
}

static bool make_place(struct gbox *b)
{
    char home[sizeof(b->dir) + 8], *dir;

    snprintf(b->dir, sizeof(b->dir), "/tmp/ripcord-guest-XXXXXX");
    dir = mkdtemp(b->dir);
    if (!dir)
        return false;
    snprintf(home, sizeof(home), "%s/home", dir);
    return chmod(b->dir, 0755) == 0 && mkdir(home, 0755) == 0 &&
           chown(home, GBOX_UID, GBOX_UID) == 0 && copy_program(b, "RIPCORD_GUEST", "guest") &&
           copy_program(b, "RIPCORD_GUEST_PREY", "prey");
}

_noreturn_ static void become(const struct gbox *b, const char *program, const char *const *args)
{
    char *env[] = {(char *)"HOME=/engine", (char *)"PATH=/usr/bin:/bin", NULL}, *argv[16];
    _cleanup_free_ char *path = xasprintf("%s/%s", b->dir, program);
    size_t n = 0;

    argv[n++] = path;
    for (; args && *args && n < ARRAY_SIZE(argv) - 1; args++)
        argv[n++] = (char *)*args;
    argv[n] = NULL;
    if (setgroups(0, NULL) < 0 || setgid(GBOX_UID) < 0 || setuid(GBOX_UID) < 0 || setsid() < 0)
        _exit(100);
    execve(program[0] == '/' ? program : path, argv, env);
    _exit(101);
}

_noreturn_ static void be_first(const struct gbox *b, const char *const *init)
{
    static const char *const ours[] = {"init", NULL};

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("proc", "/proc", "proc", 0, NULL) < 0 ||
        mount("devpts", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620") < 0 ||
        ns_loopback_up(NULL) < 0)
        _exit(102);
    become(b, init ? init[0] : "guest", init ? init + 1 : ours);
}

bool gbox_open(struct gbox *b, const char *const *init)
{
    *b = (struct gbox){.init = -1, .init_pidfd = -1};
    signal(SIGPIPE, SIG_IGN); /* guests end while we write; and a command must not inherit it */
    if (!make_place(b))
        return false;
    b->init = ns_clone(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET, -1, &b->init_pidfd);
    if (b->init == 0)
        be_first(b, init);
    /* It has called itself so, or become another program: only then it is as in a container. */
    for (int i = 0; i < GBOX_WAIT_MS / 10 && b->init > 0; i++) {
        _cleanup_free_ char *comm = NULL, *path = xasprintf("/proc/%d/comm", (int)b->init);

        if (file_read(AT_FDCWD, path, 64, &comm, NULL, NULL) >= 0 &&
            STREQ(comm, init ? "sleep\n" : "ripcord-init\n"))
            return true;
        usleep(10000);
    }
    return false;
}

void gbox_close(struct gbox *b)
{
    if (b->init > 0) {
        pidfd_signal(b->init_pidfd, SIGKILL);
        pidfd_reap(b->init_pidfd, true, NULL, NULL);
        b->init_pidfd = fd_close(b->init_pidfd);
    }
    if (*b->dir)
        (void)rmtree(AT_FDCWD, b->dir, NULL);
}

size_t gbox_count(const struct gbox *b)
{
    _cleanup_closedir_ DIR *proc = opendir("/proc");
    char path[NAME_MAX + 32];
    struct stat own, st;
    size_t n = 0;

    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)b->init);
    if (!proc || stat(path, &own) < 0)
        return 0;
    for (const struct dirent *e; (e = readdir(proc));) {
        snprintf(path, sizeof(path), "/proc/%s/ns/pid", e->d_name);
        n += *e->d_name >= '1' && *e->d_name <= '9' && stat(path, &st) == 0 &&
             st.st_ino == own.st_ino;
    }
    return n;
}

bool gbox_settles(const struct gbox *b, size_t count)
{
    for (int i = 0; i < GBOX_WAIT_MS / 10; i++) {
        if (gbox_count(b) == count)
            return true;
        usleep(10000);
    }
    printf("# %zu processes instead of %zu\n", gbox_count(b), count);
    return false;
}

/* ---- connections ---- */

/* Enters like an engine, and starts the guest as a child whose parent is not visible inside. The
 * process in between waits for it. */
_noreturn_ static void enter(const struct gbox *b, int fd, const char *const *args)
{
    int null = open("/dev/null", O_RDWR), status = 0;
    pid_t pid;

    if (ns_enter(b->init_pidfd, CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET, NULL) < 0)
        _exit(103);
    pid = fork();
    if (pid == 0) {
        dup2(fd, 0);
        dup2(fd, 1);
        dup2(null, 2);
        signal(SIGCHLD, SIG_IGN); /* an engine may leave it so */
        become(b, "guest", args);
    }
    syscall(SYS_close_range, 3U, ~0U, 0); /* it must not keep other connections open */
    while (waitpid(pid, &status, 0) < 0)
        ;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

bool gconn_open(struct gconn *l, const struct gbox *b, const char *const *args)
{
    struct guest_hello hello;
    struct guest_frame f;
    int pair[2];

    *l = (struct gconn)GCONN_INIT;
    l->box = b;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return false;
    l->pid = fork();
    if (l->pid == 0)
        enter(b, pair[1], args);
    close(pair[1]);
    l->fd = pair[0];
    if (gconn_next(l, &f) != 1 || guest_get_hello(&f, &hello, NULL) < 0)
        return false;
    l->inside = hello.pid;
    return true;
}

void gconn_hang_up(struct gconn *l)
{
    l->fd = fd_close(l->fd);
}

void gconn_close(struct gconn *l)
{
    gconn_hang_up(l);
    if (l->pid > 0)
        waitpid(l->pid, NULL, 0);
    l->pid = -1;
    buf_done(&l->in);
}

bool gconn_send(const struct gconn *l, const struct buf *frames)
{
    return fd_write_all(l->fd, buf_data(frames), frames->len) == 0;
}

int gconn_next(struct gconn *l, struct guest_frame *ret)
{
    buf_consume(&l->in, l->taken);
    l->taken = 0;
    for (;;) {
        struct pollfd p = {.fd = l->fd, .events = POLLIN};
        size_t used, room = l->in.max - l->in.len;
        int r = guest_parse(buf_data(&l->in), l->in.len, GUEST_SIDE_GUEST, ret, &used, NULL);
        ssize_t n;

        if (r > 0)
            l->taken = used;
        if (r)
            return r > 0 ? 1 : -1;
        if (poll(&p, 1, GBOX_WAIT_MS) <= 0)
            return -1;
        n = read(l->fd, buf_reserve(&l->in, room), room);
        if (n <= 0)
            return n < 0 && errno != ECONNRESET ? -1 : 0;
        buf_commit(&l->in, (size_t)n);
    }
}

bool gconn_run(struct gconn *l, const struct gbox *b, const struct guest_spec *spec)
{
    static const char *const args[] = {"exec", NULL};
    _cleanup_buf_ struct buf frames = BUF_INIT(GUEST_SPEC_WIRE_MAX);
    struct guest_frame f;

    return gconn_open(l, b, args) &&
           guest_put_spec(&frames, spec, GUEST_VERSION_MINOR, NULL) == 0 &&
           gconn_send(l, &frames) && gconn_next(l, &f) == 1 && f.type == GUEST_STARTED;
}

bool gconn_kill(const struct gconn *l, uint8_t flags)
{
    _cleanup_buf_ struct buf b = BUF_INIT(64);

    return guest_put_kill(&b, flags) == 0 && gconn_send(l, &b);
}

bool gconn_stdin(const struct gconn *l, const void *data, size_t len, bool eof)
{
    _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

    for (size_t at = 0; at < len; at += GUEST_PAYLOAD_MAX)
        if (guest_put(&b, GUEST_STDIN, (const char *)data + at,
                      MIN(len - at, (size_t)GUEST_PAYLOAD_MAX)) < 0)
            return false;
    return (!eof || guest_put(&b, GUEST_STDIN_EOF, NULL, 0) == 0) && gconn_send(l, &b);
}

void gend_done(struct gend *e)
{
    buf_done(&e->out);
    buf_done(&e->err);
    err_done(&e->failed);
}

static bool take(struct gend *e, const struct guest_frame *f)
{
    switch ((unsigned)f->type) {
    case GUEST_STDOUT:
        return buf_append(&e->out, f->data, f->length) == 0;
    case GUEST_STDERR:
        return buf_append(&e->err, f->data, f->length) == 0;
    case GUEST_STDIN_ACK:
        e->acked += guest_get_u32(f);
        return true;
    case GUEST_STDIN_CLOSED:
        e->closed = true;
        return true;
    case GUEST_STDOUT_EOF:
        e->out_eof = true;
        return true;
    case GUEST_EXIT:
        return guest_get_exit(f, &e->ex, NULL) == 0;
    case GUEST_FAILED:
        return guest_get_failed(f, &e->failed) == 0;
    case GUEST_DONE:
        guest_get_done(f, &e->done);
        return true;
    default:
        return f->type == GUEST_STARTED;
    }
}

bool gconn_finish(struct gconn *l, struct gend *ret)
{
    struct guest_frame f;
    int r;

    while ((r = gconn_next(l, &f)) == 1) {
        if (!take(ret, &f))
            return false;
        if (f.type == GUEST_EXIT || f.type == GUEST_FAILED || f.type == GUEST_DONE) {
            ret->last = f.type;
            gconn_hang_up(l); /* as the relay does */
            return true;
        }
    }
    return r == 0;
}
