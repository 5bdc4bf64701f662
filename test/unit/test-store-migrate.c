/*
 * Migrates databases of earlier versions. Each old schema is written out here as that version had
 * it, so the test does not depend on the migrations that it checks.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "lib/store/store.h"
#include "tap.h"

#define META "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
#define SANDBOXES(more)                                                                            \
    "CREATE TABLE sandboxes("                                                                      \
    "  id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, engine TEXT NOT NULL, spec TEXT NOT NULL,"  \
    "  hash TEXT NOT NULL, ephemeral INTEGER NOT NULL, wanted TEXT NOT NULL, state TEXT NOT NULL," \
    "  reason TEXT, since INTEGER NOT NULL, created_at INTEGER NOT NULL" more ") WITHOUT ROWID;"
#define LEASES                                                                                     \
    ", up_at INTEGER NOT NULL DEFAULT 0, idle_at INTEGER NOT NULL DEFAULT 0,"                      \
    "  down_at INTEGER NOT NULL DEFAULT 0"
#define EXECS(more)                                                                                \
    "CREATE TABLE execs("                                                                          \
    "  id TEXT PRIMARY KEY, sandbox_id TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,"  \
    "  seq INTEGER NOT NULL, argv TEXT NOT NULL, options TEXT NOT NULL, state TEXT NOT NULL,"      \
    "  started_at INTEGER NOT NULL, ended_at INTEGER NOT NULL, end TEXT" more ","                  \
    "  UNIQUE(sandbox_id, seq)) WITHOUT ROWID;"
#define JOURNAL ", journal INTEGER DEFAULT 0"
#define KEPT                                                                                       \
    "CREATE INDEX execs_kept ON execs(sandbox_id, ended_at, journal)"                              \
    "  WHERE journal IS NOT NULL AND end IS NOT NULL;"
#define EVENTS                                                                                     \
    "CREATE TABLE events("                                                                         \
    "  seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, sandbox_id TEXT,"         \
    "  sandbox TEXT, exec TEXT, data TEXT);"
#define TOTALS                                                                                     \
    "CREATE TABLE totals("                                                                         \
    "  scope TEXT NOT NULL, name TEXT NOT NULL, execs INTEGER NOT NULL, failed INTEGER NOT NULL,"  \
    "  guard INTEGER NOT NULL, cpu INTEGER NOT NULL, memory_peak INTEGER NOT NULL,"                \
    "  io_read INTEGER NOT NULL, io_write INTEGER NOT NULL, output INTEGER NOT NULL,"              \
    "  updated_at INTEGER NOT NULL, PRIMARY KEY(scope, name)) WITHOUT ROWID;"

#define KEYS                                                                                       \
    "CREATE TABLE request_keys("                                                                   \
    "  key TEXT PRIMARY KEY, request TEXT NOT NULL, at INTEGER NOT NULL, exec TEXT NOT NULL,"      \
    "  sandbox TEXT, status INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,"         \
    "  body TEXT);"                                                                                \
    "CREATE INDEX request_keys_at ON request_keys(at, bytes);"

/* In order: schema 1, 2, … A new one is added here when it is released. */
static const char *const schemas[] = {
    META SANDBOXES("") EXECS(""),
    META SANDBOXES("") EXECS(JOURNAL) KEPT,
    META SANDBOXES("") EXECS(JOURNAL) KEPT EVENTS,
    META SANDBOXES(LEASES) EXECS(JOURNAL) KEPT EVENTS,
    META SANDBOXES(LEASES) EXECS(JOURNAL) KEPT EVENTS TOTALS,
    META SANDBOXES(LEASES) EXECS(JOURNAL) KEPT EVENTS TOTALS KEYS,
};

#define ROOT "0123456789abcdef"
static const char rows[] =
    "INSERT INTO meta VALUES('root_id', '" ROOT "');"
    "INSERT INTO sandboxes(id, name, engine, spec, hash, ephemeral, wanted, state, reason, since,"
    "  created_at) VALUES('00000000000000aa', 'box', 'native', '{}', 'h', 0, 'stopped', 'stopped',"
    "  'on request', 5, 4);"
    "INSERT INTO execs(id, sandbox_id, seq, argv, options, state, started_at, ended_at, end)"
    "  VALUES('00000000000000e1', '00000000000000aa', 7, '[\"true\"]', '{}', 'ended', 6, 7, '{}');";

static char dir[32], path[64];

static bool make_old(const char *schema, int version)
{
    _cleanup_free_ char *sql =
        xasprintf("BEGIN; %s %s PRAGMA user_version=%d; COMMIT;", schema, rows, version);
    sqlite3 *db = NULL;
    bool ok;

    snprintf(dir, sizeof(dir), "/tmp/test-migrate-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    snprintf(path, sizeof(path), "%s/ripcord.db", dir);
    ok = sqlite3_open(path, &db) == SQLITE_OK &&
         sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
    if (!ok)
        printf("# %s\n", sqlite3_errmsg(db));
    sqlite3_close(db);
    return ok;
}

static void clean_up(void)
{
    static const char *const names[] = {"ripcord.db", "ripcord.db-wal", "ripcord.db-shm",
                                        "root-id"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _cleanup_free_ char *file = xasprintf("%s/%s", dir, names[i]);

        unlink(file);
    }
    rmdir(dir);
}

struct seen {
    unsigned sandboxes, execs;
    bool right;
};

static void on_sandbox(void *arg, const struct store_sandbox *r)
{
    struct seen *s = arg;

    s->sandboxes++;
    s->right &= STREQ(r->id, "00000000000000aa") && STREQ(r->name, "box") &&
                STREQ(r->state, "stopped") && STREQ(r->reason, "on request") && r->since == 5 &&
                r->created_at == 4;
}

static void on_exec(void *arg, const struct store_exec *r)
{
    struct seen *s = arg;

    s->execs++;
    s->right &= STREQ(r->id, "00000000000000e1") && r->seq == 7 && r->ended_at == 7 &&
                !r->journal_gone && r->journal == 0;
}

static bool holds_all(struct store *s)
{
    struct seen seen = {.right = true};

    return store_sandbox_each(s, on_sandbox, &seen, NULL) >= 0 &&
           store_exec_each(s, "00000000000000aa", &(struct store_exec_page){.limit = 10}, on_exec,
                           &seen, NULL) >= 0 &&
           seen.right && seen.sandboxes == 1 && seen.execs == 1;
}

/* Everything that a later daemon does with it. */
static bool is_of_use(struct store *s)
{
    const struct store_sandbox sb = {.id = "00000000000000bb",
                                     .name = "new",
                                     .engine = "native",
                                     .spec = "{}",
                                     .hash = "h",
                                     .wanted = "running",
                                     .state = "running"};
    const struct store_exec x = {.id = "00000000000000e2",
                                 .sandbox_id = "00000000000000bb",
                                 .seq = 1,
                                 .argv = "[]",
                                 .options = "{}",
                                 .state = "running"};

    const struct store_key key = {.key = "k", .request = "r", .at = 1, .exec = x.id};

    return store_sandbox_put(s, &sb, NULL) >= 0 && store_exec_add(s, &x, NULL) >= 0 &&
           store_exec_end(s, x.id, "ended", 9, "{}", 3, NULL) >= 0 &&
           store_key_add(s, &key, NULL) >= 0 &&
           store_key_set_answer(s, key.key, 201, "{}", NULL) >= 0 &&
           store_sandbox_delete(s, sb.id, NULL) >= 0;
}

TEST(every_earlier_schema_is_brought_forward_with_its_rows)
{
    for (size_t i = 0; i < ARRAY_SIZE(schemas); i++) {
        _cleanup_err_ struct err err = ERR_INIT;
        struct store *s = NULL;

        printf("# schema %zu\n", i + 1);
        CHECK(make_old(schemas[i], (int)i + 1));
        CHECK(store_open(path, &s, &err) == 0);
        CHECK_STR(store_root_id(s), ROOT);
        CHECK(!store_is_held(s, "native")); /* it knows its objects: nothing is held back */
        CHECK(holds_all(s) && is_of_use(s));
        store_close(s);
        CHECK(store_open(path, &s, &err) == 0); /* and once more, as it is now */
        CHECK(holds_all(s));
        store_close(s);
        clean_up();
    }
}

/* The list above must be complete: its newest entry is what this version makes. */
TEST(the_newest_schema_is_in_the_list)
{
    sqlite3_stmt *st = NULL;
    struct store *s = NULL;
    sqlite3 *db = NULL;

    CHECK(make_old(schemas[0], 1));
    CHECK(store_open(path, &s, NULL) == 0);
    store_close(s);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL) == SQLITE_OK);
    CHECK(sqlite3_step(st) == SQLITE_ROW);
    CHECK(sqlite3_column_int(st, 0) == (int)ARRAY_SIZE(schemas));
    sqlite3_finalize(st);
    sqlite3_close(db);
    clean_up();
}
