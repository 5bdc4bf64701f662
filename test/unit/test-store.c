/* The store: rows, constraints, migration, and damaged or foreign files. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/store/store.h"
#include "tap.h"

static char dir[32], path[64];

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/test-store-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    snprintf(path, sizeof(path), "%s/ripcord.db", dir);
}

static void teardown(void)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char file[80];

    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        snprintf(file, sizeof(file), "%s%s", path, suffixes[i]);
        unlink(file);
    }
    snprintf(file, sizeof(file), "%s/root-id", dir);
    unlink(file);
    rmdir(dir);
}

static struct store_sandbox row(const char *id, const char *name)
{
    return (struct store_sandbox){
        .id = id,
        .name = name,
        .engine = "fake",
        .spec = "{}",
        .hash = "h",
        .wanted = "running",
        .state = "creating",
        .since = 1,
        .created_at = 2,
    };
}

struct seen {
    unsigned n;
    char last_id[40], state[16], reason[32], end[64];
    uint64_t seq, ended_at, up_at, idle_at;
};

static void on_sandbox(void *arg, const struct store_sandbox *r)
{
    struct seen *s = arg;

    s->n++;
    snprintf(s->last_id, sizeof(s->last_id), "%s", r->id);
    snprintf(s->state, sizeof(s->state), "%s", r->state);
    snprintf(s->reason, sizeof(s->reason), "%s", r->reason ? r->reason : "(null)");
    s->up_at = r->up_at;
    s->idle_at = r->idle_at;
}

static void on_exec(void *arg, const struct store_exec *r)
{
    struct seen *s = arg;

    s->n++;
    snprintf(s->last_id, sizeof(s->last_id), "%s", r->id);
    snprintf(s->state, sizeof(s->state), "%s", r->state);
    snprintf(s->end, sizeof(s->end), "%s", r->end ? r->end : "(null)");
    s->seq = r->seq;
    s->ended_at = r->ended_at;
}

TEST(root_id_is_made_once_and_kept)
{
    struct store *s = NULL;
    char id[17];

    setup();
    CHECK(store_open(path, &s, NULL) == 0);
    snprintf(id, sizeof(id), "%s", store_root_id(s));
    CHECK(strlen(id) == 16 && strspn(id, "0123456789abcdef") == 16);
    store_close(s);
    CHECK(store_open(path, &s, NULL) == 0);
    CHECK_STR(store_root_id(s), id);
    store_close(s);
    teardown();
}

/* A database that is lost must not make strangers of everything that carries the root's id. */
TEST(a_new_database_keeps_the_root_id_and_holds_what_it_does_not_know)
{
    char id[40];
    struct store *s;

    setup();
    CHECK(store_open(path, &s, NULL) == 0);
    snprintf(id, sizeof(id), "%s", store_root_id(s));
    CHECK(store_is_held(s, "one") && store_is_held(s, "two"));
    CHECK(store_settle(s, "one", NULL) == 0);
    CHECK(!store_is_held(s, "one") && store_is_held(s, "two"));
    store_close(s);
    CHECK(store_open(path, &s, NULL) == 0);
    CHECK(!store_is_held(s, "one") && store_is_held(s, "two"));
    store_close(s);
    CHECK(unlink(path) == 0);
    CHECK(store_open(path, &s, NULL) == 0);
    CHECK_STR(store_root_id(s), id);
    CHECK(store_is_held(s, "one"));
    store_close(s);
    teardown();
}

TEST(sandbox_rows)
{
    struct store_sandbox a = row("1", "a"), b = row("2", "b"), twin = row("3", "a");
    const struct store_sandbox changed = {
        .id = "2", .wanted = "stopped", .state = "failed", .since = 9, .reason = "why", .up_at = 7};
    _cleanup_err_ struct err err = ERR_INIT;
    struct seen seen = {0};
    struct store *s = NULL;

    setup();
    CHECK(store_open(path, &s, NULL) == 0);
    CHECK(store_sandbox_put(s, &b, NULL) == 0);
    CHECK(store_sandbox_put(s, &a, NULL) == 0);
    CHECK(store_sandbox_put(s, &twin, &err) == -ERR_CONFLICT);
    CHECK(strstr(err.msg, "'a'"));
    CHECK(store_sandbox_set_state(s, &changed, NULL) == 0);
    CHECK(store_sandbox_each(s, on_sandbox, &seen, NULL) == 0);
    CHECK(seen.n == 2);
    CHECK_STR(seen.last_id, "2"); /* by name: b comes last */
    CHECK_STR(seen.state, "failed");
    CHECK_STR(seen.reason, "why");
    CHECK(seen.up_at == 7 && seen.idle_at == 0);
    CHECK(store_sandbox_set_idle(s, "2", 8, NULL) == 0);
    CHECK(store_sandbox_each(s, on_sandbox, &seen, NULL) == 0 && seen.idle_at == 8);
    a.state = "stopped";
    CHECK(store_sandbox_put(s, &a, NULL) == 0); /* the same id: replaced */
    CHECK(store_sandbox_delete(s, "2", NULL) == 0);
    seen = (struct seen){0};
    CHECK(store_sandbox_each(s, on_sandbox, &seen, NULL) == 0);
    CHECK(seen.n == 1);
    CHECK_STR(seen.state, "stopped");
    CHECK_STR(seen.reason, "(null)");
    store_close(s);
    teardown();
}

static int add_exec(struct store *s, const char *id, const char *box, uint64_t seq)
{
    const struct store_exec x = {.id = id,
                                 .sandbox_id = box,
                                 .seq = seq,
                                 .argv = "[]",
                                 .options = "{}",
                                 .state = "running",
                                 .started_at = 5};

    return store_exec_add(s, &x, NULL);
}

TEST(exec_rows)
{
    struct store_sandbox a = row("1", "a");
    _cleanup_err_ struct err err = ERR_INIT;
    struct seen seen = {0};
    struct store *s = NULL;
    uint64_t n = 99;

    setup();
    CHECK(store_open(path, &s, NULL) == 0);
    CHECK(store_sandbox_put(s, &a, NULL) == 0);
    CHECK(store_exec_last_seq(s, "1", &n, NULL) == 0 && n == 0);
    CHECK(store_exec_get(s, "1", "last", on_exec, &seen, &err) == -ERR_NOT_FOUND);
    CHECK(add_exec(s, "x1", "1", 1) == 0);
    CHECK(add_exec(s, "x2", "1", 2) == 0);
    CHECK(add_exec(s, "x3", "nobody", 1) < 0); /* foreign key */
    CHECK(add_exec(s, "x4", "1", 2) < 0);      /* a sequence number once */
    CHECK(store_exec_end(s, "x1", "ended", 7, "{\"cause\":\"exited\"}", 5, NULL) == 0);
    CHECK(store_exec_get(s, "1", "x1", on_exec, &seen, NULL) == 0);
    CHECK_STR(seen.end, "{\"cause\":\"exited\"}");
    CHECK(seen.ended_at == 7);
    CHECK(store_exec_get(s, "1", "last", on_exec, &seen, NULL) == 0);
    CHECK_STR(seen.last_id, "x2");
    seen = (struct seen){0};
    CHECK(store_exec_each(s, "1", &(struct store_exec_page){.limit = 10}, on_exec, &seen, NULL) ==
          0);
    CHECK(seen.n == 2 && seen.seq == 1); /* newest first */
    seen = (struct seen){0};
    CHECK(store_exec_each(s, "1", &(struct store_exec_page){.limit = 1}, on_exec, &seen, NULL) ==
          0);
    CHECK(seen.n == 1 && seen.seq == 2);
    seen = (struct seen){0};
    CHECK(store_exec_each(s, "1", &(struct store_exec_page){.limit = 9, .before = 2}, on_exec,
                          &seen, NULL) == 0);
    CHECK(seen.n == 1 && seen.seq == 1);
    seen = (struct seen){0};
    CHECK(store_exec_each(s, "1", &(struct store_exec_page){.limit = 9, .sessions = true}, on_exec,
                          &seen, NULL) == 0);
    CHECK(seen.n == 0);
    seen = (struct seen){0};
    CHECK(store_exec_each_open(s, "1", on_exec, &seen, NULL) == 0);
    CHECK(seen.n == 1 && STREQ(seen.last_id, "x2"));
    CHECK(store_exec_count(s, "1", &n, NULL) == 0 && n == 2);
    CHECK(store_sandbox_delete(s, "1", NULL) == 0);
    CHECK(store_exec_count(s, "1", &n, NULL) == 0 && n == 0); /* gone with their sandbox */
    store_close(s);
    teardown();
}

TEST(journals_are_kept_by_the_order_of_ends_until_they_are_gone)
{
    const struct store_sandbox a = row("1", "a");
    struct seen seen = {0};
    struct store *s = NULL;
    uint64_t n = 99;

    setup();
    CHECK(store_open(path, &s, NULL) == 0);
    CHECK(store_sandbox_put(s, &a, NULL) == 0);
    for (unsigned i = 1; i <= 3; i++)
        CHECK(add_exec(s, (const char *[]){"x1", "x2", "x3"}[i - 1], "1", i) == 0);
    CHECK(store_exec_each_kept(s, "1", 10, on_exec, &seen, NULL) == 0);
    CHECK(seen.n == 0); /* live ones are not for the taking */
    CHECK(store_exec_end(s, "x1", "ended", 9, "{}", 100, NULL) == 0);
    CHECK(store_exec_end(s, "x2", "ended", 8, "{}", 20, NULL) == 0);
    CHECK(store_exec_kept_bytes(s, "1", &n, NULL) == 0 && n == 120);
    CHECK(store_exec_each_kept(s, "1", 1, on_exec, &seen, NULL) == 0);
    CHECK(seen.n == 1 && STREQ(seen.last_id, "x2")); /* ended first, began second */
    CHECK(store_exec_journal_gone(s, "x2", NULL) == 0);
    CHECK(store_exec_kept_bytes(s, "1", &n, NULL) == 0 && n == 100);
    seen = (struct seen){0};
    CHECK(store_exec_each_kept(s, "1", 10, on_exec, &seen, NULL) == 0);
    CHECK(seen.n == 1 && STREQ(seen.last_id, "x1"));
    CHECK(store_exec_count(s, "1", &n, NULL) == 0 && n == 3); /* receipts stay */
    store_close(s);
    teardown();
}

/* Each commit adds a few pages to the log; without checkpoints these would be some 50 MiB. */
TEST(the_log_is_written_back_while_it_is_used)
{
    struct store_sandbox r = row("id1", "a");
    struct store *s = NULL;
    struct seen seen = {0};
    struct stat st;
    char wal[80];

    setup();
    snprintf(wal, sizeof(wal), "%s-wal", path);
    CHECK(store_open(path, &s, NULL) == 0);
    CHECK(store_sandbox_put(s, &r, NULL) == 0);
    for (uint64_t i = 0; i < 12000; i++) {
        r.since = i;
        CHECK(store_sandbox_set_state(s, &r, NULL) == 0);
    }
    CHECK(stat(wal, &st) == 0 && st.st_size < (off_t)MIB(30));
    CHECK(store_sandbox_each(s, on_sandbox, &seen, NULL) == 0 && seen.n == 1);
    store_close(s);
    CHECK(stat(path, &st) == 0 && stat(wal, &st) < 0);
    teardown();
}

TEST(newer_schema_is_refused_and_left_alone)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct store *s = NULL;
    sqlite3 *db;

    setup();
    CHECK(store_open(path, &s, NULL) == 0);
    store_close(s);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "PRAGMA user_version=999", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    CHECK(store_open(path, &s, &err) == -ERR_UNSUPPORTED);
    CHECK(strstr(err.msg, "999") && err.hint);
    teardown();
}

static void write_file(const char *text, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || fd_write_all(fd, text, len) < 0)
        abort();
    close(fd);
}

TEST(a_file_that_is_not_a_database)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct store *s = NULL;
    char junk[8192];

    setup();
    memset(junk, 'j', sizeof(junk));
    write_file(junk, sizeof(junk));
    CHECK(store_open(path, &s, &err) == -ERR_SYSTEM);
    CHECK(strstr(err.msg, path) && err.hint);
    teardown();
}

TEST(a_damaged_database)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct store_sandbox a = row("1", "a");
    struct store *s = NULL;
    char junk[4096];
    int fd;

    setup();
    CHECK(store_open(path, &s, NULL) == 0);
    CHECK(store_sandbox_put(s, &a, NULL) == 0);
    store_close(s);
    memset(junk, 0xff, sizeof(junk));
    fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(pwrite(fd, junk, sizeof(junk), 4096) == (ssize_t)sizeof(junk));
    close(fd);
    CHECK(store_open(path, &s, &err) == -ERR_SYSTEM);
    CHECK(err.hint);
    teardown();
}

TEST(a_folder_that_is_not_there)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct store *s = NULL;

    CHECK(store_open("/nonexistent/none/ripcord.db", &s, &err) == -ERR_SYSTEM);
    CHECK(strstr(err.msg, "/nonexistent/none/ripcord.db"));
}
