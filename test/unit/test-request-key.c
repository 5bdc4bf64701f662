/* Keys of requests: what a second request with the same key gets, and what is kept. */
#include <stdlib.h>
#include <unistd.h>

#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/requests/request-key.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "tap.h"

static char dir[40];
static struct loop *loop;
static struct store *store;
static struct manager *m;
static unsigned warnings;

static void on_warning(void *arg _unused_, const char *message)
{
    printf("# warning: %s\n", message);
    warnings++;
}

static void open_all(void)
{
    struct manager_config config = {.on_warning = on_warning, .default_engine = "none"};
    _cleanup_free_ char *path = xasprintf("%s/db", dir);

    if (loop_new(&loop, NULL) < 0 || store_open(path, &store, NULL) < 0)
        abort();
    config.loop = loop;
    config.store = store;
    m = manager_new(&config);
}

static void close_all(void)
{
    manager_free(m);
    store_close(store);
    loop_free(loop);
}

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/test-request-key-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    warnings = 0;
    open_all();
}

static void teardown(void)
{
    static const char *const names[] = {"db", "db-wal", "db-shm", "root-id"};

    close_all();
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _cleanup_free_ char *file = xasprintf("%s/%s", dir, names[i]);

        unlink(file);
    }
    rmdir(dir);
    CHECK(warnings == 0);
}

static int take(const char *key, const char *digest, bool exec, struct request_key **ret)
{
    struct request_name name = {.makes_exec = exec};
    _cleanup_err_ struct err err = ERR_INIT;
    int r;

    snprintf(name.key, sizeof(name.key), "%s", key);
    snprintf(name.digest, sizeof(name.digest), "%s", digest);
    r = request_key_take(m, &name, ret, &err);
    return r < 0 && !STREQ(err.part, "header") ? -ERR_SYSTEM : r;
}

static void make(struct request_key *k, struct exec *x)
{
    *x = (struct exec){.m = m, .sandbox_name = "box"};
    request_key_made(k, x);
}

TEST(a_key_belongs_to_one_request)
{
    struct request_key *k = NULL, *again = NULL;

    setup();
    CHECK(take("k", "a", true, &k) >= 0);
    CHECK(k->known == REQUEST_IS_NEW && strlen(k->exec) == EXEC_ID_LEN);
    CHECK(take("k", "b", true, &again) == -ERR_CONFLICT);
    CHECK(take("k", "a", true, &again) == -ERR_CONFLICT); /* it is under way */
    request_key_answer(k, 201, "{}");
    CHECK(take("k", "b", true, &again) == -ERR_CONFLICT);
    CHECK(take("k", "a", true, &again) >= 0);
    CHECK(again->known == REQUEST_IS_ANSWERED && again->status == 201);
    CHECK_STR(again->body, "{}");
    request_key_free(again);
    request_key_free(k);
    teardown();
}

TEST(an_exec_is_followed_and_its_answer_kept_once)
{
    struct request_key *k = NULL, *again = NULL;
    struct exec x;

    setup();
    CHECK(take("k", "a", true, &k) >= 0);
    make(k, &x);
    CHECK_STR(x.request_key, "k");
    CHECK(take("k", "a", true, &again) >= 0);
    CHECK(again->known == REQUEST_HAS_EXEC && STREQ(again->exec, k->exec));
    CHECK_STR(again->sandbox, "box");
    request_key_failed(again); /* reading its output has failed; the command has run */
    request_key_answer(again, 200, "[1]");
    request_key_free(again);
    request_key_free(k);
    CHECK(take("k", "a", true, &again) >= 0);
    CHECK(again->known == REQUEST_IS_ANSWERED);
    request_key_failed(again);
    request_key_free(again);
    CHECK(take("k", "a", true, &again) >= 0);
    CHECK_STR(again->body, "[1]");
    request_key_free(again);
    free(x.request_key);
    teardown();
}

TEST(a_failed_request_frees_its_key)
{
    struct request_key *k = NULL;
    struct exec x;

    setup();
    CHECK(take("k", "a", false, &k) >= 0);
    request_key_failed(k);
    request_key_free(k);
    CHECK(take("k", "b", true, &k) >= 0);
    CHECK(k->known == REQUEST_IS_NEW);
    make(k, &x);
    request_key_forget(m, x.request_key); /* its start has failed */
    request_key_free(k);
    free(x.request_key);
    CHECK(take("k", "c", true, &k) >= 0);
    CHECK(k->known == REQUEST_IS_NEW);
    request_key_free(k);
    teardown();
}

TEST(a_daemon_that_ended)
{
    struct request_key *file = NULL, *exec = NULL, *made = NULL;
    char id[EXEC_ID_LEN + 1];
    struct exec x;

    setup();
    CHECK(take("file", "a", false, &file) >= 0);
    CHECK(take("exec", "a", true, &exec) >= 0);
    CHECK(take("made", "a", true, &made) >= 0);
    make(made, &x);
    memcpy(id, exec->exec, sizeof(id));
    request_key_free(file);
    request_key_free(exec);
    request_key_free(made);
    close_all();
    open_all();
    CHECK(take("file", "a", false, &file) == -ERR_CONFLICT); /* nobody knows what it has done */
    CHECK(take("exec", "a", true, &exec) >= 0);
    CHECK(exec->known == REQUEST_HAS_EXEC && STREQ(exec->exec, id) && !*exec->sandbox);
    CHECK(take("exec", "a", true, &made) == -ERR_CONFLICT); /* and now it is under way */
    CHECK(take("made", "a", true, &made) >= 0);
    CHECK_STR(made->sandbox, "box");
    request_key_free(exec);
    request_key_free(made);
    free(x.request_key);
    teardown();
}

static void add_old(const char *key, uint64_t age)
{
    const struct store_key row = {
        .key = key, .request = "a", .at = time_wall() - age * USEC_PER_SEC, .exec = ""};

    CHECK(store_key_add(store, &row, NULL) >= 0);
    CHECK(store_key_set_answer(store, key, 200, "{}", NULL) >= 0);
}

TEST(a_day)
{
    struct store_key_size size;
    struct request_key *k = NULL;

    setup();
    add_old("young", 86400 - 60);
    add_old("old", 86400 + 60);
    add_old("older", 86400 + 120);
    CHECK(take("young", "a", false, &k) >= 0);
    CHECK(k->known == REQUEST_IS_ANSWERED);
    request_key_free(k);
    CHECK(take("old", "other", false, &k) >= 0);
    CHECK(k->known == REQUEST_IS_NEW && !k->body);
    request_key_failed(k);
    request_key_free(k);
    request_keys_tick(m);
    CHECK(store_key_size(store, &size, NULL) >= 0);
    CHECK(size.keys == 1 && size.bytes == 2);
    teardown();
}

TEST(long_answers_are_not_kept)
{
    _cleanup_free_ char *text = xmalloc(REQUEST_ANSWER_MAX + 2);
    struct request_key *k = NULL;

    setup();
    memset(text, ' ', REQUEST_ANSWER_MAX + 1);
    text[REQUEST_ANSWER_MAX + 1] = '\0';
    CHECK(take("k", "a", true, &k) >= 0);
    request_key_answer(k, 200, text);
    CHECK(k->status == 0);
    text[REQUEST_ANSWER_MAX] = '\0';
    request_key_answer(k, 200, text);
    CHECK(k->status == 200);
    request_key_free(k);
    teardown();
}

/* The oldest go, but never those that are under way. */
TEST(as_many_as_there_may_be)
{
    struct store_key_size size;
    struct request_key *k = NULL;
    char key[16];

    setup();
    CHECK(store_begin(store, NULL) >= 0);
    for (unsigned i = 0; i < 10000; i++) {
        const struct store_key row = {.key = key, .request = "a", .at = time_wall(), .exec = ""};

        snprintf(key, sizeof(key), "%u", i);
        CHECK(store_key_add(store, &row, NULL) >= 0);
    }
    CHECK(store_end(store, 0, NULL) >= 0);
    CHECK(take("k", "a", true, &k) == -ERR_LIMIT);
    CHECK(store_key_set_answer(store, "7", 200, "{}", NULL) >= 0);
    CHECK(store_key_set_exec(store, "9", "box", NULL) >= 0);
    CHECK(take("k", "a", true, &k) >= 0);
    CHECK(store_key_size(store, &size, NULL) >= 0);
    CHECK(size.keys == 9999);
    request_key_free(k);
    CHECK(take("9", "b", true, &k) >= 0); /* it is gone */
    request_key_free(k);
    teardown();
}
