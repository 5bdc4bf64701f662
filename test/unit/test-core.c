/* The manager on the fake engine: operations, joined requests, execs, streams, restart. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/core/exec/output-stream.h"
#include "daemon/core/sandbox/manager.h"
#include "daemon/core/sandbox/spec.h"
#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine-ops.h"
#include "daemon/engine/sandbox-request.h"
#include "daemon/packages/packages-proxy.h"
#include "fake-engine/fake.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/journal/record.h"
#include "lib/loop/loop.h"
#include "lib/os/rmtree.h"
#include "lib/store/store.h"
#include "tap.h"

#define WAIT (60 * USEC_PER_SEC)

struct bed {
    char dir[32];
    struct loop *loop;
    struct loop_timer *timer;
    struct store *store;
    struct engine *engine;
    struct packages_proxy *packages;
    struct manager *m;
    bool timed_out;

    unsigned answers; /* of operations */
    enum err_code code;
    enum manager_action action;
    enum sandbox_state state; /* ABSENT: no sandbox was given */
    unsigned creations;       /* absent -> creating */
    unsigned warnings;
    unsigned package_warnings; /* those about the package cache */
    unsigned removals;
    uint64_t counted; /* execs in the stored totals at the last removal */
};

static void on_total(void *arg, const struct store_total *row)
{
    struct bed *b = arg;

    b->counted = row->execs;
}

static void on_state(void *arg, const struct sandbox *sb, enum sandbox_state from,
                     enum sandbox_state to)
{
    struct bed *b = arg;

    (void)sb;
    b->creations += from == SANDBOX_ABSENT && to == SANDBOX_CREATING;
    if (to != SANDBOX_ABSENT)
        return;
    b->removals++;
    store_total_each(b->store, "all", "", on_total, b, NULL);
}

static void on_warning(void *arg, const char *message)
{
    struct bed *b = arg;

    printf("# warning: %s\n", message);
    b->warnings++;
    b->package_warnings += strstr(message, "package cache") != NULL;
}

static void on_timeout(void *arg)
{
    struct bed *b = arg;

    b->timed_out = true;
    loop_stop(b->loop);
}

static void bed_up(struct bed *b)
{
    char path[64];
    struct engine_config config = {.state_dir = b->dir,
                                   .run_dir = b->dir,
                                   .libexec_dir = "/nowhere",
                                   .journal_budget = MIB(64)};
    struct manager_config mc = {.default_engine = "fake",
                                .n_engines = 1,
                                .stop_grace = USEC_PER_SEC / 10,
                                .on_state = on_state,
                                .on_warning = on_warning,
                                .arg = b};
    _cleanup_err_ struct err err = ERR_INIT;

    snprintf(path, sizeof(path), "%s/db", b->dir);
    if (loop_new(&b->loop, &err) < 0 || store_open(path, &b->store, &err) < 0)
        abort();
    config.root_id = store_root_id(b->store);
    if (engine_open(b->loop, &engine_fake_ops, &config, &b->engine, &err) < 0)
        abort();
    b->timer = loop_timer_new(b->loop, on_timeout, b);
    b->packages = packages_proxy_new(
        &(struct packages_proxy_config){.loop = b->loop, .program = "/nowhere", .settings = "{}"});
    mc.loop = b->loop;
    mc.packages = b->packages;
    mc.store = b->store;
    mc.engines = &b->engine;
    spec_defaults(&mc.defaults);
    b->m = manager_new(&mc);
    sandbox_spec_done(&mc.defaults);
    if (manager_start(b->m, &err) < 0)
        abort();
}

/* Runs the loop for a while, or until a callback stops it. */
static void spin(struct bed *b, uint64_t usec)
{
    loop_timer_set(b->timer, usec, false);
    b->timed_out = false;
    loop_run(b->loop);
    loop_timer_stop(b->timer);
}

#define SPIN_WHILE(b, condition)                                                                   \
    for (uint64_t end_ = time_mono() + WAIT; (condition) && time_mono() < end_;)                   \
    spin(b, 10 * USEC_PER_MSEC)

static void bed_down(struct bed *b)
{
    manager_close(b->m);
    SPIN_WHILE(b, manager_busy(b->m));
    manager_free(b->m);
    packages_proxy_free(b->packages);
    engine_close(b->engine);
    loop_timer_free(b->timer);
    loop_free(b->loop);
    store_close(b->store);
}

static void bed_new(struct bed *b)
{
    *b = (struct bed){0};
    snprintf(b->dir, sizeof(b->dir), "/tmp/test-core-XXXXXX");
    if (!mkdtemp(b->dir))
        abort();
    bed_up(b);
}

static void bed_end(struct bed *b)
{
    _cleanup_err_ struct err err = ERR_INIT;

    bed_down(b);
    fake_reset();
    if (rmtree(AT_FDCWD, b->dir, &err) < 0)
        printf("# %s\n", err.msg);
}

static void on_done(void *arg, const struct err *err, const struct sandbox *sb,
                    enum manager_action action)
{
    struct bed *b = arg;

    b->answers++;
    b->code = err ? err->code : ERR_NONE;
    b->action = action;
    b->state = sb ? sb->state : SANDBOX_ABSENT;
    loop_stop(b->loop);
}

static void wait_answers(struct bed *b, unsigned n)
{
    uint64_t end = time_mono() + WAIT;

    while (b->answers < n && time_mono() < end)
        spin(b, 100 * USEC_PER_MSEC);
}

static bool ensure(struct bed *b, const char *name, const char *spec)
{
    _cleanup_json_ json_t *doc = json_loads(spec, 0, NULL);
    unsigned n = b->answers + 1;

    if (manager_ensure(b->m, name, doc, on_done, b, NULL) < 0)
        return false;
    wait_answers(b, n);
    return b->answers == n && b->code == ERR_NONE;
}

static bool stop(struct bed *b, const char *name)
{
    unsigned n = b->answers + 1;

    if (manager_stop(b->m, name, 0, on_done, b, NULL) < 0)
        return false;
    wait_answers(b, n);
    return b->answers == n && b->code == ERR_NONE;
}

static bool rm(struct bed *b, const char *name, bool force)
{
    unsigned n = b->answers + 1;

    if (manager_remove(b->m, name, force, on_done, b, NULL) < 0)
        return false;
    wait_answers(b, n);
    return b->answers == n && b->code == ERR_NONE;
}

/* ---- operations ---- */

TEST(ensure_creates_then_leaves_alone_then_starts_then_recreates)
{
    struct bed b;
    char id[20];

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(b.action == ACTION_CREATED && b.state == SANDBOX_RUNNING);
    snprintf(id, sizeof(id), "%s", manager_find(b.m, "a", NULL)->id);
    CHECK(ensure(&b, "a", "{}") && b.action == ACTION_UNCHANGED);
    CHECK(stop(&b, "a") && b.state == SANDBOX_STOPPED);
    CHECK(fake_running() == 0 && fake_count() == 1);
    CHECK(ensure(&b, "a", "{}") && b.action == ACTION_STARTED);
    CHECK(ensure(&b, "a", "{\"limits\":{\"pids\":50}}") && b.action == ACTION_RECREATED);
    CHECK_STR(manager_find(b.m, "a", NULL)->id, id);
    CHECK(ensure(&b, "a", "{}") && b.action == ACTION_UNCHANGED); /* absent field: unchanged */
    CHECK(manager_find(b.m, "a", NULL)->spec.pids == 50);
    CHECK(rm(&b, "a", false) && fake_count() == 0);
    CHECK(!manager_find(b.m, "a", NULL));
    bed_end(&b);
}

TEST(twenty_ensures_at_once_are_one_creation)
{
    _cleanup_json_ json_t *doc = json_object();
    struct bed b;

    bed_new(&b);
    for (int i = 0; i < 20; i++)
        CHECK(manager_ensure(b.m, "a", doc, on_done, &b, NULL) == 0);
    CHECK(b.answers == 0); /* never before the call returns */
    wait_answers(&b, 20);
    CHECK(b.answers == 20 && b.code == ERR_NONE && b.creations == 1 && fake_count() == 1);
    bed_end(&b);
}

TEST(a_failed_creation_answers_all_and_leaves_nothing)
{
    const struct fake_fault fault = {.code = ERR_SYSTEM, .times = 1};
    _cleanup_json_ json_t *doc = json_object();
    struct bed b;

    bed_new(&b);
    fake_set_fault(b.engine, FAKE_START, &fault);
    for (int i = 0; i < 3; i++)
        CHECK(manager_ensure(b.m, "a", doc, on_done, &b, NULL) == 0);
    wait_answers(&b, 3);
    CHECK(b.answers == 3 && b.code == ERR_SYSTEM && b.creations == 1);
    CHECK(fake_count() == 0 && !manager_find(b.m, "a", NULL));
    CHECK(ensure(&b, "a", "{}") && b.action == ACTION_CREATED);
    bed_end(&b);
}

/* Like a full disk: no file can grow. */
static void let_files_grow(bool on)
{
    struct rlimit size = {on ? RLIM_INFINITY : 0, RLIM_INFINITY};

    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &size) < 0)
        abort();
}

TEST(a_row_that_cannot_be_deleted_keeps_the_sandbox)
{
    struct bed b;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    let_files_grow(false);
    CHECK(!rm(&b, "a", false) && b.code == ERR_SYSTEM && b.state == SANDBOX_FAILED);
    let_files_grow(true);
    bed_down(&b);
    bed_up(&b); /* it was never removed */
    CHECK(manager_find(b.m, "a", NULL) && rm(&b, "a", false) && !manager_find(b.m, "a", NULL));
    CHECK(ensure(&b, "a", "{}") && b.action == ACTION_CREATED);
    bed_end(&b);
}

TEST(a_failed_start_keeps_the_sandbox_and_its_files)
{
    const struct fake_fault fault = {.code = ERR_SYSTEM, .times = 1};
    struct bed b;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}") && stop(&b, "a"));
    fake_set_fault(b.engine, FAKE_START, &fault);
    CHECK(!ensure(&b, "a", "{}") && b.code == ERR_SYSTEM);
    CHECK(b.state == SANDBOX_FAILED && fake_count() == 1);
    CHECK(ensure(&b, "a", "{}") && b.action == ACTION_STARTED);
    bed_end(&b);
}

static bool is_old(struct bed *b, const char *hash)
{
    const struct sandbox *sb = manager_find(b->m, "a", NULL);

    return sb->spec.pids == 300 && STREQ(sb->hash, hash) && fake_count() == 1;
}

TEST(a_failed_recreation_returns_to_the_old_sandbox)
{
    static const enum fake_op steps[] = {FAKE_VERIFY, FAKE_CREATE, FAKE_START};
    const struct fake_fault fault = {.code = ERR_DENIED, .times = 1};
    char hash[65];
    struct bed b;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    snprintf(hash, sizeof(hash), "%s", manager_find(b.m, "a", NULL)->hash);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        fake_set_fault(b.engine, steps[i], &fault);
        CHECK(!ensure(&b, "a", "{\"limits\":{\"pids\":50}}") && b.code == ERR_DENIED);
        CHECK(b.state == SANDBOX_RUNNING && fake_running() == 1 && is_old(&b, hash));
    }
    CHECK(stop(&b, "a"));
    fake_set_fault(b.engine, FAKE_START, &fault);
    CHECK(!ensure(&b, "a", "{\"limits\":{\"pids\":50}}") && b.state == SANDBOX_STOPPED);
    CHECK(is_old(&b, hash));
    bed_down(&b);
    bed_up(&b); /* the store has the old spec too */
    CHECK(is_old(&b, hash) && ensure(&b, "a", "{}") && b.action == ACTION_STARTED);
    CHECK(ensure(&b, "a", "{\"limits\":{\"pids\":50}}") && b.action == ACTION_RECREATED);
    bed_end(&b);
}

TEST(a_spec_that_cannot_be_stored_returns_to_the_old_sandbox)
{
    char hash[65];
    struct bed b;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    snprintf(hash, sizeof(hash), "%s", manager_find(b.m, "a", NULL)->hash);
    let_files_grow(false);
    CHECK(!ensure(&b, "a", "{\"limits\":{\"pids\":50}}") && b.code == ERR_SYSTEM);
    CHECK(b.state == SANDBOX_RUNNING && fake_running() == 1 && is_old(&b, hash));
    let_files_grow(true);
    CHECK(ensure(&b, "a", "{\"limits\":{\"pids\":50}}") && b.action == ACTION_RECREATED);
    bed_end(&b);
}

TEST(a_return_that_fails_is_reported_and_ended_by_the_next_request)
{
    const struct fake_fault fault = {.code = ERR_DENIED, .times = 1};
    const struct fake_fault stuck = {.code = ERR_TIMEOUT, .times = 1};
    char hash[65];
    struct bed b;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    snprintf(hash, sizeof(hash), "%s", manager_find(b.m, "a", NULL)->hash);
    fake_set_fault(b.engine, FAKE_START, &fault);
    fake_set_fault(b.engine, FAKE_SETTLE, &stuck);
    CHECK(!ensure(&b, "a", "{\"limits\":{\"pids\":50}}") && b.code == ERR_DENIED);
    CHECK(b.state == SANDBOX_FAILED && is_old(&b, hash));
    CHECK(ensure(&b, "a", "{}") && b.action == ACTION_STARTED && is_old(&b, hash));
    bed_end(&b);
}

TEST(labels_and_leases_change_without_a_recreation)
{
    struct bed b;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{\"labels\":{\"x\":\"1\"}}"));
    CHECK(ensure(&b, "a", "{\"labels\":{\"y\":\"2\"}}") && b.action == ACTION_CHANGED);
    CHECK(strv_len(manager_find(b.m, "a", NULL)->spec.labels) == 2);
    CHECK(ensure(&b, "a", "{\"clear\":[\"labels\"]}") && b.action == ACTION_CHANGED);
    CHECK(strv_len(manager_find(b.m, "a", NULL)->spec.labels) == 0);
    CHECK(ensure(&b, "a", "{\"clear\":[\"labels\"]}") && b.action == ACTION_UNCHANGED);
    bed_end(&b);
}

TEST(requests_that_are_wrong_are_refused_at_once)
{
    _cleanup_json_ json_t *bad = json_pack("{s:i}", "memroy", 1), *empty = json_object();
    _cleanup_json_ json_t *engine = json_pack("{s:s}", "engine", "warp");
    _cleanup_err_ struct err err = ERR_INIT;
    struct bed b;

    bed_new(&b);
    CHECK(manager_ensure(b.m, "a", bad, on_done, &b, &err) == -ERR_INVALID);
    err_done(&err);
    CHECK(manager_ensure(b.m, "A", empty, on_done, &b, &err) == -ERR_INVALID);
    err_done(&err);
    CHECK(manager_ensure(b.m, "a", engine, on_done, &b, &err) == -ERR_INVALID);
    err_done(&err);
    CHECK(manager_stop(b.m, "a", 0, on_done, &b, &err) == -ERR_NOT_FOUND);
    err_done(&err);
    CHECK(ensure(&b, "alpha", "{}"));
    CHECK(manager_remove(b.m, "alhpa", false, on_done, &b, &err) == -ERR_NOT_FOUND);
    CHECK(strstr(err.hint, "alpha"));
    CHECK(b.answers == 1);
    bed_end(&b);
}

struct late_remove {
    struct bed *b;
    int pipe[2];
    int r;
};

static void remove_again(void *arg, int events)
{
    struct late_remove *late = arg;
    char c;

    (void)events;
    if (read(late->pipe[0], &c, 1) == 1)
        late->r = manager_remove(late->b->m, "a", true, on_done, late->b, NULL);
}

/* The pipe becomes ready before the worker's answer. So the second removal is queued in the turn
 * in which the first one ends, while its own turn is still queued. */
TEST(an_operation_queued_as_another_ends_is_run_once)
{
    const struct fake_fault slow = {.delay = USEC_PER_SEC, .times = 1};
    struct bed b;
    struct late_remove late = {.b = &b, .r = -1};
    struct loop_watch *w;

    bed_new(&b);
    if (pipe2(late.pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        abort();
    w = loop_watch_new(b.loop, late.pipe[0], remove_again, &late);
    loop_watch_set(w, LOOP_READ);
    CHECK(ensure(&b, "a", "{}"));
    fake_set_fault(b.engine, FAKE_REMOVE, &slow);
    CHECK(manager_remove(b.m, "a", false, on_done, &b, NULL) == 0);
    spin(&b, 20 * USEC_PER_MSEC);
    if (write(late.pipe[1], "x", 1) != 1)
        abort();
    for (int i = 0; i < 3000 && fake_count(); i++)
        usleep(1000);
    usleep(50000); /* then its answer is ready */
    wait_answers(&b, 3);
    CHECK(late.r == 0);
    CHECK(b.answers == 3);
    CHECK(b.code == ERR_NOT_FOUND);
    spin(&b, 20 * USEC_PER_MSEC);
    CHECK(fake_count() == 0);
    loop_watch_free(w);
    bed_end(&b);
    close(late.pipe[0]);
    close(late.pipe[1]);
}

TEST(pause_and_resume)
{
    struct bed b;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(manager_pause(b.m, "a", true, on_done, &b, NULL) == 0);
    wait_answers(&b, 2);
    CHECK(b.code == ERR_NONE && b.state == SANDBOX_PAUSED);
    CHECK(ensure(&b, "a", "{}") && b.action == ACTION_STARTED && b.state == SANDBOX_RUNNING);
    CHECK(manager_pause(b.m, "a", false, on_done, &b, NULL) == 0); /* it runs: no change */
    wait_answers(&b, 4);
    CHECK(b.code == ERR_NONE);
    CHECK(stop(&b, "a"));
    CHECK(manager_pause(b.m, "a", true, on_done, &b, NULL) == 0);
    wait_answers(&b, 6);
    CHECK(b.code == ERR_CONFLICT);
    bed_end(&b);
}

/* ---- execs ---- */

struct watcher {
    struct bed *b;
    struct exec *x;
    struct output_stream *s;
    char out[4096];
    size_t len;
    uint64_t bytes, gap;
    bool ended;
    char *end;
};

static char read_buffer[64 << 10];

static void drain(struct watcher *w)
{
    struct output_chunk c;

    while (output_stream_read(w->s, read_buffer, sizeof(read_buffer), &c, NULL) >= 0) {
        if (c.kind == OUTPUT_DATA && w->len + c.len < sizeof(w->out)) {
            memcpy(w->out + w->len, read_buffer, c.len);
            w->len += c.len;
        }
        w->bytes += c.kind == OUTPUT_DATA ? c.len : 0;
        w->gap += c.kind == OUTPUT_GAP ? c.to - c.offset : 0;
        if (c.kind == OUTPUT_END && !w->ended) {
            w->ended = true;
            w->end = xstrdup(output_stream_end_text(w->s));
            loop_stop(w->b->loop);
        }
        if (c.kind == OUTPUT_END || c.kind == OUTPUT_NOTHING)
            return;
    }
}

static void on_news(void *arg)
{
    drain(arg);
}

static int watch(struct bed *b, struct watcher *w, int r)
{
    struct output_stream_config c = {
        .want = {true, true}, .follow = true, .notify = on_news, .arg = w};

    w->b = b;
    if (r < 0)
        return r;
    w->s = output_stream_new_live(w->x, &c);
    return 0;
}

static struct exec_request request(const char *const *argv)
{
    struct exec_request req = {.attach = true};

    for (; *argv; argv++)
        strv_add(&req.argv, *argv);
    return req;
}

static int start(struct bed *b, struct watcher *w, const char *name, const char *a0, const char *a1)
{
    struct exec_request req = request((const char *[]){a0, a1, NULL});
    int r;

    *w = (struct watcher){0};
    r = manager_exec(b->m, name, &req, &w->x, NULL);
    exec_request_done(&req);
    return watch(b, w, r);
}

static int run(struct bed *b, struct watcher *w, const char *a0, const char *a1)
{
    struct exec_request req = request((const char *[]){a0, a1, NULL});
    _cleanup_json_ json_t *spec = json_object();
    int r;

    *w = (struct watcher){0};
    r = manager_run(b->m, spec, &req, &w->x, NULL);
    exec_request_done(&req);
    return watch(b, w, r);
}

static bool finish(struct watcher *w)
{
    uint64_t end = time_mono() + WAIT;

    while (!w->ended && time_mono() < end)
        spin(w->b, 50 * USEC_PER_MSEC);
    return w->ended;
}

static bool is_up(struct watcher *w)
{
    SPIN_WHILE(w->b, w->x->state == EXEC_STARTING);
    return w->x->state == EXEC_RUNNING;
}

static void watcher_done(struct watcher *w)
{
    output_stream_free(w->s);
    exec_unref(w->x);
    free(w->end);
}

TEST(exec_gives_output_and_end)
{
    struct bed b;
    struct watcher w;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(start(&b, &w, "a", "echo", "hello") == 0);
    CHECK(finish(&w));
    CHECK(w.len == 6 && memcmp(w.out, "hello\n", 6) == 0);
    CHECK(strstr(w.end, "\"cause\":\"exited\"") && strstr(w.end, "\"stdout_bytes\":6"));
    CHECK(w.x->state == EXEC_ENDED && manager_find(b.m, "a", NULL)->n_execs == 0);
    watcher_done(&w);
    CHECK(start(&b, &w, "a", "exit", "7") == 0 && finish(&w));
    CHECK(strstr(w.end, "\"exit_code\":7"));
    watcher_done(&w);
    CHECK(start(&b, &w, "a", "nonsense", NULL) == 0 && finish(&w));
    CHECK(strstr(w.end, "start_failed"));
    watcher_done(&w);
    bed_end(&b);
}

TEST(exec_starts_a_stopped_sandbox_and_never_makes_one)
{
    struct bed b;
    struct watcher w;

    bed_new(&b);
    CHECK(start(&b, &w, "a", "echo", "x") == -ERR_NOT_FOUND);
    CHECK(ensure(&b, "a", "{}") && stop(&b, "a"));
    CHECK(start(&b, &w, "a", "echo", "again") == 0 && finish(&w));
    CHECK(w.bytes == 6);
    watcher_done(&w);
    CHECK(stop(&b, "a"));
    CHECK(manager_remove(b.m, "a", true, NULL, NULL, NULL) == 0);
    CHECK(start(&b, &w, "a", "echo", "late") == 0 && finish(&w)); /* queued after the removal */
    CHECK(w.x->start_err.code == ERR_NOT_FOUND && b.creations == 1);
    watcher_done(&w);
    bed_end(&b);
}

TEST(live_execs_hold_back_removal_and_recreation)
{
    struct bed b;
    struct watcher w;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(start(&b, &w, "a", "sleep", "60000") == 0);
    CHECK(!rm(&b, "a", false) && b.code == ERR_CONFLICT);
    CHECK(!ensure(&b, "a", "{\"limits\":{\"pids\":50}}") && b.code == ERR_CONFLICT);
    CHECK(manager_find(b.m, "a", NULL)->spec.pids == 300);
    CHECK(rm(&b, "a", true) && fake_count() == 0);
    CHECK(finish(&w));
    CHECK(strstr(w.end, "sandbox_stopped"));
    watcher_done(&w);
    bed_end(&b);
}

TEST(a_dead_supervisor_is_engine_lost_never_an_exit)
{
    struct bed b;
    struct watcher w;
    struct sandbox *sb;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(start(&b, &w, "a", "sleep", "60000") == 0 && is_up(&w));
    sb = manager_find(b.m, "a", NULL);
    fake_kill(sb->id);
    CHECK(finish(&w));
    CHECK(strstr(w.end, "engine_lost") && strstr(w.end, "\"exit_code\":null"));
    CHECK(sb->state == SANDBOX_STOPPED && sb->reason);
    watcher_done(&w);
    CHECK(start(&b, &w, "a", "echo", "up again") == 0 && finish(&w) && w.bytes == 9);
    watcher_done(&w);
    bed_end(&b);
}

TEST(kill_ends_with_its_cause)
{
    struct bed b;
    struct watcher w;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(start(&b, &w, "a", "sleep", "60000") == 0 && is_up(&w));
    CHECK(exec_kill(w.x, NULL, NULL, NULL) == 0);
    CHECK(finish(&w));
    CHECK(strstr(w.end, "\"cause\":\"killed\""));
    CHECK(exec_kill(w.x, NULL, NULL, NULL) == -ERR_CONFLICT);
    watcher_done(&w);
    bed_end(&b);
}

/* 64 MiB are kept: of 100 MB the first part is lost, and the gap is exact to the byte. */
TEST(streams_report_gaps_and_count_right)
{
    struct bed b;
    struct watcher w;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(start(&b, &w, "a", "flood", "50000000") == 0 && finish(&w));
    CHECK(w.bytes == 50000000 && w.gap == 0);
    watcher_done(&w);
    CHECK(start(&b, &w, "a", "flood", "100000000") == 0 && finish(&w));
    CHECK(w.bytes + w.gap == 100000000 && w.gap > 0);
    watcher_done(&w);
    bed_end(&b);
}

TEST(a_stream_resumes_at_an_offset_of_an_ended_exec)
{
    struct output_stream_config c = {
        .offsets = {4, 0}, .want = {true, true}, .notify = on_news, .follow = true};
    _cleanup_err_ struct err err = ERR_INIT;
    struct bed b;
    struct watcher w, v = {0};

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(start(&b, &w, "a", "echo", "0123456789") == 0 && finish(&w));
    v.b = &b;
    c.arg = &v;
    CHECK(output_stream_new(b.m, manager_find(b.m, "a", NULL), "last", &c, &v.s, NULL) == 0);
    drain(&v);
    CHECK(v.ended && v.len == 7 && memcmp(v.out, "456789\n", 7) == 0);
    watcher_done(&v);
    CHECK(output_stream_new(b.m, manager_find(b.m, "a", NULL), "0000000000000000", &c, &v.s,
                            &err) == -ERR_NOT_FOUND);
    watcher_done(&w);
    bed_end(&b);
}

TEST(run_leaves_nothing)
{
    struct bed b;
    struct watcher w;

    bed_new(&b);
    CHECK(run(&b, &w, "echo", "x") == 0 && finish(&w));
    CHECK(w.bytes == 2);
    spin(&b, 50 * USEC_PER_MSEC);
    CHECK(fake_count() == 1); /* its journals are still being read */
    watcher_done(&w);
    SPIN_WHILE(&b, fake_count() || manager_next(b.m, &(size_t){0}, &(struct sandbox *){NULL}));
    CHECK(fake_count() == 0);
    CHECK(manager_next(b.m, &(size_t){0}, &(struct sandbox *){NULL}) == false);
    bed_end(&b);
}

/* A daemon that is killed after the removal has nothing left from which the next could count. */
TEST(a_run_is_counted_with_its_removal)
{
    struct bed b;
    struct watcher w;

    bed_new(&b);
    for (unsigned i = 1; i <= 5; i++) {
        CHECK(run(&b, &w, "true", NULL) == 0);
        watcher_done(&w);
        SPIN_WHILE(&b, b.removals < i);
        CHECK(b.removals == i && b.counted == i);
    }
    bed_end(&b);
}

/* 1 of 200 parallel runs was over before its supervisor answered for its package listener. */
TEST(a_sandbox_that_ends_before_its_package_listener_is_not_a_warning)
{
    struct bed b;

    bed_new(&b);
    b.engine->caps |= ENGINE_CAP_NET_PACKAGES;
    CHECK(ensure(&b, "a", "{}")); /* its supervisor does not know the request */
    SPIN_WHILE(&b, !b.package_warnings);
    CHECK(b.package_warnings == 1);
    fake_end_at_listener(true);
    CHECK(ensure(&b, "b", "{}"));
    SPIN_WHILE(&b, manager_find(b.m, "b", NULL)->state == SANDBOX_RUNNING);
    CHECK(fake_running() == 1 && b.package_warnings == 1);
    fake_end_at_listener(false);
    bed_end(&b);
}

TEST(run_that_cannot_be_created_says_why)
{
    const struct fake_fault fault = {.code = ERR_UNSUPPORTED, .times = 1};
    struct bed b;
    struct watcher w;

    bed_new(&b);
    fake_set_fault(b.engine, FAKE_CREATE, &fault);
    CHECK(run(&b, &w, "echo", "x") == 0 && finish(&w));
    CHECK(w.x->start_err.code == ERR_UNSUPPORTED && fake_count() == 0);
    watcher_done(&w);
    bed_end(&b);
}

TEST(idle_sandboxes_are_stopped)
{
    struct bed b;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{\"idle_stop_ms\":1500}"));
    manager_tick(b.m);
    spin(&b, 20 * USEC_PER_MSEC);
    CHECK(manager_find(b.m, "a", NULL)->state == SANDBOX_RUNNING);
    spin(&b, 1500 * USEC_PER_MSEC);
    manager_tick(b.m);
    SPIN_WHILE(&b, manager_find(b.m, "a", NULL)->state != SANDBOX_STOPPED);
    CHECK(manager_find(b.m, "a", NULL)->state == SANDBOX_STOPPED);
    bed_end(&b);
}

/* ---- restart ---- */

static void recovered(void *arg)
{
    struct bed *b = arg;

    loop_stop(b->loop);
}

static void restart(struct bed *b)
{
    bed_down(b);
    bed_up(b);
    manager_when_recovered(b->m, 0, recovered, b);
    spin(b, WAIT);
}

TEST(restart_adopts_live_sandboxes_and_their_execs)
{
    struct bed b;
    struct watcher w;
    struct sandbox *sb;
    char exec[20];
    json_t *doc;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}") && ensure(&b, "s", "{}") && stop(&b, "s"));
    CHECK(start(&b, &w, "a", "sleep", "2000") == 0 && is_up(&w));
    snprintf(exec, sizeof(exec), "%s", w.x->id);
    watcher_done(&w);
    restart(&b);
    CHECK(!b.timed_out && manager_is_recovered(b.m));
    sb = manager_find(b.m, "a", NULL);
    CHECK(sb && sb->state == SANDBOX_RUNNING && sb->n_execs == 1);
    CHECK(manager_find(b.m, "s", NULL)->state == SANDBOX_STOPPED);
    SPIN_WHILE(&b, sb->n_execs);
    CHECK(exec_get_json(b.m, sb, exec, &doc, NULL) == 0);
    CHECK_STR(json_string_value(json_object_get(json_object_get(doc, "end"), "cause")), "exited");
    json_decref(doc);
    CHECK(start(&b, &w, "a", "echo", "on") == 0 && finish(&w));
    CHECK(w.x->seq == 2); /* numbers continue */
    watcher_done(&w);
    bed_end(&b);
}

static bool leaves_a_record(const struct bed *b, const char *sandbox, const char *exec)
{
    _cleanup_free_ char *dir = xasprintf("%s/execs/%s/%s", b->dir, sandbox, exec);
    struct deadline by = deadline_in(WAIT);
    struct end_record rec;

    do {
        _cleanup_close_ int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

        if (fd >= 0 && end_record_read(fd, &rec, NULL) >= 0)
            return true;
        usleep(10000);
    } while (!deadline_passed(&by));
    return false;
}

TEST(restart_finds_ends_and_lost_execs)
{
    struct bed b;
    struct watcher w, v;
    struct sandbox *sb;
    char ended[20], lost[20], id[20];
    json_t *doc;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(start(&b, &w, "a", "sleep", "1000") == 0 && start(&b, &v, "a", "sleep", "60000") == 0);
    CHECK(is_up(&w) && is_up(&v));
    snprintf(ended, sizeof(ended), "%s", w.x->id);
    snprintf(lost, sizeof(lost), "%s", v.x->id);
    snprintf(id, sizeof(id), "%s", manager_find(b.m, "a", NULL)->id);
    watcher_done(&w);
    watcher_done(&v);
    bed_down(&b);
    CHECK(leaves_a_record(&b, id, ended));
    fake_kill(id);
    bed_up(&b);
    manager_when_recovered(b.m, 0, recovered, &b);
    spin(&b, WAIT);
    sb = manager_find(b.m, "a", NULL);
    CHECK(sb->state == SANDBOX_STOPPED && sb->n_execs == 0);
    CHECK(exec_get_json(b.m, sb, ended, &doc, NULL) == 0);
    CHECK_STR(json_string_value(json_object_get(json_object_get(doc, "end"), "cause")), "exited");
    json_decref(doc);
    CHECK(exec_get_json(b.m, sb, lost, &doc, NULL) == 0);
    CHECK_STR(json_string_value(json_object_get(json_object_get(doc, "end"), "cause")),
              "engine_lost");
    json_decref(doc);
    bed_end(&b);
}

static void orphan_made(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct bed *b = arg;

    (void)err;
    (void)info;
    loop_stop(b->loop);
}

TEST(restart_removes_runs_and_orphans)
{
    struct sandbox_request orphan = {.id = "00000000000000bb"};
    struct bed b;
    struct watcher w;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(run(&b, &w, "sleep", "60000") == 0 && is_up(&w));
    watcher_done(&w);
    spec_defaults(&orphan.spec);
    engine_create(b.engine, &orphan, orphan_made, &b);
    spin(&b, WAIT);
    sandbox_spec_done(&orphan.spec);
    CHECK(fake_count() == 3);
    restart(&b);
    SPIN_WHILE(&b, fake_count() > 1);
    CHECK(fake_count() == 1);
    CHECK(manager_find(b.m, "a", NULL)->state == SANDBOX_RUNNING);
    bed_end(&b);
}

static json_t *document(struct bed *b, const char *id)
{
    json_t *doc = NULL;

    if (exec_get_json(b->m, manager_find(b->m, "a", NULL), id, &doc, NULL) < 0)
        abort();
    return doc;
}

/* Live, ended, and after a restart: the same first part and the true size. */
static bool shows_a_part(struct bed *b, const char *id, size_t words, size_t bytes)
{
    _cleanup_json_ json_t *doc = document(b, id);
    const json_t *argv = json_object_get(doc, "argv"),
                 *cut = json_object_get(doc, "argv_truncated");
    _cleanup_free_ char *text = json_to_text(argv, false);
    const char *last = json_string_value(json_array_get(argv, json_array_size(argv) - 1));

    return strlen(text) <= (32 << 10) + 2 && strlen(text) > 32000 && last &&
           strlen(last) % 2 == 0 && /* no half of an ä */
           json_integer_value(json_object_get(cut, "words")) == (json_int_t)words &&
           json_integer_value(json_object_get(cut, "bytes")) == (json_int_t)bytes;
}

TEST(documents_have_the_first_part_of_a_large_command)
{
    enum { UMLAUTS = 60000, WORDS = 10 };
    struct exec_request req = request((const char *[]){"sleep", "60000", "\x01\n\"", NULL});
    _cleanup_free_ char *word = xmalloc(2 * UMLAUTS + 1);
    struct bed b;
    struct watcher w = {0};
    char id[EXEC_ID_LEN + 1];
    size_t bytes = strlen("sleep60000") + 3 + WORDS * 2 * UMLAUTS;

    for (int i = 0; i < UMLAUTS; i++)
        memcpy(word + 2 * i, "\xc3\xa4", 2);
    word[2 * UMLAUTS] = '\0';
    for (int i = 0; i < WORDS; i++)
        strv_add(&req.argv, word);
    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(watch(&b, &w, manager_exec(b.m, "a", &req, &w.x, NULL)) == 0);
    memcpy(id, w.x->id, sizeof(id));
    CHECK(strv_len(w.x->req.argv) == 3 + WORDS && shows_a_part(&b, id, 3 + WORDS, bytes));
    CHECK(is_up(&w) && strv_len(w.x->req.argv) == 4); /* the rest is released */
    CHECK(shows_a_part(&b, id, 3 + WORDS, bytes));
    watcher_done(&w);
    restart(&b);
    CHECK(shows_a_part(&b, id, 3 + WORDS, bytes));
    CHECK(exec_kill(exec_find_live(manager_find(b.m, "a", NULL), id), NULL, NULL, NULL) == 0);
    SPIN_WHILE(&b, manager_find(b.m, "a", NULL)->n_execs);
    CHECK(shows_a_part(&b, id, 3 + WORDS, bytes));
    bed_end(&b);
}

TEST(small_commands_are_shown_whole)
{
    struct exec_request req = request((const char *[]){"echo", NULL});
    struct bed b;
    struct watcher w = {0};
    _cleanup_json_ json_t *doc = NULL;

    for (int i = 0; i < 4000; i++)
        strv_add(&req.argv, "word");
    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    CHECK(watch(&b, &w, manager_exec(b.m, "a", &req, &w.x, NULL)) == 0 && finish(&w));
    doc = document(&b, w.x->id);
    CHECK(json_array_size(json_object_get(doc, "argv")) == 4001);
    CHECK(!json_object_get(doc, "argv_truncated"));
    watcher_done(&w);
    bed_end(&b);
}

/* Their sandbox does not come up. The pages of the inputs are never touched before the end. */
TEST(large_commands_that_wait_for_their_start_are_bounded)
{
    enum { FIT = 15, SIZE = 16 << 20 };
    const struct fake_fault fault = {.code = ERR_SYSTEM, .times = 1};
    struct exec *execs[FIT], *small;
    struct exec_request req;
    struct bed b;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}") && stop(&b, "a"));
    fake_set_fault(b.engine, FAKE_START, &fault);
    for (int i = 0; i <= FIT; i++) {
        _cleanup_err_ struct err err = ERR_INIT;
        struct exec *x = NULL;

        req = request((const char *[]){"echo", "x", NULL});
        req.input = xcalloc(1, SIZE);
        req.input_len = SIZE;
        CHECK(manager_exec(b.m, "a", &req, &x, &err) == (i < FIT ? 0 : -ERR_LIMIT));
        CHECK(i < FIT || (strstr(err.msg, "256 MiB") && err.hint));
        exec_request_done(&req);
        if (i < FIT)
            execs[i] = x;
    }
    req = request((const char *[]){"echo", "small", NULL});
    CHECK(manager_exec(b.m, "a", &req, &small, NULL) == 0); /* always */
    SPIN_WHILE(&b, small->state != EXEC_ENDED);
    for (int i = 0; i < FIT; i++) {
        CHECK(execs[i]->state == EXEC_ENDED);
        exec_unref(execs[i]);
    }
    exec_unref(small);
    req = request((const char *[]){"echo", "x", NULL});
    req.input = xcalloc(1, SIZE);
    req.input_len = SIZE;
    CHECK(manager_exec(b.m, "a", &req, &small, NULL) == 0); /* there is room again */
    SPIN_WHILE(&b, small->state != EXEC_ENDED);
    exec_unref(small);
    exec_request_done(&req);
    bed_end(&b);
}

TEST(a_sandbox_that_cannot_be_reached_is_not_touched)
{
    const struct fake_fault fault = {.code = ERR_TIMEOUT, .times = 1};
    struct bed b;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    bed_down(&b);
    bed_up(&b);
    fake_set_fault(b.engine, FAKE_CONNECT, &fault);
    manager_when_recovered(b.m, 0, recovered, &b);
    spin(&b, WAIT);
    CHECK(manager_find(b.m, "a", NULL)->state == SANDBOX_FAILED);
    CHECK(fake_running() == 1);
    CHECK(rm(&b, "a", false) && fake_count() == 0);
    bed_end(&b);
}

TEST(operations_during_recovery_wait_for_it)
{
    const struct fake_fault slow = {.delay = 200 * USEC_PER_MSEC, .times = 1};
    struct bed b;
    struct watcher w;

    bed_new(&b);
    CHECK(ensure(&b, "a", "{}"));
    bed_down(&b);
    bed_up(&b);
    fake_set_fault(b.engine, FAKE_CONNECT, &slow);
    CHECK(start(&b, &w, "a", "echo", "x") == 0 && finish(&w));
    CHECK(w.bytes == 2 && b.creations == 1);
    watcher_done(&w);
    bed_end(&b);
}
