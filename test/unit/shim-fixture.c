#include "shim-fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/journal/journal.h"
#include "lib/os/cgroup.h"
#include "lib/os/pidfd.h"
#include "lib/os/rmtree.h"
#include "lib/os/seccomp-filter.h"

enum { BOX_HEARD_MAX = 4096, BOX_ID_BASE = 0x60000000 };

const char *box_unavailable(void)
{
    if (geteuid() != 0)
        return "needs root";
    if (access("/proc/self/ns/user", F_OK) < 0)
        return "needs user namespaces";
    return NULL;
}

static char *below(const struct box *b, const char *name)
{
    return xasprintf("%s/%s", b->dir, name);
}

static void make(const struct box *b, const char *name, mode_t mode, uid_t owner)
{
    _cleanup_free_ char *path = below(b, name);

    if ((mkdir(path, mode) < 0 && errno != EEXIST) || chmod(path, mode) < 0 ||
        chown(path, owner, owner) < 0)
        perror(path);
}

static void write_text(const struct box *b, const char *name, const char *text)
{
    _cleanup_free_ char *path = below(b, name);

    if (file_replace(AT_FDCWD, path, text, strlen(text), 0644, false, NULL) < 0)
        perror(path);
}

/* As the engine makes it: usr-merge links as on the host, two users. */
static void make_skeleton(const struct box *b)
{
    static const char *const folders[] = {"usr",     "opt", "etc",  "home", "tmp", "run",
                                          "scratch", "dev", "proc", "sys",  "var", "root"};
    static const char *const links[] = {"bin", "sbin", "lib", "lib64", "lib32"};

    make(b, "lower", 0755, 0);
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        _cleanup_free_ char *name = xasprintf("lower/%s", folders[i]);

        make(b, name, 0755, 0);
    }
    make(b, "lower/home/agent", 0755, 1000);
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        char host[32], to[64];
        _cleanup_free_ char *path = xasprintf("%s/lower/%s", b->dir, links[i]);
        ssize_t n;

        snprintf(host, sizeof(host), "/%s", links[i]);
        n = readlink(host, to, sizeof(to) - 1);
        if (n < 0)
            continue;
        to[n] = '\0';
        if (symlink(to, path) < 0)
            perror(path);
    }
    write_text(b, "lower/etc/passwd",
               "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n");
    write_text(b, "lower/etc/group", "root:x:0:\nagent:x:1000:\nextra:x:2000:agent\n");
}

void box_init(struct box *b)
{
    static unsigned count;
    char dir[] = "/tmp/ripcord-test-XXXXXX";
    const char *without = getenv("RIPCORD_WITHOUT"); /* set by test_guards.py */
    struct plan *p = &b->plan;

    *b = (struct box)BOX_EMPTY;
    b->dir = xstrdup(mkdtemp(dir) ? dir : "/nonexistent");
    make(b, "run", 0700, 0);
    make(b, "data", 0700, 0);
    make(b, "execs", 0700, 0);
    make_skeleton(b);
    p->sandbox_id = xasprintf("%08x%08x", (unsigned)getpid(), ++count);
    p->root_id = xasprintf("%016x", (unsigned)getpid());
    p->name = xstrdup("box");
    p->hash = xstrdup("c0ffee");
    p->run_dir = below(b, "run");
    p->data_dir = below(b, "data");
    p->exec_dir = below(b, "execs");
    p->lower_dir = below(b, "lower");
    p->id_base = BOX_ID_BASE + count * PLAN_ID_COUNT;
    p->memory = 256 << 20;
    p->cpu_milli = 2000;
    p->pids = 100;
    p->nofile = 1024;
    p->tmp_size = p->run_size = p->scratch_size = 16 << 20;
    p->user = xstrdup("agent");
    p->workdir = xstrdup("/home/agent");
    strv_add(&p->env, "PATH=/usr/local/bin:/usr/bin:/bin");
    strv_add(&p->env, "LANG=C.UTF-8");
    if (without)
        strv_push(&p->env, xasprintf("RIPCORD_WITHOUT=%s", without));
    p->journal_budget = 64 << 20;
    p->cgroup_parent = xstrdup("ripcord-test");
}

/* As the engine makes it (daemon/engine/native/confined.c). */
void box_init_confined(struct box *b, uint32_t own_id)
{
    static const char *const readable[] = {"/usr",        "/bin",         "/lib",
                                           "/lib64",      "/sbin",        "/etc/ld.so.cache",
                                           "/etc/passwd", "/proc/cpuinfo"};
    static const char *const folders[] = {PLAN_CONFINED_HOME, PLAN_CONFINED_TMP,
                                          PLAN_CONFINED_CACHE};
    struct plan *p = &b->plan;
    size_t n;

    box_init(b);
    make(b, ".", 0711, 0);
    make(b, "data", 0711, 0);
    make(b, "data/" PLAN_CONFINED_DIR, 0711, 0);
    make(b, "data/" PLAN_CONFINED_BIN, 0755, 0);
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        _cleanup_free_ char *name = xasprintf("data/%s", folders[i]);

        make(b, name, 0700, own_id);
    }
    p->confined = true;
    p->own_id = own_id;
    p->own_group = own_id ? own_id - 1 : 0;
    p->id_base = 0;
    p->network = PLAN_NETWORK_NONE;
    p->seccomp = seccomp_filter_compile(SECCOMP_NO_SET_ID, &n);
    p->seccomp_len = n * sizeof(struct sock_filter);
    for (size_t i = 0; i < ARRAY_SIZE(readable); i++)
        strv_add(&p->readable, readable[i]);
    p->ports = xcalloc(1, sizeof(*p->ports));
    p->ports[0] = (struct plan_ports){41000, 41063};
    p->n_ports = 1;
}

static char *shim_path(void)
{
    const char *given = getenv("RIPCORD_SHIM");
    char self[4096];
    ssize_t n;

    if (given)
        return xstrdup(given);
    n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    for (int i = 0; i < 3 && strrchr(self, '/'); i++)
        *strrchr(self, '/') = '\0';
    return xasprintf("%s/src/bin/ripcord-shim", self);
}

static int spawn(struct box *b, int control, struct err *err)
{
    _cleanup_free_ char *path = shim_path();
    char *const argv[] = {(char *)"ripcord-shim", NULL}, *const env[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    pid_t pid;
    int r;

    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_adddup2(&actions, control, SUP_FD_CONTROL);
    r = posix_spawn(&pid, path, &actions, &attr, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    if (r)
        return err_sys(err, r, "start '%s'", path);
    b->shim = pid;
    return pidfd_open_pid(pid, &b->pidfd, err);
}

static void hello(int sock)
{
    struct sup_writer w;

    sup_begin(&w, SUP_HELLO, 0);
    sup_put_u64(&w, SUP_TAG_VERSION, (uint64_t)SUP_VERSION_MAJOR << 32);
    if (sup_finish(&w, NULL) >= 0)
        fd_send(sock, buf_data(&w.buf), w.buf.len, NULL, 0, 0);
    sup_writer_done(&w);
}

static int await_ready(struct box *b)
{
    char *packet = xmalloc(SUP_MSG_MAX);
    struct sup_reader r;
    struct sup_value v;
    size_t len;
    int type;

    do
        type = box_recv(b, packet, &len, NULL);
    while (type == SUP_HELLO);
    if (type == SUP_FAILED)
        sup_read_err(packet, len, &b->err);
    else if (type != SUP_READY)
        err_set(&b->err, ERR_ENGINE, "got message %d instead of READY", type);
    else if (sup_read(&r, packet, len, NULL) >= 0)
        while (sup_next(&r, &v, NULL) > 0)
            if (v.tag == SUP_TAG_UNENFORCED)
                b->unenforced = (uint32_t)v.u64;
    free(packet);
    return -(int)b->err.code;
}

int box_up(struct box *b)
{
    _cleanup_close_ int plan = -1, far = -1;
    int pair[2], r;

    r = plan_write(&b->plan, &plan, &b->err);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(&b->err, errno, "socketpair");
    b->sock = pair[0];
    far = pair[1];
    r = spawn(b, far, &b->err);
    if (r >= 0)
        r = plan_give(b->sock, (int[]){plan, STDERR_FILENO}, 2, &b->err);
    if (r < 0)
        return r;
    far = fd_close(far);
    hello(b->sock);
    return await_ready(b);
}

int box_wait(struct box *b)
{
    struct pollfd p = {.fd = b->pidfd, .events = POLLIN};
    int status = -1;

    if (b->pidfd < 0 || poll(&p, 1, BOX_WAIT_MS) <= 0)
        return -1;
    pidfd_reap(b->pidfd, true, &status, NULL);
    b->pidfd = fd_close(b->pidfd);
    return status;
}

void box_down(struct box *b)
{
    if (!b->dir)
        return;
    if (b->pidfd >= 0) {
        pidfd_signal(b->pidfd, SIGKILL);
        box_wait(b);
        cgroup_sweep(b->plan.cgroup_parent, b->plan.root_id, b->plan.sandbox_id, NULL);
    }
    cgroup_remove_root(b->plan.cgroup_parent, b->plan.root_id);
    b->sock = fd_close(b->sock);
    if (rmtree(AT_FDCWD, b->dir, &b->err) < 0)
        fprintf(stderr, "# %s\n", b->err.msg);
    plan_done(&b->plan);
    err_done(&b->err);
    free(TAKE_PTR(b->dir));
}

/* ---- messages ---- */

void box_begin(struct box *b, struct sup_writer *w, enum sup_msg_type type, const char *exec)
{
    sup_begin(w, type, ++b->seq);
    sup_put_str(w, SUP_TAG_EXEC, exec);
}

void box_send(struct box *b, struct sup_writer *w)
{
    if (sup_finish(w, NULL) >= 0)
        fd_send(b->sock, buf_data(&w->buf), w->buf.len, NULL, 0, 0);
    sup_writer_done(w);
}

int box_recv(struct box *b, char packet[SUP_MSG_MAX], size_t *len, int *fd)
{
    struct pollfd p = {.fd = b->sock, .events = POLLIN};
    size_t n_fds = fd ? 1 : 0;
    struct sup_msg head;
    ssize_t n;

    if (poll(&p, 1, BOX_WAIT_MS) <= 0)
        return -1;
    if (fd)
        *fd = -1;
    n = fd_recv(b->sock, packet, SUP_MSG_MAX, fd, &n_fds, 0);
    if (n < (ssize_t)sizeof(head))
        return 0;
    memcpy(&head, packet, sizeof(head));
    *len = (size_t)n;
    return head.type;
}

bool box_expect(struct box *b, enum sup_msg_type type, char packet[SUP_MSG_MAX], size_t *len,
                int *fd)
{
    int got;

    while ((got = box_recv(b, packet, len, fd)) > 0)
        if (got == (int)type)
            return true;
    return false;
}

void box_stop(struct box *b)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);
    struct sup_writer w;
    size_t len;

    box_begin(b, &w, SUP_STOP, NULL);
    sup_put_u64(&w, SUP_TAG_GRACE, 100000);
    box_send(b, &w);
    box_expect(b, SUP_STOPPED, packet, &len, NULL);
    box_wait(b);
}

int box_connect(const struct box *b)
{
    _cleanup_close_ int dir = open(b->plan.run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd;

    if (dir < 0 || unix_connect(dir, "shim.sock", SOCK_SEQPACKET, &fd, NULL) < 0)
        return -1;
    hello(fd);
    return fd;
}

/* ---- execs ---- */

void box_exec_begin(struct box *b, struct sup_writer *w, const char *id, const char *script)
{
    box_begin(b, w, SUP_EXEC, id);
    sup_put_str(w, SUP_TAG_ARG, "/bin/sh");
    sup_put_str(w, SUP_TAG_ARG, "-c");
    sup_put_str(w, SUP_TAG_ARG, script);
}

static char *read_journal(const struct box *b, const char *id, enum journal_stream which,
                          uint64_t want, size_t *ret_len)
{
    _cleanup_close_ int dir = open(b->plan.exec_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct journal_reader r;
    char *text = xmalloc(want + 1);
    size_t len = 0;
    ssize_t n = 1;

    if (journal_reader_open(&r, dir, id, which, NULL) >= 0) {
        while (len < want && n > 0) {
            n = journal_reader_read(&r, len, text + len, want - len, NULL);
            len += n > 0 ? (size_t)n : 0;
        }
        journal_reader_done(&r);
    }
    text[len] = '\0';
    *ret_len = len;
    return text;
}

static bool is_about(const char *packet, size_t len, const char *id, const char **record,
                     size_t *record_len)
{
    struct sup_reader r;
    struct sup_value v;
    bool same = false;

    if (sup_read(&r, packet, len, NULL) < 0)
        return false;
    while (sup_next(&r, &v, NULL) > 0) {
        if (v.tag == SUP_TAG_EXEC)
            same = STREQ(v.data, id);
        if (v.tag == SUP_TAG_RECORD) {
            *record = v.data;
            *record_len = v.length;
        }
    }
    return same;
}

void box_collect(struct box *b, const char *id, struct box_result *ret)
{
    char *packet = xmalloc(SUP_MSG_MAX);
    size_t len;
    int type;

    *ret = (struct box_result){0};
    while (!ret->ended && (type = box_recv(b, packet, &len, NULL)) > 0) {
        const char *record = "";
        size_t record_len = 0;

        if (!is_about(packet, len, id, &record, &record_len))
            continue;
        if (type == SUP_EXEC_FAILED)
            sup_read_err(packet, len, &ret->start);
        if (type == SUP_ENDED)
            ret->ended = end_record_parse(record, record_len, &ret->rec, NULL) >= 0;
    }
    free(packet);
    ret->out = read_journal(b, id, JOURNAL_STDOUT, ret->rec.stdout_bytes, &ret->out_len);
    ret->err = read_journal(b, id, JOURNAL_STDERR, ret->rec.stderr_bytes, &ret->err_len);
}

void box_run(struct box *b, const char *id, const char *script, struct box_result *ret)
{
    struct sup_writer w;

    box_exec_begin(b, &w, id, script);
    box_send(b, &w);
    box_collect(b, id, ret);
}

void box_result_done(struct box_result *r)
{
    free(r->out);
    free(r->err);
    err_done(&r->start);
}

char *box_heard(const struct box *b, const char *id)
{
    size_t len;

    return read_journal(b, id, JOURNAL_STDOUT, BOX_HEARD_MAX, &len);
}

bool box_said(const struct box *b, const char *id, const char *text)
{
    struct deadline by = deadline_in(BOX_WAIT_MS * USEC_PER_MSEC);

    for (;;) {
        _cleanup_free_ char *heard = box_heard(b, id);

        if (strstr(heard, text))
            return true;
        if (deadline_passed(&by))
            return false;
        usleep(1000);
    }
}

/* ---- what is left ---- */

static int count_mounts(const struct box *b)
{
    _cleanup_free_ char *text = NULL;
    int n = 0;

    if (file_read(AT_FDCWD, "/proc/self/mountinfo", 1 << 20, &text, NULL, NULL) < 0)
        return 1;
    for (const char *p = text; (p = strstr(p, b->dir)); p++)
        n++;
    return n;
}

/* Processes whose uids lie in this box's range. */
static int count_processes(const struct box *b)
{
    _cleanup_closedir_ DIR *d = opendir("/proc");
    struct dirent *de;
    int n = 0;

    while (d && (de = readdir(d))) {
        struct stat st;

        if (de->d_name[0] < '1' || de->d_name[0] > '9' || fstatat(dirfd(d), de->d_name, &st, 0) < 0)
            continue;
        n += st.st_uid >= b->plan.id_base && st.st_uid < b->plan.id_base + PLAN_ID_COUNT;
    }
    return n;
}

int box_leftovers_now(const struct box *b)
{
    char **ids = NULL;
    int n = 0;

    if (cgroup_list(b->plan.cgroup_parent, b->plan.root_id, &ids, NULL) >= 0)
        n += strv_contains(ids, b->plan.sandbox_id);
    strv_free(ids);
    return n + count_mounts(b) + count_processes(b);
}

/* Processes that init must reap may be visible for a moment more. */
int box_leftovers(const struct box *b)
{
    struct deadline by = deadline_in(BOX_WAIT_MS * USEC_PER_MSEC);
    int n;

    while ((n = box_leftovers_now(b)) > 0 && !deadline_passed(&by))
        usleep(1000);
    return n;
}
