#include "lib/store/store-internal.h"

#define COLUMNS                                                                                    \
    "scope, name, execs, failed, wall, cpu, memory_peak, io_read, io_write, output, updated_at"

int store_total_add(struct store *s, const struct store_total *row, struct err *err)
{
    sqlite3_stmt *st = store_prepare(
        s, STMT_TOTAL_ADD,
        "INSERT INTO totals(" COLUMNS ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) "
        "ON CONFLICT(scope, name) DO UPDATE SET execs = execs + ?3, failed = failed + ?4, "
        "wall = wall + ?5, cpu = cpu + ?6, memory_peak = max(memory_peak, ?7), "
        "io_read = io_read + ?8, io_write = io_write + ?9, output = output + ?10, "
        "updated_at = ?11",
        err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, row->scope);
    store_bind_text(st, 2, row->name);
    store_bind_u64(st, 3, row->execs);
    store_bind_u64(st, 4, row->failed);
    store_bind_u64(st, 5, row->wall);
    store_bind_u64(st, 6, row->cpu);
    store_bind_u64(st, 7, row->memory_peak);
    store_bind_u64(st, 8, row->io_read);
    store_bind_u64(st, 9, row->io_write);
    store_bind_u64(st, 10, row->output);
    store_bind_u64(st, 11, row->updated_at);
    return store_run(s, st, "save totals", err);
}

static void store_total_read_row(sqlite3_stmt *st, struct store_total *row)
{
    *row = (struct store_total){
        .scope = store_text(st, 0),
        .name = store_text(st, 1),
        .execs = store_u64(st, 2),
        .failed = store_u64(st, 3),
        .wall = store_u64(st, 4),
        .cpu = store_u64(st, 5),
        .memory_peak = store_u64(st, 6),
        .io_read = store_u64(st, 7),
        .io_write = store_u64(st, 8),
        .output = store_u64(st, 9),
        .updated_at = store_u64(st, 10),
    };
}

int store_total_each(struct store *s, const char *scope, const char *name, store_total_fn fn,
                     void *arg, struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, STMT_TOTAL_EACH,
                                     "SELECT " COLUMNS " FROM totals WHERE scope = ?1 "
                                     "AND (?2 IS NULL OR name = ?2) ORDER BY name",
                                     err);
    struct store_total row;
    int r;

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, scope);
    store_bind_text(st, 2, name);
    while ((r = store_step(s, st, "read totals", err)) > 0) {
        store_total_read_row(st, &row);
        fn(arg, &row);
    }
    return r;
}

int store_total_delete(struct store *s, const char *scope, const char *name, struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, STMT_TOTAL_DELETE,
                                     "DELETE FROM totals WHERE scope = ?1 AND name = ?2", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, scope);
    store_bind_text(st, 2, name);
    return store_run(s, st, "delete totals", err);
}

int store_total_trim(struct store *s, const char *scope, uint64_t keep, struct err *err)
{
    sqlite3_stmt *st = store_prepare(
        s, STMT_TOTAL_TRIM,
        "DELETE FROM totals WHERE scope = ?1 AND name NOT IN "
        "(SELECT name FROM totals WHERE scope = ?1 ORDER BY updated_at DESC LIMIT ?2)",
        err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, scope);
    store_bind_u64(st, 2, keep);
    return store_run(s, st, "remove old totals", err);
}
