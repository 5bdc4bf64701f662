/* engine.c on the fake backend: dispatch, deadlines, capabilities, faults, and the fake itself. */
#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine-objects.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/exec-request.h"
#include "daemon/engine/sandbox-request.h"
#include "daemon/engine/supervisor-conn.h"
#include "fake-engine/fake.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/journal/journal.h"
#include "lib/loop/loop.h"
#include "lib/os/rmtree.h"
#include "tap.h"

#define SANDBOX_ID "00000000000000aa"
#define EXEC "0123456789abcdef"

struct bed {
    char dir[32];
    struct loop *loop;
    struct engine *engine;
    struct supervisor_conn *conn;

    unsigned calls;
    enum err_code code;
    struct engine_sandbox sandbox;
    char **ids;

    int stdin_fd;
    unsigned started, ended, closed;
    uint64_t out_end;
    struct end_record rec;
};

static void on_done(void *arg, const struct err *err, struct engine_sandbox *sandbox)
{
    struct bed *b = arg;

    b->calls++;
    b->code = err ? err->code : ERR_NONE;
    b->sandbox = *sandbox;
    loop_stop(b->loop);
}

static void on_list(void *arg, const struct err *err, const struct engine_objects *list)
{
    struct bed *b = arg;

    b->calls++;
    b->code = err ? err->code : ERR_NONE;
    strv_free(b->ids);
    b->ids = NULL;
    for (size_t i = 0; i < list->n; i++)
        strv_add(&b->ids, list->v[i]->id);
    loop_stop(b->loop);
}

static void open_engine(struct bed *b)
{
    struct engine_config config = {.state_dir = b->dir,
                                   .run_dir = b->dir,
                                   .root_id = "0000000000000001",
                                   .libexec_dir = "/nowhere",
                                   .journal_budget = MIB(64)};

    if (engine_open(b->loop, &engine_fake_ops, &config, &b->engine, NULL) < 0)
        abort();
}

static void bed_init(struct bed *b)
{
    *b = (struct bed){
        .dir = "/tmp/ripcord-fake-XXXXXX", .stdin_fd = -1, .sandbox.supervisor_fd = -1};
    if (!mkdtemp(b->dir) || loop_new(&b->loop, NULL) < 0)
        abort();
    open_engine(b);
}

static void bed_done(struct bed *b)
{
    int tmp;

    supervisor_conn_close(b->conn);
    fd_close(b->stdin_fd);
    fd_close(b->sandbox.supervisor_fd);
    engine_close(b->engine);
    fake_reset();
    strv_free(b->ids);
    loop_free(b->loop);
    tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rmtree(tmp, strrchr(b->dir, '/') + 1, NULL);
    close(tmp);
}

static struct sandbox_request request(void)
{
    struct sandbox_request r = {.id = SANDBOX_ID, .name = "box", .hash = "cafe"};

    r.spec.image = (char *)"host";
    r.spec.memory = 1 << 20;
    return r;
}

static enum err_code run_create_start(struct bed *b, const struct sandbox_request *r)
{
    engine_create_start(b->engine, r, on_done, b);
    loop_run(b->loop);
    return b->code;
}

/* ---- the connection ---- */

static void on_started(void *arg, const char *exec _unused_, int pid _unused_, int fd)
{
    struct bed *b = arg;

    b->started++;
    b->stdin_fd = fd;
    if (fd >= 0) {
        fd_write_all(fd, "word", 4);
        b->stdin_fd = fd_close(fd);
    }
}

static void on_start_failed(void *arg, const char *exec _unused_, const struct err *err)
{
    struct bed *b = arg;

    b->code = err->code;
}

static void on_output(void *arg, const char *exec, uint64_t out, uint64_t err)
{
    struct bed *b = arg;

    b->out_end = out;
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

static void on_result(void *arg, const struct err *err, int fd)
{
    struct bed *b = arg;

    b->calls++;
    b->code = err ? err->code : ERR_NONE;
    fd_close(fd);
    loop_stop(b->loop);
}

static void bring_up(struct bed *b, const struct sandbox_request *r)
{
    bed_init(b);
    if (run_create_start(b, r) != ERR_NONE)
        abort();
    b->conn = supervisor_conn_open(b->loop, TAKE_FD(b->sandbox.supervisor_fd), b->sandbox.minor,
                                   &events, b);
}

static void send_exec(struct bed *b, const char *const *argv, bool want_stdin, uint64_t timeout)
{
    struct exec_request r = {.id = EXEC, .want_stdin = want_stdin, .attach = true};

    r.timeout = timeout;
    for (; *argv; argv++)
        strv_add(&r.argv, *argv);
    supervisor_conn_exec(b->conn, &r);
    exec_request_done(&r);
}

static void run_exec(struct bed *b, const char *const *argv, bool want_stdin)
{
    send_exec(b, argv, want_stdin, 0);
    loop_run(b->loop);
}

static char *read_journal(struct bed *b, enum journal_stream stream)
{
    _cleanup_free_ char *path = xasprintf("%s/%s/%s", b->engine->exec_root, SANDBOX_ID, EXEC);
    struct journal_reader rd;
    char *text = xcalloc(1, 256);

    if (journal_reader_open(&rd, AT_FDCWD, path, stream, NULL) < 0)
        return text;
    journal_reader_read(&rd, 0, text, 255, NULL);
    journal_reader_done(&rd);
    return text;
}

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(create_start_answers_on_the_loop)
{
    struct sandbox_request r = request();
    struct bed b;

    bed_init(&b);
    engine_create_start(b.engine, &r, on_done, &b);
    CHECK(b.calls == 0);
    loop_run(b.loop);
    CHECK(b.calls == 1 && b.code == ERR_NONE && b.sandbox.supervisor_fd >= 0);
    CHECK_STR(b.sandbox.id, SANDBOX_ID);
    CHECK_STR(b.sandbox.hash, "cafe");
    CHECK(b.sandbox.state == ENGINE_SANDBOX_RUNNING && fake_running() == 1);
    bed_done(&b);
}

TEST(bad_ids_never_reach_a_backend)
{
    struct sandbox_request r = request();
    struct bed b;

    bed_init(&b);
    snprintf(r.id, sizeof(r.id), "../../../../etc");
    engine_create(b.engine, &r, on_done, &b);
    CHECK(b.calls == 0);
    loop_run(b.loop);
    CHECK(b.calls == 1 && b.code == ERR_INVALID && fake_count() == 0);
    bed_done(&b);
}

TEST(requested_limits_that_cannot_be_enforced_are_refused)
{
    struct sandbox_request r = request();
    struct bed b;

    bed_init(&b);
    b.engine->caps &= ~(uint32_t)ENGINE_CAP_MEMORY_LIMIT;
    CHECK(run_create_start(&b, &r) == ERR_NONE);
    CHECK(b.sandbox.unenforced == LIMIT_MEMORY);
    b.sandbox.supervisor_fd = fd_close(b.sandbox.supervisor_fd);
    r.spec.asked = LIMIT_MEMORY;
    snprintf(r.id, sizeof(r.id), "%s", "00000000000000bb");
    CHECK(run_create_start(&b, &r) == ERR_UNSUPPORTED);
    CHECK(fake_count() == 1);
    r.spec.asked = 0;
    r.spec.network = SPEC_NETWORK_OPEN;
    CHECK(run_create_start(&b, &r) == ERR_UNSUPPORTED);
    bed_done(&b);
}

TEST(a_failed_start_leaves_nothing)
{
    struct fake_fault f = {.code = ERR_ENGINE, .times = 1};
    struct sandbox_request r = request();
    struct bed b;

    bed_init(&b);
    fake_set_fault(b.engine, FAKE_START, &f);
    CHECK(run_create_start(&b, &r) == ERR_ENGINE);
    CHECK(fake_count() == 0 && b.sandbox.supervisor_fd == -1);
    CHECK(run_create_start(&b, &r) == ERR_NONE);
    bed_done(&b);
}

TEST(calls_run_side_by_side)
{
    struct fake_fault slow = {.delay = USEC_PER_SEC};
    struct sandbox_request r = request();
    uint64_t start;
    struct bed b;

    bed_init(&b);
    fake_set_fault(b.engine, FAKE_CREATE, &slow);
    start = time_mono();
    for (int i = 0; i < 4; i++) {
        snprintf(r.id, sizeof(r.id), "%016d", i);
        engine_create(b.engine, &r, on_done, &b);
    }
    while (b.calls < 4)
        loop_run(b.loop);
    CHECK(time_mono() - start < 4 * USEC_PER_SEC && fake_count() == 4); /* one by one: four */
    bed_done(&b);
}

TEST(streams_and_status)
{
    struct sandbox_request r = request();
    _cleanup_free_ char *text = NULL;
    struct bed b;

    bring_up(&b, &r);
    run_exec(&b, ARGV("echo", "hello", "there"), false);
    text = read_journal(&b, JOURNAL_STDOUT);
    CHECK(b.started == 1 && b.ended == 1 && b.rec.cause == END_EXITED && b.rec.exit_code == 0);
    CHECK(b.rec.stdout_bytes == 12 && b.rec.stderr_bytes == 0);
    CHECK_STR(text, "hello there\n");
    bed_done(&b);
}

TEST(stdin_goes_through)
{
    struct sandbox_request r = request();
    _cleanup_free_ char *text = NULL;
    struct bed b;

    bring_up(&b, &r);
    run_exec(&b, ARGV("cat"), true);
    text = read_journal(&b, JOURNAL_STDOUT);
    CHECK_STR(text, "word");
    CHECK(b.rec.stdout_bytes == 4 && b.out_end == 4);
    bed_done(&b);
}

TEST(a_command_that_cannot_start)
{
    struct sandbox_request r = request();
    struct bed b;

    bring_up(&b, &r);
    run_exec(&b, ARGV("no-such-thing"), false);
    CHECK(b.code == ERR_NOT_FOUND && b.started == 0);
    CHECK(b.rec.cause == END_START_FAILED && end_record_status(&b.rec) == 127);
    bed_done(&b);
}

TEST(exit_status_and_timeout)
{
    struct sandbox_request r = request();
    struct bed b;

    bring_up(&b, &r);
    run_exec(&b, ARGV("exit", "7"), false);
    CHECK(b.rec.cause == END_EXITED && b.rec.exit_code == 7);
    bed_done(&b);
    bring_up(&b, &r);
    send_exec(&b, ARGV("sleep", "60000"), false, 20000);
    loop_run(b.loop);
    CHECK(b.rec.cause == END_TIMEOUT);
    bed_done(&b);
}

TEST(kill_and_stop)
{
    struct sandbox_request r = request();
    struct bed b;

    bring_up(&b, &r);
    send_exec(&b, ARGV("sleep", "60000"), false, 0);
    supervisor_conn_kill(b.conn, EXEC, END_KILLED, on_result, &b);
    while (!b.ended)
        loop_run(b.loop);
    CHECK(b.rec.cause == END_KILLED && b.rec.exit_code == -1);
    supervisor_conn_stop(b.conn, 0, false, on_result, &b);
    while (!b.closed)
        loop_run(b.loop);
    CHECK(b.code == ERR_NONE && fake_running() == 0 && fake_count() == 1);
    bed_done(&b);
}

TEST(an_ephemeral_sandbox_ends_with_its_exec)
{
    struct sandbox_request r = request();
    struct bed b;

    r.ephemeral = true;
    bring_up(&b, &r);
    send_exec(&b, ARGV("echo", "x"), false, 0);
    while (!b.closed)
        loop_run(b.loop);
    CHECK(b.ended == 1 && fake_running() == 0);
    bed_done(&b);
}

TEST(the_death_of_a_supervisor_ends_the_connection)
{
    struct sandbox_request r = request();
    struct bed b;

    bring_up(&b, &r);
    fake_kill(SANDBOX_ID);
    loop_run(b.loop);
    CHECK(b.closed == 1 && b.ended == 0);
    bed_done(&b);
}

TEST(sandboxes_outlive_the_engine)
{
    struct sandbox_request r = request();
    struct bed b;

    bring_up(&b, &r);
    supervisor_conn_close(TAKE_PTR(b.conn));
    engine_close(b.engine);
    open_engine(&b);
    engine_list(b.engine, true, on_list, &b);
    loop_run(b.loop);
    CHECK(strv_len(b.ids) == 1 && strv_contains(b.ids, SANDBOX_ID));
    engine_connect(b.engine, SANDBOX_ID, on_done, &b);
    loop_run(b.loop);
    CHECK(b.code == ERR_NONE && b.sandbox.supervisor_fd >= 0);
    CHECK_STR(b.sandbox.hash, "cafe");
    b.conn = supervisor_conn_open(b.loop, TAKE_FD(b.sandbox.supervisor_fd), b.sandbox.minor,
                                  &events, &b);
    run_exec(&b, ARGV("echo", "again"), false);
    CHECK(b.rec.exit_code == 0);
    b.calls = 0;
    engine_remove(b.engine, SANDBOX_ID, on_done, &b);
    while (!b.closed || !b.calls)
        loop_run(b.loop);
    CHECK(b.code == ERR_NONE && fake_count() == 0);
    engine_connect(b.engine, SANDBOX_ID, on_done, &b);
    loop_run(b.loop);
    CHECK(b.code == ERR_NOT_FOUND);
    bed_done(&b);
}

TEST(attach_reports_the_ends_of_the_streams)
{
    struct sandbox_request r = request();
    struct bed b;

    bring_up(&b, &r);
    run_exec(&b, ARGV("flood", "100000"), false);
    CHECK(b.rec.stdout_bytes == 100000);
    b.out_end = 0;
    supervisor_conn_attach(b.conn, EXEC, 100000, 0, on_result, &b);
    loop_run(b.loop);
    CHECK(b.code == ERR_NONE && b.out_end == 100000);
    supervisor_conn_attach(b.conn, "ffffffffffffffff", 0, 0, on_result, &b);
    loop_run(b.loop);
    CHECK(b.code == ERR_NOT_FOUND);
    bed_done(&b);
}
