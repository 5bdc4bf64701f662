/* Reconcile on the fake engine: plans, limits, retries after failures, and a new store. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/core/reconcile/reconcile.h"
#include "daemon/core/sandbox/manager.h"
#include "daemon/core/sandbox/spec.h"
#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/sandbox-request.h"
#include "fake-engine/fake.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "lib/os/rmtree.h"
#include "lib/store/store.h"
#include "tap.h"

#define WAIT (60 * USEC_PER_SEC)
#define STEP (10 * USEC_PER_MSEC)

struct bed {
    char dir[32];
    struct loop *loop;
    struct loop_timer *timer;
    struct store *store;
    struct engine *engine;
    struct manager *m;
    unsigned answers;
    enum err_code code;
    json_t *report; /* of the last requested run */
};

static void on_time(void *arg)
{
    loop_stop(((struct bed *)arg)->loop);
}

/* Runs the loop for a moment, and one tick. */
static void spin(struct bed *b)
{
    loop_timer_set(b->timer, STEP, false);
    loop_run(b->loop);
    manager_tick(b->m);
}

static void bed_up(struct bed *b)
{
    _cleanup_free_ char *path = xasprintf("%s/ripcord.db", b->dir);
    const struct engine_config config = {.state_dir = b->dir,
                                         .run_dir = b->dir,
                                         .libexec_dir = "/nowhere",
                                         .journal_budget = MIB(1),
                                         .at_once = 2};
    struct manager_config mc = {.default_engine = "fake", .stop_grace = USEC_PER_SEC};

    loop_new(&b->loop, NULL);
    b->timer = loop_timer_new(b->loop, on_time, b);
    CHECK(store_open(path, &b->store, NULL) == 0);
    CHECK(engine_open(b->loop, &engine_fake_ops, &config, &b->engine, NULL) == 0);
    mc.loop = b->loop;
    mc.store = b->store;
    mc.engines = &b->engine;
    mc.n_engines = 1;
    spec_defaults(&mc.defaults);
    b->m = manager_new(&mc);
    sandbox_spec_done(&mc.defaults);
    CHECK(manager_start(b->m, NULL) == 0);
}

static void bed_down(struct bed *b)
{
    manager_close(b->m);
    for (uint64_t end = time_mono() + WAIT; manager_busy(b->m) && time_mono() < end;)
        spin(b);
    manager_free(b->m);
    engine_close(b->engine);
    store_close(b->store);
    loop_timer_free(b->timer);
    loop_free(b->loop);
}

static void bed_new(struct bed *b)
{
    *b = (struct bed){0};
    snprintf(b->dir, sizeof(b->dir), "/tmp/test-recon-XXXXXX");
    if (!mkdtemp(b->dir))
        abort();
    bed_up(b);
}

static void bed_end(struct bed *b)
{
    bed_down(b);
    json_decref(b->report);
    fake_reset();
    rmtree(AT_FDCWD, b->dir, NULL);
}

static void on_done(void *arg, const struct err *err, const struct sandbox *sb,
                    enum manager_action action)
{
    struct bed *b = arg;

    (void)sb;
    (void)action;
    b->answers++;
    b->code = err ? err->code : ERR_NONE;
}

static bool answered(struct bed *b)
{
    for (uint64_t end = time_mono() + WAIT; !b->answers && time_mono() < end;)
        spin(b);
    return b->answers == 1 && b->code == ERR_NONE;
}

static bool up(struct bed *b, const char *name)
{
    _cleanup_json_ json_t *spec = json_pack("{s:s}", "network", "none");

    b->answers = 0;
    return manager_ensure(b->m, name, spec, on_done, b, NULL) == 0 && answered(b);
}

static void made(void *arg, const struct err *err, struct engine_sandbox *info)
{
    if (info)
        fd_close(TAKE_FD(info->supervisor_fd)); /* its supervisor stays alive */
    on_done(arg, err, NULL, ACTION_UNCHANGED);
}

/* Makes an object of our root without a row. */
static bool orphan(struct bed *b, const char *id, const char *name, bool runs)
{
    struct sandbox_request req = {.fresh = true};
    bool ok;

    snprintf(req.id, sizeof(req.id), "%s", id);
    snprintf(req.name, sizeof(req.name), "%s", name);
    spec_defaults(&req.spec);
    b->answers = 0;
    engine_create(b->engine, &req, made, b);
    ok = answered(b);
    b->answers = 0;
    if (runs)
        engine_start(b->engine, &req, made, b);
    sandbox_spec_done(&req.spec);
    return ok && (!runs || answered(b));
}

static bool make_orphan(struct bed *b, const char *id, const char *name)
{
    return orphan(b, id, name, false);
}

static void ran(void *arg)
{
    struct bed *b = arg;

    json_decref(b->report);
    b->report = reconcile_report(b->m, 0);
    b->answers++;
    b->code = ERR_NONE;
}

static bool run(struct bed *b, bool dry, bool from_engine)
{
    const struct reconcile_options o = {
        .trigger = "command", .dry_run = dry, .from_engine = from_engine};

    b->answers = 0;
    reconcile_request(b->m, &o, ran, b);
    return answered(b);
}

static int count(const struct bed *b, const char *key)
{
    return (int)json_integer_value(json_object_get(json_object_get(b->report, "counts"), key));
}

static bool soon(struct bed *b, size_t sandboxes)
{
    for (uint64_t end = time_mono() + WAIT; fake_count() != sandboxes && time_mono() < end;)
        spin(b);
    return fake_count() == sandboxes;
}

TEST(leftovers_are_removed_and_a_dry_run_only_reports_them)
{
    struct bed b;

    bed_new(&b);
    CHECK(up(&b, "keep") && run(&b, false, false));
    CHECK(make_orphan(&b, "00000000000000b1", "x") && make_orphan(&b, "00000000000000b2", "y"));
    CHECK(run(&b, true, false) && count(&b, "removed") == 2 && fake_count() == 3);
    CHECK(run(&b, false, false) && count(&b, "removed") == 2 && fake_count() == 1);
    CHECK(count(&b, "adopted") == 1 && fake_running() == 1);
    CHECK(run(&b, false, false) && count(&b, "removed") == 0 && count(&b, "adopted") == 1);
    bed_end(&b);
}

TEST(one_failed_removal_does_not_stop_the_others_and_is_tried_again)
{
    const struct fake_fault fault = {.code = ERR_ENGINE, .times = 1};
    struct bed b;

    bed_new(&b);
    CHECK(run(&b, false, false));
    for (int i = 0; i < 5; i++) {
        _cleanup_free_ char *id = xasprintf("00000000000000c%d", i);

        CHECK(make_orphan(&b, id, "z"));
    }
    fake_set_fault(b.engine, FAKE_REMOVE, &fault);
    CHECK(run(&b, false, false));
    CHECK(count(&b, "removed") == 4 && count(&b, "failed") == 1 && fake_count() == 1);
    CHECK(soon(&b, 0)); /* automatically, after a pause */
    bed_end(&b);
}

TEST(all_processes_are_ended_before_the_first_removal)
{
    const struct fake_fault fault = {.code = ERR_ENGINE};
    struct bed b;

    bed_new(&b);
    CHECK(up(&b, "keep") && run(&b, false, false));
    for (int i = 0; i < 5; i++) {
        _cleanup_free_ char *id = xasprintf("00000000000000e%d", i);

        CHECK(orphan(&b, id, "z", true));
    }
    CHECK(run(&b, true, false) && fake_running() == 6);
    fake_set_fault(b.engine, FAKE_REMOVE, &fault);
    CHECK(run(&b, false, false) && count(&b, "failed") == 5);
    CHECK(fake_count() == 6 && fake_running() == 1);
    bed_end(&b);
}

TEST(a_list_that_fails_removes_nothing)
{
    const struct fake_fault fault = {.code = ERR_ENGINE, .times = 1};
    struct bed b;

    bed_new(&b);
    CHECK(up(&b, "keep") && run(&b, false, false));
    fake_set_fault(b.engine, FAKE_LIST, &fault);
    CHECK(run(&b, false, false));
    CHECK(json_array_size(json_object_get(b.report, "unreachable")) == 1 && fake_running() == 1);
    CHECK(json_integer_value(json_object_get(b.report, "total")) == 0);
    bed_end(&b);
}

TEST(a_new_store_keeps_unknown_objects_until_they_are_taken_back)
{
    _cleanup_free_ char *db = NULL;
    const struct sandbox *sb;
    struct bed b;

    bed_new(&b);
    CHECK(up(&b, "a") && up(&b, "b"));
    bed_down(&b);
    db = xasprintf("%s/ripcord.db", b.dir);
    CHECK(unlink(db) == 0);
    bed_up(&b);
    CHECK(run(&b, false, false) && count(&b, "deferred") == 2 && fake_running() == 2);
    CHECK(run(&b, false, true) && count(&b, "adopted") == 2);
    sb = manager_find(b.m, "a", NULL);
    CHECK(sb && sb->state == SANDBOX_RUNNING && sb->spec.network == SPEC_NETWORK_NONE);
    CHECK(run(&b, false, false) && count(&b, "adopted") == 2 && count(&b, "recreated") == 0);
    CHECK(
        make_orphan(&b, "00000000000000d1", "late")); /* from now on the store knows its objects */
    CHECK(run(&b, false, false) && count(&b, "removed") == 1 && fake_running() == 2);
    bed_end(&b);
}
