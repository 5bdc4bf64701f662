/* Core with two engines: `fake`, and `remote`, which can be unreachable and is changed from
 * outside. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/core/exec/exec.h"
#include "daemon/core/sandbox/manager.h"
#include "daemon/core/sandbox/spec.h"
#include "daemon/engine/engine-config.h"
#include "fake-engine/fake.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "lib/os/rmtree.h"
#include "lib/store/store.h"
#include "tap.h"

#define WAIT (60 * USEC_PER_SEC)
#define REMOTE "{\"engine\":\"remote\"}"

struct bed {
    char dir[32];
    struct loop *loop;
    struct loop_timer *timer;
    struct store *store;
    struct engine *engines[2]; /* fake, remote */
    struct manager *m;
    unsigned answers, good, bad;
    enum err_code code;
    enum manager_action action;
};

static void on_warning(void *arg, const char *message)
{
    (void)arg;
    printf("# warning: %s\n", message);
}

static void on_timeout(void *arg)
{
    struct bed *b = arg;

    loop_stop(b->loop);
}

/* fault: of opening the remote engine, from the start; or NULL. */
static void bed_up(struct bed *b, const struct fake_fault *fault)
{
    char path[64];
    struct engine_config config = {.state_dir = b->dir,
                                   .run_dir = b->dir,
                                   .root_id = "0123456789abcdef",
                                   .libexec_dir = "/nowhere",
                                   .journal_budget = MIB(64)};
    struct manager_config mc = {.default_engine = "fake",
                                .engines = b->engines,
                                .n_engines = 2,
                                .stop_grace = USEC_PER_SEC / 10,
                                .on_warning = on_warning,
                                .arg = b};
    _cleanup_err_ struct err err = ERR_INIT;

    snprintf(path, sizeof(path), "%s/db", b->dir);
    if (loop_new(&b->loop, &err) < 0 || store_open(path, &b->store, &err) < 0 ||
        engine_open(b->loop, &engine_fake_ops, &config, &b->engines[0], &err) < 0)
        abort();
    b->engines[1] = engine_new(b->loop, &engine_fake_remote_ops, &config);
    fake_set_fault(b->engines[1], FAKE_OPEN, fault);
    b->timer = loop_timer_new(b->loop, on_timeout, b);
    mc.loop = b->loop;
    mc.store = b->store;
    spec_defaults(&mc.defaults);
    b->m = manager_new(&mc);
    sandbox_spec_done(&mc.defaults);
    if (manager_start(b->m, &err) < 0)
        abort();
}

static void spin(struct bed *b, uint64_t usec)
{
    loop_timer_set(b->timer, usec, false);
    loop_run(b->loop);
    loop_timer_stop(b->timer);
}

static void bed_down(struct bed *b)
{
    manager_close(b->m);
    for (uint64_t end = time_mono() + WAIT; manager_busy(b->m) && time_mono() < end;)
        spin(b, 10 * USEC_PER_MSEC);
    manager_free(b->m);
    engine_close(b->engines[0]);
    engine_close(b->engines[1]);
    loop_timer_free(b->timer);
    loop_free(b->loop);
    store_close(b->store);
}

static void bed_new(struct bed *b, const struct fake_fault *fault)
{
    *b = (struct bed){.dir = "/tmp/test-engines-XXXXXX"};
    if (!mkdtemp(b->dir))
        abort();
    bed_up(b, fault);
}

static void bed_end(struct bed *b)
{
    bed_down(b);
    fake_reset();
    rmtree(AT_FDCWD, b->dir, NULL);
}

static void on_done(void *arg, const struct err *err, const struct sandbox *sb,
                    enum manager_action action)
{
    struct bed *b = arg;

    (void)sb;
    b->answers++;
    b->good += !err;
    b->bad += err != NULL;
    b->code = err ? err->code : ERR_NONE;
    b->action = action;
    if (err)
        printf("# %s\n", err->msg);
    loop_stop(b->loop);
}

static bool wait_answers(struct bed *b, unsigned n)
{
    uint64_t end = time_mono() + WAIT;

    while (b->answers < n && time_mono() < end)
        spin(b, 100 * USEC_PER_MSEC);
    return b->answers >= n;
}

static bool ask(struct bed *b, const char *name, const char *spec)
{
    _cleanup_json_ json_t *doc = json_loads(spec, 0, NULL);

    return manager_ensure(b->m, name, doc, on_done, b, NULL) >= 0;
}

static bool ensure(struct bed *b, const char *name, const char *spec)
{
    unsigned n = b->answers + 1;

    return ask(b, name, spec) && wait_answers(b, n) && b->code == ERR_NONE;
}

static bool becomes(struct bed *b, const char *name, enum sandbox_state state, const char *why)
{
    uint64_t end = time_mono() + WAIT;
    const struct sandbox *sb;

    do {
        spin(b, 10 * USEC_PER_MSEC);
        sb = manager_find(b->m, name, NULL);
        if (sb && sb->state == state && !sb->ops &&
            (!why || (sb->reason && strstr(sb->reason, why))))
            return true;
    } while (time_mono() < end);
    printf("# %s is %s (%s)\n", name, sb ? sandbox_state_name(sb->state) : "not there",
           sb && sb->reason ? sb->reason : "no reason");
    return false;
}

TEST(an_engine_that_cannot_be_opened_says_why_and_is_tried_again)
{
    const struct fake_fault fault = {.code = ERR_ENGINE, .times = 1};
    struct bed b;

    bed_new(&b, &fault);
    CHECK(!engine_is_open(b.engines[1]) && !engine_trouble(b.engines[1]));
    CHECK(!ensure(&b, "a", REMOTE) && b.code == ERR_ENGINE);
    CHECK(engine_trouble(b.engines[1]) && !manager_find(b.m, "a", NULL));
    CHECK(strstr(engine_trouble(b.engines[1])->msg, "engine 'remote' cannot be used"));
    CHECK(ensure(&b, "x", "{}")); /* the other engine is not affected */
    CHECK(ensure(&b, "a", REMOTE) && b.action == ACTION_CREATED);
    CHECK(engine_is_open(b.engines[1]) && !engine_trouble(b.engines[1]));
    CHECK_STR(manager_find(b.m, "a", NULL)->engine->ops->name, "remote");
    CHECK_STR(manager_find(b.m, "x", NULL)->engine->ops->name, "fake");
    bed_end(&b);
}

TEST(a_hung_engine_delays_no_other_engine)
{
    const struct fake_fault fault = {.delay = 3 * USEC_PER_SEC, .times = 1};
    struct bed b;

    bed_new(&b, &fault);
    for (int i = 0; i < 12; i++) { /* more than it has workers */
        char name[8];

        snprintf(name, sizeof(name), "r%d", i);
        CHECK(ask(&b, name, REMOTE));
    }
    CHECK(ensure(&b, "x", "{}"));
    CHECK(b.answers == 1 && manager_find(b.m, "x", NULL)->state == SANDBOX_RUNNING);
    CHECK(wait_answers(&b, 13) && b.bad == 0);
    bed_end(&b);
}

TEST(requests_that_wait_for_an_open_share_its_failure)
{
    const struct fake_fault fault = {.code = ERR_ENGINE, .delay = USEC_PER_SEC / 2, .times = 1};
    struct bed b;

    bed_new(&b, &fault);
    for (int i = 0; i < 4; i++) {
        char name[8];

        snprintf(name, sizeof(name), "r%d", i);
        CHECK(ask(&b, name, REMOTE));
    }
    CHECK(wait_answers(&b, 4) && b.bad == 4); /* one try, not four */
    bed_end(&b);
}

TEST(an_unknown_engine_gets_a_suggestion)
{
    _cleanup_json_ json_t *doc = json_loads("{\"engine\":\"remot\"}", 0, NULL);
    _cleanup_err_ struct err err = ERR_INIT;
    struct bed b;

    bed_new(&b, NULL);
    CHECK(manager_ensure(b.m, "a", doc, on_done, &b, &err) == -ERR_INVALID);
    CHECK(err.hint && strstr(err.hint, "'remote'"));
    bed_end(&b);
}

TEST(unsupported_features_are_refused_by_name)
{
    static const char *const bad[] = {
        "{\"runtime\":\"runsc\"}", "{\"caches\":{\"pip\":\"private\"}}", "{\"image\":\"debian\"}"};
    struct bed b;

    bed_new(&b, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_json_ json_t *doc = json_loads(bad[i], 0, NULL);
        _cleanup_err_ struct err err = ERR_INIT;

        CHECK(manager_ensure(b.m, "a", doc, on_done, &b, &err) < 0);
        CHECK(strstr(err.msg, "'fake'"));
    }
    CHECK(ensure(&b, "a",
                 "{\"engine\":\"remote\",\"runtime\":\"runsc\",\"image\":\"debian\","
                 "\"caches\":{\"pip\":\"private\"}}"));
    CHECK(!ensure(&b, "b", "{\"engine\":\"remote\",\"caches\":{\"pip\":\"layered\"}}"));
    bed_end(&b);
}

/* Runs a command, which starts a stopped sandbox. */
static bool runs_echo(struct bed *b, const char *name)
{
    struct exec_request req = {0};
    struct exec *x = NULL;
    uint64_t end = time_mono() + WAIT;

    strv_add(&req.argv, "echo");
    if (manager_exec(b->m, name, &req, &x, NULL) < 0)
        return false;
    while (x->state != EXEC_ENDED && time_mono() < end)
        spin(b, 10 * USEC_PER_MSEC);
    spin(b, 10 * USEC_PER_MSEC);
    if (x->state != EXEC_ENDED || x->end.cause != END_EXITED)
        return false;
    exec_unref(x);
    return true;
}

TEST(another_image_behind_the_name_recreates_on_up_only)
{
    char hash[65];
    struct bed b;

    bed_new(&b, NULL);
    CHECK(ensure(&b, "a", REMOTE));
    CHECK_STR(manager_find(b.m, "a", NULL)->spec.image, "default");
    snprintf(hash, sizeof(hash), "%s", manager_find(b.m, "a", NULL)->hash);
    CHECK(ensure(&b, "a", REMOTE) && b.action == ACTION_UNCHANGED);
    fake_new_image();
    CHECK(manager_stop(b.m, "a", 0, on_done, &b, NULL) == 0 && wait_answers(&b, 3));
    CHECK(runs_echo(&b, "a")); /* a command uses the existing sandbox */
    CHECK_STR(manager_find(b.m, "a", NULL)->hash, hash);
    CHECK(ensure(&b, "a", "{}") && b.action == ACTION_RECREATED);
    CHECK(strcmp(hash, manager_find(b.m, "a", NULL)->hash) != 0);
    bed_end(&b);
}

/* The capabilities of a closed engine are not known: the request must not be refused. */
TEST(a_sandbox_is_resumed_before_its_engine_is_open)
{
    const struct fake_fault down = {.code = ERR_ENGINE, .times = 1000};
    struct bed b;

    bed_new(&b, NULL);
    CHECK(ensure(&b, "a", REMOTE));
    CHECK(manager_pause(b.m, "a", true, on_done, &b, NULL) == 0 && wait_answers(&b, 2));
    bed_down(&b);
    b.answers = 0;
    bed_up(&b, &down);
    CHECK(becomes(&b, "a", SANDBOX_PAUSED, NULL) && !engine_is_open(b.engines[1]));
    CHECK(manager_pause(b.m, "a", false, on_done, &b, NULL) == 0 && wait_answers(&b, 1));
    CHECK(b.code == ERR_NONE && !engine_is_open(b.engines[1]));
    bed_end(&b);
}

TEST(a_missing_image_is_reported)
{
    const struct fake_fault fault = {.code = ERR_NOT_FOUND, .times = 1};
    struct bed b;

    bed_new(&b, NULL);
    fake_set_fault(b.engines[1], FAKE_RESOLVE, &fault);
    CHECK(!ensure(&b, "a", REMOTE) && b.code == ERR_NOT_FOUND);
    CHECK(fake_count() == 0 && !manager_find(b.m, "a", NULL));
    bed_end(&b);
}

TEST(changes_outside_ripcord_are_seen)
{
    char id[SANDBOX_ID_LEN + 1];
    struct bed b;

    bed_new(&b, NULL);
    CHECK(ensure(&b, "a", REMOTE));
    snprintf(id, sizeof(id), "%s", manager_find(b.m, "a", NULL)->id);
    fake_outside(b.engines[1], id, FAKE_OUTSIDE_PAUSED);
    CHECK(becomes(&b, "a", SANDBOX_PAUSED, "outside"));
    fake_outside(b.engines[1], id, FAKE_OUTSIDE_NOTHING);
    CHECK(becomes(&b, "a", SANDBOX_RUNNING, NULL));
    fake_outside(b.engines[1], id, FAKE_OUTSIDE_REMOVED);
    CHECK(becomes(&b, "a", SANDBOX_STOPPED, "gone: removed outside ripcord"));
    CHECK(ensure(&b, "a", "{}") && b.action == ACTION_STARTED);
    bed_end(&b);
}

TEST(a_running_sandbox_is_removed_without_a_stop)
{
    struct bed b;

    bed_new(&b, NULL);
    CHECK(ensure(&b, "a", REMOTE) && fake_running() == 1);
    CHECK(manager_remove(b.m, "a", false, on_done, &b, NULL) == 0 && wait_answers(&b, 2));
    CHECK(b.bad == 0 && fake_count() == 0 && !manager_find(b.m, "a", NULL));
    bed_end(&b);
}

TEST(recovery_does_not_wait_for_an_engine_out_of_reach)
{
    const struct fake_fault down = {.code = ERR_ENGINE, .delay = 3 * USEC_PER_SEC};
    char dead[SANDBOX_ID_LEN + 1];
    uint64_t since;
    struct bed b;

    bed_new(&b, NULL);
    CHECK(ensure(&b, "lives", REMOTE) && ensure(&b, "dead", REMOTE) && ensure(&b, "x", "{}"));
    snprintf(dead, sizeof(dead), "%s", manager_find(b.m, "dead", NULL)->id);
    bed_down(&b);
    fake_kill(dead);
    since = time_mono();
    bed_up(&b, &down);
    while (!manager_is_recovered(b.m) && time_mono() - since < WAIT)
        spin(&b, 10 * USEC_PER_MSEC);
    CHECK(manager_is_recovered(b.m) && time_mono() - since < down.delay);
    CHECK(manager_find(b.m, "x", NULL)->state == SANDBOX_RUNNING);
    CHECK(manager_find(b.m, "lives", NULL)->state ==
          SANDBOX_RUNNING); /* its supervisor reports that */
    CHECK(manager_find(b.m, "dead", NULL)->state == SANDBOX_STOPPED);
    CHECK(manager_find(b.m, "dead", NULL)->unsettled);
    fake_set_fault(b.engines[1], FAKE_OPEN, NULL);
    while (!engine_trouble(b.engines[1]) && time_mono() - since < WAIT)
        spin(&b, 10 * USEC_PER_MSEC); /* the running attempt fails */
    CHECK(ensure(&b, "new", REMOTE)); /* opens the engine: pending cleanups are done now */
    CHECK(becomes(&b, "dead", SANDBOX_STOPPED, NULL));
    CHECK(!manager_find(b.m, "dead", NULL)->unsettled);
    bed_end(&b);
}
