#include "lib/store/store-internal.h"

#define COLUMNS                                                                                    \
    "id, name, engine, spec, hash, ephemeral, wanted, state, reason, since, created_at, "          \
    "up_at, idle_at, down_at"

static void store_sandbox_bind_row(sqlite3_stmt *st, const struct store_sandbox *row)
{
    store_bind_text(st, 1, row->id);
    store_bind_text(st, 2, row->name);
    store_bind_text(st, 3, row->engine);
    store_bind_text(st, 4, row->spec);
    store_bind_text(st, 5, row->hash);
    store_bind_u64(st, 6, row->ephemeral);
    store_bind_text(st, 7, row->wanted);
    store_bind_text(st, 8, row->state);
    store_bind_text(st, 9, row->reason);
    store_bind_u64(st, 10, row->since);
    store_bind_u64(st, 11, row->created_at);
    store_bind_u64(st, 12, row->up_at);
    store_bind_u64(st, 13, row->idle_at);
    store_bind_u64(st, 14, row->down_at);
}

static void store_sandbox_read_row(sqlite3_stmt *st, struct store_sandbox *row)
{
    *row = (struct store_sandbox){
        .id = store_text(st, 0),
        .name = store_text(st, 1),
        .engine = store_text(st, 2),
        .spec = store_text(st, 3),
        .hash = store_text(st, 4),
        .ephemeral = store_u64(st, 5) != 0,
        .wanted = store_text(st, 6),
        .state = store_text(st, 7),
        .reason = store_text(st, 8),
        .since = store_u64(st, 9),
        .created_at = store_u64(st, 10),
        .up_at = store_u64(st, 11),
        .idle_at = store_u64(st, 12),
        .down_at = store_u64(st, 13),
    };
}

/* An upsert on the id alone: OR REPLACE would also delete another sandbox of the same name. */
int store_sandbox_put(struct store *s, const struct store_sandbox *row, struct err *err)
{
    sqlite3_stmt *st = store_prepare(
        s, STMT_SANDBOX_PUT,
        "INSERT INTO sandboxes(" COLUMNS ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, "
        "?12, ?13, ?14) "
        "ON CONFLICT(id) DO UPDATE SET engine = ?3, spec = ?4, hash = ?5, ephemeral = ?6, "
        "wanted = ?7, state = ?8, reason = ?9, since = ?10, up_at = ?12, idle_at = ?13, "
        "down_at = ?14",
        err);
    int r;

    if (!st)
        return -ERR_SYSTEM;
    store_sandbox_bind_row(st, row);
    r = sqlite3_step(st);
    sqlite3_reset(st);
    if (r == SQLITE_CONSTRAINT)
        return err_set(err, ERR_CONFLICT, "a sandbox with the name '%s' is already stored",
                       row->name);
    return r == SQLITE_DONE ? 0 : store_fail(s, "save sandbox", err);
}

int store_sandbox_set_state(struct store *s, const struct store_sandbox *row, struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, STMT_SANDBOX_STATE,
                                     "UPDATE sandboxes SET wanted = ?2, state = ?3, since = ?4, "
                                     "reason = ?5, up_at = ?6, idle_at = ?7, down_at = ?8 "
                                     "WHERE id = ?1",
                                     err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, row->id);
    store_bind_text(st, 2, row->wanted);
    store_bind_text(st, 3, row->state);
    store_bind_u64(st, 4, row->since);
    store_bind_text(st, 5, row->reason);
    store_bind_u64(st, 6, row->up_at);
    store_bind_u64(st, 7, row->idle_at);
    store_bind_u64(st, 8, row->down_at);
    return store_run(s, st, "save sandbox state", err);
}

int store_sandbox_set_idle(struct store *s, const char *id, uint64_t idle_at, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_SANDBOX_IDLE, "UPDATE sandboxes SET idle_at = ?2 WHERE id = ?1", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, id);
    store_bind_u64(st, 2, idle_at);
    return store_run(s, st, "save sandbox state", err);
}

int store_sandbox_delete(struct store *s, const char *id, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_SANDBOX_DELETE, "DELETE FROM sandboxes WHERE id = ?1", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, id);
    return store_run(s, st, "delete sandbox", err);
}

int store_sandbox_each(struct store *s, store_sandbox_fn fn, void *arg, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_SANDBOX_EACH, "SELECT " COLUMNS " FROM sandboxes ORDER BY name", err);
    struct store_sandbox row;
    int r;

    if (!st)
        return -ERR_SYSTEM;
    while ((r = store_step(s, st, "list sandboxes", err)) > 0) {
        store_sandbox_read_row(st, &row);
        fn(arg, &row);
    }
    return r;
}
