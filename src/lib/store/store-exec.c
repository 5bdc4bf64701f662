#include "lib/base/macro.h"
#include "lib/store/store-internal.h"

#define COLUMNS "id, sandbox_id, seq, argv, options, state, started_at, ended_at, end, journal"
#define KEPT "journal IS NOT NULL AND end IS NOT NULL "
#define SELECT "SELECT " COLUMNS " FROM execs WHERE sandbox_id = ?1 "
#define IS_SESSION "instr(options, '\"session\":true') > 0 "

int store_exec_add(struct store *s, const struct store_exec *row, struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, STMT_EXEC_ADD,
                                     "INSERT INTO execs(" COLUMNS ") "
                                     "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                                     err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, row->id);
    store_bind_text(st, 2, row->sandbox_id);
    store_bind_u64(st, 3, row->seq);
    store_bind_text(st, 4, row->argv);
    store_bind_text(st, 5, row->options);
    store_bind_text(st, 6, row->state);
    store_bind_u64(st, 7, row->started_at);
    store_bind_u64(st, 8, row->ended_at);
    store_bind_text(st, 9, row->end);
    store_bind_u64(st, 10, row->journal);
    return store_run(s, st, "save exec", err);
}

int store_exec_end(struct store *s, const char *id, const char *state, uint64_t ended_at,
                   const char *end, uint64_t journal, struct err *err)
{
    sqlite3_stmt *st = store_prepare(
        s, STMT_EXEC_END,
        "UPDATE execs SET state = ?2, ended_at = ?3, end = ?4, journal = ?5 WHERE id = ?1", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, id);
    store_bind_text(st, 2, state);
    store_bind_u64(st, 3, ended_at);
    store_bind_text(st, 4, end);
    store_bind_u64(st, 5, journal);
    return store_run(s, st, "save exec end", err);
}

static void store_exec_read_row(sqlite3_stmt *st, struct store_exec *row)
{
    *row = (struct store_exec){
        .id = store_text(st, 0),
        .sandbox_id = store_text(st, 1),
        .seq = store_u64(st, 2),
        .argv = store_text(st, 3),
        .options = store_text(st, 4),
        .state = store_text(st, 5),
        .started_at = store_u64(st, 6),
        .ended_at = store_u64(st, 7),
        .end = store_text(st, 8),
        .journal = store_u64(st, 9),
        .journal_gone = !store_text(st, 9),
    };
}

static int store_exec_each_row(struct store *s, sqlite3_stmt *st, store_exec_fn fn, void *arg,
                               struct err *err)
{
    struct store_exec row;
    int r, n = 0;

    while ((r = store_step(s, st, "list execs", err)) > 0) {
        store_exec_read_row(st, &row);
        fn(arg, &row);
        n++;
    }
    return r < 0 ? r : n;
}

/* limit 0: the statement has no more parameters. */
static int store_exec_list(struct store *s, enum store_stmt which, const char *sql,
                           const char *sandbox_id, unsigned limit, store_exec_fn fn, void *arg,
                           struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, which, sql, err);
    int r;

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, sandbox_id);
    if (limit)
        store_bind_u64(st, 2, limit);
    r = store_exec_each_row(s, st, fn, arg, err);
    return MIN(r, 0);
}

int store_exec_each(struct store *s, const char *sandbox_id, const struct store_exec_page *page,
                    store_exec_fn fn, void *arg, struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, STMT_EXEC_EACH,
                                     SELECT "AND (?3 = 0 OR seq < ?3) "
                                            "AND (NOT ?4 OR " IS_SESSION ") "
                                            "ORDER BY seq DESC LIMIT ?2",
                                     err);
    int r;

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, sandbox_id);
    store_bind_u64(st, 2, page->limit);
    store_bind_u64(st, 3, page->before);
    store_bind_u64(st, 4, page->sessions);
    r = store_exec_each_row(s, st, fn, arg, err);
    return MIN(r, 0);
}

int store_exec_each_open(struct store *s, const char *sandbox_id, store_exec_fn fn, void *arg,
                         struct err *err)
{
    return store_exec_list(s, STMT_EXEC_OPEN, SELECT "AND end IS NULL ORDER BY seq", sandbox_id, 0,
                           fn, arg, err);
}

int store_exec_each_kept(struct store *s, const char *sandbox_id, unsigned limit, store_exec_fn fn,
                         void *arg, struct err *err)
{
    return store_exec_list(s, STMT_EXEC_KEPT, SELECT "AND " KEPT "ORDER BY ended_at LIMIT ?2",
                           sandbox_id, limit, fn, arg, err);
}

int store_exec_journal_gone(struct store *s, const char *id, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_EXEC_GONE, "UPDATE execs SET journal = NULL WHERE id = ?1", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, id);
    return store_run(s, st, "record that a journal was removed", err);
}

int store_exec_trim(struct store *s, const char *sandbox_id, uint64_t seq, struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, STMT_EXEC_TRIM,
                                     "DELETE FROM execs WHERE sandbox_id = ?1 AND seq <= ?2 "
                                     "AND journal IS NULL AND end IS NOT NULL",
                                     err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, sandbox_id);
    store_bind_u64(st, 2, seq);
    return store_run(s, st, "remove old execs", err);
}

int store_exec_get(struct store *s, const char *sandbox_id, const char *id, store_exec_fn fn,
                   void *arg, struct err *err)
{
    bool last = STREQ(id, "last");
    sqlite3_stmt *st =
        last ? store_prepare(s, STMT_EXEC_LAST, SELECT "ORDER BY seq DESC LIMIT 1", err)
             : store_prepare(s, STMT_EXEC_GET, SELECT "AND id = ?2", err);
    int r;

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, sandbox_id);
    if (!last)
        store_bind_text(st, 2, id);
    r = store_exec_each_row(s, st, fn, arg, err);
    if (r == 0 && last)
        return err_set(err, ERR_NOT_FOUND, "no command has run in this sandbox yet");
    if (r == 0)
        return err_set(err, ERR_NOT_FOUND, "no exec '%s' in this sandbox", id);
    return MIN(r, 0);
}

/* Options are JSON without blanks, and a quote inside a value has a backslash before it. */
int store_exec_last_session(struct store *s, const char *sandbox_id, store_exec_fn fn, void *arg,
                            struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, STMT_EXEC_LAST_SESSION,
                                     SELECT "AND " IS_SESSION "ORDER BY seq DESC LIMIT 1", err);
    int r;

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, sandbox_id);
    r = store_exec_each_row(s, st, fn, arg, err);
    if (r == 0)
        return err_set(err, ERR_NOT_FOUND, "no session has run in this sandbox yet");
    return MIN(r, 0);
}

static int store_exec_one_number(struct store *s, sqlite3_stmt *st, const char *sandbox_id,
                                 uint64_t *ret, struct err *err)
{
    int r;

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, sandbox_id);
    r = store_step(s, st, "read execs", err);
    if (r <= 0)
        return r;
    *ret = store_u64(st, 0);
    sqlite3_reset(st);
    return 0;
}

int store_exec_last_seq(struct store *s, const char *sandbox_id, uint64_t *ret, struct err *err)
{
    sqlite3_stmt *st = store_prepare(
        s, STMT_EXEC_SEQ, "SELECT coalesce(max(seq), 0) FROM execs WHERE sandbox_id = ?1", err);

    return store_exec_one_number(s, st, sandbox_id, ret, err);
}

int store_exec_kept_bytes(struct store *s, const char *sandbox_id, uint64_t *ret, struct err *err)
{
    sqlite3_stmt *st = store_prepare(
        s, STMT_EXEC_KEPT_SUM,
        "SELECT coalesce(sum(journal), 0) FROM execs WHERE sandbox_id = ?1 AND " KEPT, err);

    return store_exec_one_number(s, st, sandbox_id, ret, err);
}

int store_exec_count(struct store *s, const char *sandbox_id, uint64_t *ret, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_EXEC_COUNT, "SELECT count(*) FROM execs WHERE sandbox_id = ?1", err);

    return store_exec_one_number(s, st, sandbox_id, ret, err);
}
