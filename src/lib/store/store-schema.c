/*
 * Numbered migrations: entry N brings schema N to N + 1, in one transaction with the new number in
 * user_version. Never edit an entry that has been released; add one.
 */
#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"
#include "lib/store/store-internal.h"

static const char *const migrations[] = {
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE sandboxes("
    "  id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, engine TEXT NOT NULL, spec TEXT NOT NULL,"
    "  hash TEXT NOT NULL, ephemeral INTEGER NOT NULL, wanted TEXT NOT NULL, state TEXT NOT NULL,"
    "  reason TEXT, since INTEGER NOT NULL, created_at INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE execs("
    "  id TEXT PRIMARY KEY, sandbox_id TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,"
    "  seq INTEGER NOT NULL, argv TEXT NOT NULL, options TEXT NOT NULL, state TEXT NOT NULL,"
    "  started_at INTEGER NOT NULL, ended_at INTEGER NOT NULL, end TEXT,"
    "  UNIQUE(sandbox_id, seq)) WITHOUT ROWID;",
    /* Bytes of its journals; NULL after they were removed. */
    "ALTER TABLE execs ADD COLUMN journal INTEGER DEFAULT 0;"
    "CREATE INDEX execs_kept ON execs(sandbox_id, ended_at, journal)"
    "  WHERE journal IS NOT NULL AND end IS NOT NULL;",
    /* The event log, by number; the highest number is also in meta. */
    "CREATE TABLE events("
    "  seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, sandbox_id TEXT,"
    "  sandbox TEXT, exec TEXT, data TEXT);",
    /* Readings of the clock that leases are counted on. */
    "ALTER TABLE sandboxes ADD COLUMN up_at INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN idle_at INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN down_at INTEGER NOT NULL DEFAULT 0;",
    /* Sums over execs, also of those whose rows were removed. */
    "CREATE TABLE totals("
    "  scope TEXT NOT NULL, name TEXT NOT NULL, execs INTEGER NOT NULL, failed INTEGER NOT NULL,"
    "  wall INTEGER NOT NULL, cpu INTEGER NOT NULL, memory_peak INTEGER NOT NULL,"
    "  io_read INTEGER NOT NULL, io_write INTEGER NOT NULL, output INTEGER NOT NULL,"
    "  updated_at INTEGER NOT NULL, PRIMARY KEY(scope, name)) WITHOUT ROWID;",
    /* Keys of requests that create something, with their answers. The index has all that a count of
     * keys and bytes needs. */
    "CREATE TABLE request_keys("
    "  key TEXT PRIMARY KEY, request TEXT NOT NULL, at INTEGER NOT NULL, exec TEXT NOT NULL,"
    "  sandbox TEXT, status INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,"
    "  body TEXT);"
    "CREATE INDEX request_keys_at ON request_keys(at, bytes);",
};

static int store_schema_version(struct store *s, int *ret, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r = 0;

    if (sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &st, NULL) != SQLITE_OK)
        return store_fail(s, "read schema version", err);
    if (sqlite3_step(st) == SQLITE_ROW)
        *ret = sqlite3_column_int(st, 0);
    else
        r = store_fail(s, "read schema version", err);
    sqlite3_finalize(st);
    return r;
}

static int store_schema_migrate_one(struct store *s, int version, struct err *err)
{
    _cleanup_free_ char *sql = xasprintf("BEGIN IMMEDIATE; %s PRAGMA user_version=%d; COMMIT;",
                                         migrations[version], version + 1);
    int r;

    if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    r = store_fail(s, "migrate the schema", err);
    sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

int store_migrate(struct store *s, struct err *err)
{
    int newest = (int)ARRAY_SIZE(migrations), version = 0;
    int r;

    r = store_schema_version(s, &version, err);
    if (r < 0)
        return r;
    if (version > newest) {
        err_set(err, ERR_UNSUPPORTED,
                "database '%s' has schema %d (this ripcordd supports up to %d)", s->path, version,
                newest);
        return err_hint(err, "A newer ripcord has used this root. Install that version again, or "
                             "use another root.");
    }
    for (; version < newest; version++) {
        r = store_schema_migrate_one(s, version, err);
        if (r < 0)
            return r;
    }
    return 0;
}
