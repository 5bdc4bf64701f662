/*
 * The native engine with the real shim, below the daemon: start, exec, take over, death, removal,
 * and that nothing is left. Needs ripcord-shim from the same build (or RIPCORD_LIBEXEC) and a
 * machine that can isolate.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine-objects.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/exec-request.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/sandbox-request.h"
#include "daemon/engine/supervisor-conn.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/journal/journal.h"
#include "lib/loop/loop.h"
#include "lib/os/cgroup.h"
#include "lib/os/rmtree.h"
#include "tap.h"

#define SANDBOX_ID "00000000000000aa"
#define ROOT "00000000feedbeef"

struct bed {
    char dir[48], *libexec;
    struct loop *loop;
    struct engine *engine;
    struct supervisor_conn *conn;

    unsigned calls;
    struct err err;
    struct engine_sandbox sandbox;
    char **ids;

    unsigned execs, started, ended, closed;
    int pid;
    char exec[EXEC_ID_LEN + 1];
    struct end_record rec;
};

static void note(struct bed *b, const struct err *err)
{
    err_done(&b->err);
    if (err) {
        err_copy(&b->err, err);
        printf("# %s%s%s\n", err->msg, err->hint ? " | " : "", err->hint ? err->hint : "");
    }
    b->calls++;
    loop_stop(b->loop);
}

static void on_done(void *arg, const struct err *err, struct engine_sandbox *sandbox)
{
    struct bed *b = arg;

    b->sandbox = *sandbox;
    note(b, err);
}

static void on_list(void *arg, const struct err *err, const struct engine_objects *list)
{
    struct bed *b = arg;

    strv_free(b->ids);
    b->ids = NULL;
    for (size_t i = 0; i < list->n; i++)
        strv_add(&b->ids, list->v[i]->id);
    note(b, err);
}

static void on_result(void *arg, const struct err *err, int fd)
{
    fd_close(fd);
    note(arg, err);
}

static void on_started(void *arg, const char *exec _unused_, int pid, int fd)
{
    struct bed *b = arg;

    b->started++;
    b->pid = pid;
    fd_close(fd);
    loop_stop(b->loop);
}

static void on_start_failed(void *arg, const char *exec _unused_, const struct err *err)
{
    note(arg, err);
}

static void on_output(void *arg, const char *exec, uint64_t out, uint64_t err)
{
    struct bed *b = arg;

    supervisor_conn_ack(b->conn, exec, out, err);
}

static void on_ended(void *arg, const char *exec _unused_, const struct end_record *rec)
{
    struct bed *b = arg;

    b->ended++;
    b->rec = *rec;
    loop_stop(b->loop);
}

static void on_closed(void *arg)
{
    struct bed *b = arg;

    b->closed++;
    b->conn = NULL;
    loop_stop(b->loop);
}

static const struct supervisor_events events = {on_started, on_start_failed, on_output,
                                                on_ended,   on_closed,       NULL};

/* ---- the bed ---- */

static char *find_libexec(void)
{
    const char *env = getenv("RIPCORD_LIBEXEC");
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

    if (env)
        return xstrdup(env);
    exe[n > 0 ? n : 0] = '\0';
    for (int i = 0; i < 3; i++) {
        char *slash = strrchr(exe, '/');

        if (slash)
            *slash = '\0';
    }
    return xasprintf("%s/src/bin", exe);
}

/* Overlays with an upper layer on tmpfs need its user.* attributes (linux 6.6). */
static bool holds_upper_layers(const char *dir)
{
    _cleanup_close_ int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    return fd >= 0 && fsetxattr(fd, "user.ripcord", "", 0, 0) == 0;
}

static bool may_isolate(void)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* In memory where that works: on a slow disk these tests mostly wait for it. */
static const char *unable(const char *libexec, const char **base)
{
    _cleanup_free_ char *shim = xasprintf("%s/ripcord-shim", libexec);

    *base = holds_upper_layers("/dev/shm") ? "/dev/shm" : "/tmp";
    if (access(shim, X_OK) < 0)
        return "no ripcord-shim in this build";
    return may_isolate() ? NULL : "user namespaces cannot be made here";
}

static bool open_engine(struct bed *b)
{
    _cleanup_free_ char *state = xasprintf("%s/state", b->dir), *run = xasprintf("%s/run", b->dir);
    _cleanup_err_ struct err err = ERR_INIT;
    struct engine_config config = {.state_dir = state,
                                   .run_dir = run,
                                   .root_id = ROOT,
                                   .libexec_dir = b->libexec,
                                   .journal_budget = MIB(64)};

    if (engine_open(b->loop, &engine_native_ops, &config, &b->engine, &err) >= 0)
        return true;
    printf("# %s\n", err.msg);
    return false;
}

/* NULL, or why this test cannot run here. */
static const char *bed_init(struct bed *b)
{
    const char *why, *base = NULL;

    *b = (struct bed){.sandbox.supervisor_fd = -1};
    b->libexec = find_libexec();
    why = unable(b->libexec, &base);
    snprintf(b->dir, sizeof(b->dir), "%s/ripcord-native-XXXXXX", base ? base : "/tmp");
    if (why || !mkdtemp(b->dir) || loop_new(&b->loop, NULL) < 0) {
        free(b->libexec);
        return why ? why : "no temporary folder";
    }
    return open_engine(b) ? NULL : "the engine does not open";
}

static void bed_done(struct bed *b)
{
    char *name = strrchr(b->dir, '/');
    int base;

    supervisor_conn_close(b->conn);
    fd_close(b->sandbox.supervisor_fd);
    if (b->engine) {
        engine_remove(b->engine, SANDBOX_ID, on_done, b);
        loop_run(b->loop);
        engine_close(b->engine);
    }
    err_done(&b->err);
    strv_free(b->ids);
    loop_free(b->loop);
    *name = '\0';
    base = open(b->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rmtree(base, name + 1, NULL);
    fd_close(base);
    free(b->libexec);
}

static int entries(const struct bed *b, const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", b->dir, name);
    DIR *d = opendir(path);
    int n = -2;

    if (!d)
        return -1;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static bool no_groups(void)
{
    _cleanup_strv_ char **groups = NULL;

    return cgroup_list("ripcord", ROOT, &groups, NULL) >= 0 && strv_len(groups) == 0;
}

static bool nothing_left(const struct bed *b)
{
    for (int i = 0; i < 6000 && (entries(b, "state/trash") != 0 || !no_groups()); i++)
        usleep(10000); /* deleted in the background */

    return entries(b, "state/sandboxes") == 0 && entries(b, "state/execs") == 0 &&
           entries(b, "state/trash") == 0 && entries(b, "run/sandboxes") == 0 && no_groups() &&
           waitpid(-1, NULL, WNOHANG) <= 0; /* no zombie; prewarmed shims may live */
}

static struct sandbox_request request(void)
{
    struct sandbox_request r = {.id = SANDBOX_ID, .name = "box", .hash = "cafe"};

    r.spec = (struct sandbox_spec){.image = (char *)"host",
                                   .memory = GIB(1),
                                   .cpu_milli = 1000,
                                   .pids = 100,
                                   .nofile = 1024,
                                   .network = SPEC_NETWORK_NONE,
                                   .tmp_size = MIB(16),
                                   .run_size = MIB(4),
                                   .scratch_size = MIB(16),
                                   .user = (char *)"agent",
                                   .workdir = (char *)"/home/agent"};
    return r;
}

static bool up(struct bed *b, const struct sandbox_request *r)
{
    engine_create_start(b->engine, r, on_done, b);
    loop_run(b->loop);
    if (b->err.code || b->sandbox.supervisor_fd < 0)
        return false;
    b->conn = supervisor_conn_open(b->loop, TAKE_FD(b->sandbox.supervisor_fd), b->sandbox.minor,
                                   &events, b);
    return true;
}

static void begin(struct bed *b, const char *script)
{
    struct exec_request r = {.attach = true};

    snprintf(b->exec, sizeof(b->exec), "%016x", ++b->execs);
    memcpy(r.id, b->exec, sizeof(r.id));
    strv_add(&r.argv, "/bin/sh");
    strv_add(&r.argv, "-c");
    strv_add(&r.argv, script);
    supervisor_conn_exec(b->conn, &r);
    exec_request_done(&r);
    loop_run(b->loop);
}

static char *output(struct bed *b)
{
    _cleanup_free_ char *path = xasprintf("%s/%s/%s", b->engine->exec_root, SANDBOX_ID, b->exec);
    char *text = xcalloc(1, 4096);
    struct journal_reader rd;

    if (journal_reader_open(&rd, AT_FDCWD, path, JOURNAL_STDOUT, NULL) < 0)
        return text;
    journal_reader_read(&rd, 0, text, 4095, NULL);
    journal_reader_done(&rd);
    return text;
}

/* Runs to its end; the output is the caller's. */
static char *run(struct bed *b, const char *script)
{
    unsigned before = b->ended;

    begin(b, script);
    while (b->ended == before && !b->closed)
        loop_run(b->loop);
    return output(b);
}

#define BED(b)                                                                                     \
    struct bed b;                                                                                  \
    const char *why = bed_init(&b);                                                                \
                                                                                                   \
    if (why)                                                                                       \
    SKIP(why)

TEST(a_command_runs_and_nothing_is_left)
{
    _cleanup_free_ char *text = NULL;
    struct sandbox_request r = request();
    BED(b);

    CHECK(up(&b, &r));
    CHECK(b.sandbox.state == ENGINE_SANDBOX_RUNNING && b.sandbox.unenforced == 0);
    text = run(&b, "id -u; pwd; hostname; echo $HOME; exit 7");
    CHECK(b.rec.cause == END_EXITED && b.rec.exit_code == 7);
    CHECK_STR(text, "1000\n/home/agent\nbox\n/home/agent\n");
    engine_remove(b.engine, SANDBOX_ID, on_done, &b);
    while (!b.closed || b.calls < 2)
        loop_run(b.loop);
    CHECK(!b.err.code && nothing_left(&b));
    bed_done(&b);
}

TEST(files_survive_stop_and_start)
{
    _cleanup_free_ char *a = NULL, *c = NULL;
    struct sandbox_request r = request();
    BED(b);

    CHECK(up(&b, &r));
    a = run(&b, "echo kept > f; echo root > /var/tmp/g; cat f");
    CHECK_STR(a, "kept\n");
    supervisor_conn_stop(b.conn, 0, false, on_result, &b);
    while (!b.closed)
        loop_run(b.loop);
    engine_cleanup(b.engine, SANDBOX_ID, on_done, &b);
    loop_run(b.loop);
    CHECK(!b.err.code && entries(&b, "run/sandboxes") == 0 && entries(&b, "state/sandboxes") == 1);
    b.closed = 0;
    CHECK(up(&b, &r));
    c = run(&b, "cat f /var/tmp/g");
    CHECK_STR(c, "kept\nroot\n");
    bed_done(&b);
}

TEST(another_hash_keeps_only_the_home)
{
    _cleanup_free_ char *a = NULL, *c = NULL;
    struct sandbox_request r = request();
    BED(b);

    CHECK(up(&b, &r));
    a = run(&b, "echo kept > f; echo root > /var/tmp/g");
    supervisor_conn_stop(b.conn, 0, false, on_result, &b);
    while (!b.closed)
        loop_run(b.loop);
    engine_cleanup(b.engine, SANDBOX_ID, on_done, &b);
    loop_run(b.loop);
    snprintf(r.hash, sizeof(r.hash), "beef");
    b.closed = 0;
    CHECK(up(&b, &r));
    c = run(&b, "cat f; test -e /var/tmp/g || echo gone");
    CHECK_STR(c, "kept\ngone\n");
    bed_done(&b);
}

TEST(an_earlier_daemons_sandbox_is_found_and_ended)
{
    _cleanup_free_ char *text = NULL;
    struct sandbox_request r = request();
    BED(b);

    CHECK(up(&b, &r));
    supervisor_conn_close(TAKE_PTR(b.conn));
    engine_close(b.engine);
    CHECK(open_engine(&b));
    engine_list(b.engine, true, on_list, &b);
    loop_run(b.loop);
    CHECK(strv_len(b.ids) == 1 && strv_contains(b.ids, SANDBOX_ID));
    engine_start(b.engine, &r, on_done, &b); /* a second supervisor over the first: refused */
    loop_run(b.loop);
    CHECK(b.err.code == ERR_CONFLICT);
    engine_connect(b.engine, SANDBOX_ID, on_done, &b);
    loop_run(b.loop);
    CHECK(!b.err.code && b.sandbox.supervisor_fd >= 0);
    CHECK_STR(b.sandbox.hash, "cafe");
    b.conn = supervisor_conn_open(b.loop, TAKE_FD(b.sandbox.supervisor_fd), b.sandbox.minor,
                                  &events, &b);
    text = run(&b, "echo again");
    CHECK_STR(text, "again\n");
    b.calls = 0;
    engine_remove(b.engine, SANDBOX_ID, on_done, &b); /* not our child: found by its socket */
    while (!b.closed || !b.calls)
        loop_run(b.loop);
    CHECK(!b.err.code);
    engine_connect(b.engine, SANDBOX_ID, on_done, &b);
    loop_run(b.loop);
    CHECK(b.err.code == ERR_NOT_FOUND);
    while (waitpid(-1, NULL, WNOHANG) > 0) /* this test played both daemons */
        ;
    CHECK(nothing_left(&b));
    bed_done(&b);
}

/* Gone, or a zombie that waits for the machine's own pid 1. */
/* What is killed may still be seen for a moment. */
static bool is_dead(int pid)
{
    _cleanup_free_ char *path = xasprintf("/proc/%d/stat", pid);

    for (int i = 0; i < 6000; i++) {
        _cleanup_free_ char *text = NULL;

        if (file_read(AT_FDCWD, path, 4096, &text, NULL, NULL) < 0 || strstr(text, ") Z "))
            return true;
        usleep(10000);
    }
    return false;
}

TEST(a_killed_supervisor_takes_all_with_it)
{
    struct sandbox_request r = request();
    BED(b);
    pid_t shim;

    CHECK(up(&b, &r));
    begin(&b, "sleep 1000 & sleep 1000");
    CHECK(b.started == 1);
    shim = (pid_t)(intptr_t)map_get(&native_of(b.engine)->supervisors.children, SANDBOX_ID);
    CHECK(shim > 1 && kill(shim, SIGKILL) == 0);
    while (!b.closed)
        loop_run(b.loop);
    CHECK(b.ended == 0);
    engine_remove(b.engine, SANDBOX_ID, on_done, &b);
    loop_run(b.loop);
    CHECK(!b.err.code && nothing_left(&b));
    CHECK(is_dead(b.pid));
    bed_done(&b);
}

TEST(a_hung_supervisor_is_ended)
{
    struct sandbox_request r = request();
    BED(b);
    pid_t shim;

    CHECK(up(&b, &r));
    shim = (pid_t)(intptr_t)map_get(&native_of(b.engine)->supervisors.children, SANDBOX_ID);
    CHECK(kill(shim, SIGSTOP) == 0);
    engine_remove(b.engine, SANDBOX_ID, on_done, &b);
    while (!b.closed || b.calls < 2)
        loop_run(b.loop);
    CHECK(!b.err.code && nothing_left(&b));
    bed_done(&b);
}

TEST(a_failed_start_leaves_nothing)
{
    struct spec_mount m = {.source = (char *)"/nonexistent/folder", .target = (char *)"/mnt/x"};
    struct sandbox_request r = request();
    BED(b);

    r.spec.mounts = &m;
    r.spec.n_mounts = 1;
    CHECK(!up(&b, &r) && b.err.code == ERR_NOT_FOUND && nothing_left(&b));
    r.spec.n_mounts = 0;
    r.spec.user = (char *)"nobody-knows-me";
    if (up(&b, &r)) { /* the name is looked up at the exec, not at the start */
        bed_done(&b);
        return;
    }
    CHECK(nothing_left(&b));
    bed_done(&b);
}

TEST(mounts_are_seen)
{
    _cleanup_free_ char *source = NULL, *text = NULL;
    struct spec_mount m = {.target = (char *)"/mnt/work"};
    struct sandbox_request r = request();
    char dir[] = "/tmp/ripcord-mount-XXXXXX";
    uid_t owner = geteuid() ? geteuid() : 1000; /* a folder of root is not the agent's */
    struct stat st;
    BED(b);

    CHECK(mkdtemp(dir) && chown(dir, owner, (gid_t)-1) == 0);
    m.source = dir;
    r.spec.mounts = &m;
    r.spec.n_mounts = 1;
    CHECK(up(&b, &r));
    text = run(&b, "echo x > /mnt/work/file && stat -c %u /mnt/work");
    CHECK_STR(text, "1000\n");
    source = xasprintf("%s/file", dir);
    CHECK(stat(source, &st) == 0 && st.st_uid == owner);
    unlink(source);
    rmdir(dir);
    bed_done(&b);
}

TEST(time_of_create_start_remove)
{
    enum { ROUNDS = 20 };
    struct sandbox_request r = request();
    uint64_t start, up_time = 0, down_time = 0;
    BED(b);

    for (int i = 0; i < ROUNDS; i++) {
        b.closed = b.calls = 0;
        start = time_mono();
        CHECK(up(&b, &r));
        up_time += time_mono() - start;
        start = time_mono();
        supervisor_conn_close(TAKE_PTR(b.conn));
        engine_remove(b.engine, SANDBOX_ID, on_done, &b);
        loop_run(b.loop);
        CHECK(!b.err.code);
        down_time += time_mono() - start;
    }
    printf("# create+start %llu us, remove %llu us (mean of %d)\n",
           (unsigned long long)up_time / ROUNDS, (unsigned long long)down_time / ROUNDS, ROUNDS);
    CHECK(nothing_left(&b));
    bed_done(&b);
}
