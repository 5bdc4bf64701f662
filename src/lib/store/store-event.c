#include "lib/store/store-internal.h"

#define COLUMNS "seq, at, kind, sandbox_id, sandbox, exec, data"

static int store_event_add_one(struct store *s, const struct store_event *row, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_EVENT_ADD,
                      "INSERT INTO events(" COLUMNS ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_u64(st, 1, row->seq);
    store_bind_u64(st, 2, row->at);
    store_bind_text(st, 3, row->kind);
    store_bind_text(st, 4, row->sandbox_id);
    store_bind_text(st, 5, row->sandbox);
    store_bind_text(st, 6, row->exec);
    store_bind_text(st, 7, row->data);
    return store_run(s, st, "save an event", err);
}

int store_event_add(struct store *s, const struct store_event *rows, size_t n, struct err *err)
{
    int r = store_begin(s, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < n && r >= 0; i++)
        r = store_event_add_one(s, &rows[i], err);
    return store_end(s, r, err);
}

static void store_event_read_row(sqlite3_stmt *st, struct store_event *row)
{
    *row = (struct store_event){
        .seq = store_u64(st, 0),
        .at = store_u64(st, 1),
        .kind = store_text(st, 2),
        .sandbox_id = store_text(st, 3),
        .sandbox = store_text(st, 4),
        .exec = store_text(st, 5),
        .data = store_text(st, 6),
    };
}

int store_event_each(struct store *s, uint64_t after, unsigned limit, store_event_fn fn, void *arg,
                     struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_EVENT_EACH,
                      "SELECT " COLUMNS " FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2", err);
    struct store_event row;
    int r, n = 0;

    if (!st)
        return -ERR_SYSTEM;
    store_bind_u64(st, 1, after);
    store_bind_u64(st, 2, limit);
    while ((r = store_step(s, st, "list events", err)) > 0) {
        store_event_read_row(st, &row);
        fn(arg, &row);
        n++;
    }
    return r < 0 ? r : n;
}

int store_event_span(struct store *s, struct store_span *ret, struct err *err)
{
    sqlite3_stmt *st = store_prepare(
        s, STMT_EVENT_SPAN,
        "SELECT coalesce(min(seq), 0), coalesce(max(seq), 0), count(*) FROM events", err);
    int r;

    if (!st)
        return -ERR_SYSTEM;
    r = store_step(s, st, "count events", err);
    if (r <= 0)
        return r;
    *ret = (struct store_span){store_u64(st, 0), store_u64(st, 1), store_u64(st, 2)};
    sqlite3_reset(st);
    return 0;
}

int store_event_trim(struct store *s, uint64_t n, struct err *err)
{
    sqlite3_stmt *st = store_prepare(
        s, STMT_EVENT_TRIM,
        "DELETE FROM events WHERE seq IN (SELECT seq FROM events ORDER BY seq LIMIT ?1)", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_u64(st, 1, n);
    return store_run(s, st, "remove old events", err);
}
