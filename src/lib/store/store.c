#include "lib/store/store.h"

#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "lib/store/store-internal.h"

enum { STORE_BUSY_MS = 5000, STORE_CACHE_KIB = 512, STORE_MMAP_OFF = 0 };

int store_fail(struct store *s, const char *what, struct err *err)
{
    int code = sqlite3_errcode(s->db);
    int r = err_set(err, ERR_SYSTEM, "database '%s': %s: %s", s->path, what, sqlite3_errmsg(s->db));

    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        return err_hint(err, "The file is damaged. Move it away and start the daemon again. It "
                             "finds running sandboxes by "
                             "their kernel objects, but their names and history are lost.");
    if (code == SQLITE_FULL)
        return err_hint(err, "The disk is full. Free some space and try again.");
    if (code == SQLITE_CANTOPEN || code == SQLITE_PERM || code == SQLITE_READONLY)
        return err_hint(err, "Check that the folder exists and belongs to this user.");
    return r;
}

/*
 * A small page cache and no mmap: the tables are small, and the daemon should need little memory
 * while idle. secure_delete stays off: the store holds no secret, unless a command wrote one into
 * an answer that a key keeps.
 */
static int store_configure(struct store *s, struct err *err)
{
    _cleanup_free_ char *sql =
        xasprintf("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;"
                  "PRAGMA trusted_schema=OFF; PRAGMA cache_size=-%d; PRAGMA mmap_size=%d;"
                  "PRAGMA temp_store=MEMORY; PRAGMA journal_size_limit=4194304;",
                  STORE_CACHE_KIB, STORE_MMAP_OFF);

    sqlite3_busy_timeout(s->db, STORE_BUSY_MS);
    if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return store_fail(s, "set up", err);
    return 0;
}

/* quick_check reads the whole file once, so that a damaged page is found now and not later. */
static int store_check(struct store *s, struct err *err)
{
    sqlite3_stmt *st = NULL;
    const char *word = NULL;
    int r = 0;

    if (sqlite3_prepare_v2(s->db, "PRAGMA quick_check(1)", -1, &st, NULL) != SQLITE_OK)
        return store_fail(s, "check", err);
    if (sqlite3_step(st) == SQLITE_ROW)
        word = (const char *)sqlite3_column_text(st, 0);
    if (!word) {
        r = store_fail(s, "check", err);
    } else if (!STREQ(word, "ok")) {
        err_set(err, ERR_SYSTEM, "database '%s' is damaged: %s", s->path, word);
        r = err_hint(err,
                     "Move the file away and start the daemon again. It finds running sandboxes "
                     "again, but their names and history are lost.");
    }
    sqlite3_finalize(st);
    return r;
}

static int store_open_db(struct store *s, struct err *err)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_NOFOLLOW;
    int r;

    if (sqlite3_open_v2(s->path, &s->db, flags, NULL) != SQLITE_OK)
        return store_fail(s, "open", err);
    sqlite3_extended_result_codes(s->db, 0);
    r = store_configure(s, err);
    if (r < 0)
        return r;
    r = store_check(s, err);
    if (r < 0)
        return r;
    r = store_migrate(s, err);
    if (r < 0)
        return r;
    r = store_meta_load(s, err);
    if (r < 0)
        return r;
    store_checkpoints_start(s);
    return 0;
}

int store_open(const char *path, struct store **ret, struct err *err)
{
    struct store *s = xnew0(struct store);
    int r;

    s->path = xstrdup(path);
    r = store_open_db(s, err);
    if (r < 0) {
        store_close(s);
        return r;
    }
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    store_checkpoints_stop(s);
    for (size_t i = 0; i < STMT_MAX; i++)
        sqlite3_finalize(s->stmts[i]);
    sqlite3_close(s->db);
    free(s->path);
    free(s);
}

const char *store_root_id(const struct store *s)
{
    return s->root_id;
}

sqlite3_stmt *store_prepare(struct store *s, enum store_stmt which, const char *sql,
                            struct err *err)
{
    if (!s->stmts[which] && sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT,
                                               &s->stmts[which], NULL) != SQLITE_OK) {
        store_fail(s, "prepare", err);
        return NULL;
    }
    return s->stmts[which];
}

int store_begin(struct store *s, struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, STMT_BEGIN, "BEGIN IMMEDIATE", err);

    return st ? store_run(s, st, "begin a transaction", err) : -ERR_SYSTEM;
}

int store_end(struct store *s, int r, struct err *err)
{
    sqlite3_stmt *st = r < 0 ? NULL : store_prepare(s, STMT_COMMIT, "COMMIT", err);

    if (r >= 0)
        r = st ? store_run(s, st, "commit a transaction", err) : -ERR_SYSTEM;
    if (r < 0) /* fails without harm when SQLite has already rolled back */
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

static void store_stmt_reset(sqlite3_stmt *st)
{
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
}

int store_step(struct store *s, sqlite3_stmt *st, const char *what, struct err *err)
{
    int r = sqlite3_step(st);

    if (r == SQLITE_ROW)
        return 1;
    if (r == SQLITE_DONE)
        r = 0;
    else
        r = store_fail(s, what, err);
    store_stmt_reset(st);
    return r;
}

int store_run(struct store *s, sqlite3_stmt *st, const char *what, struct err *err)
{
    int r = store_step(s, st, what, err);

    if (r > 0)
        store_stmt_reset(st);
    return r < 0 ? r : 0;
}

void store_bind_text(sqlite3_stmt *st, int col, const char *text)
{
    if (text)
        sqlite3_bind_text(st, col, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(st, col);
}

void store_bind_u64(sqlite3_stmt *st, int col, uint64_t v)
{
    sqlite3_bind_int64(st, col, (sqlite3_int64)v);
}

const char *store_text(sqlite3_stmt *st, int col)
{
    return (const char *)sqlite3_column_text(st, col);
}

uint64_t store_u64(sqlite3_stmt *st, int col)
{
    return (uint64_t)sqlite3_column_int64(st, col);
}
