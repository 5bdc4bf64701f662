#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#include "store/store-internal.h"

#define ROOT_ID_KEY "root_id"

int store_meta_get(struct store *s, const char *key, char *ret, size_t size, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_META_GET, "SELECT value FROM meta WHERE key = ?1", err);
    int r;

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, key);
    r = store_step(s, st, "read meta", err);
    if (r <= 0)
        return r;
    snprintf(ret, size, "%s", store_text(st, 0));
    sqlite3_reset(st);
    return 1;
}

static int meta_set(struct store *s, const char *key, const char *value, struct err *err)
{
    sqlite3_stmt *st =
        store_prepare(s, STMT_META_SET, "INSERT OR REPLACE INTO meta VALUES(?1, ?2)", err);

    if (!st)
        return -ERR_SYSTEM;
    store_bind_text(st, 1, key);
    store_bind_text(st, 2, value);
    return store_run(s, st, "write meta", err);
}

int store_meta_set(struct store *s, const char *key, const char *value, bool sync, struct err *err)
{
    int r;

    if (sync)
        sqlite3_exec(s->db, "PRAGMA synchronous=FULL", NULL, NULL, NULL);
    r = meta_set(s, key, value, err);
    if (sync)
        sqlite3_exec(s->db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
    return r;
}

int store_meta_load(struct store *s, struct err *err)
{
    uint64_t random;
    int r;

    r = store_meta_get(s, ROOT_ID_KEY, s->root_id, sizeof(s->root_id), err);
    if (r != 0)
        return r;
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return err_sys(err, errno, "get random bytes for the root id");
    snprintf(s->root_id, sizeof(s->root_id), "%016llx", (unsigned long long)random);
    return meta_set(s, ROOT_ID_KEY, s->root_id, err);
}
