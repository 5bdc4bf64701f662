#include <string.h>

#include "lib/store/store-internal.h"

int store_key_add(struct store *s, const struct store_key *row, struct err *err)
{
    sqlite3_stmt *st = store_prepare(
        s, STMT_KEY_ADD, "INSERT INTO request_keys(key, request, at, exec) VALUES(?1, ?2, ?3, ?4)",
        err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, row->key);
    store_bind_text(st, 2, row->request);
    store_bind_u64(st, 3, row->at);
    store_bind_text(st, 4, row->exec);
    return store_run(s, st, "save the key of a request", err);
}

int store_key_get(struct store *s, const char *key, store_key_fn fn, void *arg, struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, STMT_KEY_GET,
                                     "SELECT key, request, at, exec, sandbox, status, body "
                                     "FROM request_keys WHERE key = ?1",
                                     err);
    struct store_key row;
    int r;

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, key);
    r = store_step(s, st, "read the key of a request", err);
    if (r <= 0)
        return r;
    row = (struct store_key){
        .key = store_text(st, 0),
        .request = store_text(st, 1),
        .at = store_u64(st, 2),
        .exec = store_text(st, 3),
        .sandbox = store_text(st, 4),
        .status = (int)store_u64(st, 5),
        .body = store_text(st, 6),
    };
    fn(arg, &row);
    sqlite3_reset(st);
    return 1;
}

int store_key_set_exec(struct store *s, const char *key, const char *sandbox, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_KEY_EXEC, "UPDATE request_keys SET sandbox = ?2 WHERE key = ?1", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, key);
    store_bind_text(st, 2, sandbox);
    return store_run(s, st, "save the exec of a key", err);
}

int store_key_set_answer(struct store *s, const char *key, int status, const char *body,
                         struct err *err)
{
    sqlite3_stmt *st = store_prepare(
        s, STMT_KEY_ANSWER,
        "UPDATE request_keys SET status = ?2, body = ?3, bytes = ?4 WHERE key = ?1", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, key);
    store_bind_u64(st, 2, (uint64_t)status);
    store_bind_text(st, 3, body);
    store_bind_u64(st, 4, strlen(body));
    return store_run(s, st, "save the answer of a key", err);
}

int store_key_delete(struct store *s, const char *key, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_KEY_DELETE, "DELETE FROM request_keys WHERE key = ?1", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, key);
    return store_run(s, st, "remove the key of a request", err);
}

int store_key_expire(struct store *s, uint64_t before, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_KEY_EXPIRE, "DELETE FROM request_keys WHERE at < ?1", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_u64(st, 1, before);
    return store_run(s, st, "remove old keys of requests", err);
}

int store_key_size(struct store *s, struct store_key_size *ret, struct err *err)
{
    sqlite3_stmt *st = store_prepare(
        s, STMT_KEY_SIZE, "SELECT count(*), coalesce(sum(bytes), 0) FROM request_keys", err);
    int r;

    if (!st)
        return -ERR_SYSTEM;
    r = store_step(s, st, "count the keys of requests", err);
    if (r < 0)
        return r;
    ret->keys = store_u64(st, 0);
    ret->bytes = store_u64(st, 1);
    sqlite3_reset(st);
    return 0;
}

int store_key_drop_oldest(struct store *s, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_KEY_OLDEST,
                      "DELETE FROM request_keys WHERE rowid = (SELECT rowid FROM request_keys "
                      "WHERE status > 0 OR sandbox IS NOT NULL ORDER BY at LIMIT 1)",
                      err);
    int r;

    if (!st)
        return -ERR_SYSTEM;
    r = store_run(s, st, "remove the oldest key of a request", err);
    return r < 0 ? r : sqlite3_changes(s->db);
}
