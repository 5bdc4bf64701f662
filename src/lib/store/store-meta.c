#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"
#include "lib/store/store-internal.h"

#define ROOT_ID_KEY "root_id"
#define ROOT_ID_FILE "root-id"
#define HELD_KEY "held"        /* engines may have objects that are older than the database */
#define SETTLED_KEY "settled." /* + engine: every object on this engine has a row */
enum { ROOT_ID_LEN = 16 };

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

static int store_meta_write(struct store *s, const char *key, const char *value, struct err *err)
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
    r = store_meta_write(s, key, value, err);
    if (sync)
        sqlite3_exec(s->db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
    return r;
}

/* ---- the root id ---- */

/*
 * Every object on an engine carries the root id, so it must outlive the database. A file beside the
 * database holds a copy, and a new database takes the id from there.
 */
static char *store_meta_root_file(const struct store *s)
{
    const char *slash = strrchr(s->path, '/');

    return xasprintf("%.*s" ROOT_ID_FILE, slash ? (int)(slash - s->path + 1) : 0, s->path);
}

static bool store_meta_read_root_file(struct store *s)
{
    _cleanup_free_ char *path = store_meta_root_file(s), *text = NULL;

    if (file_read(AT_FDCWD, path, ROOT_ID_LEN + 16, &text, NULL, NULL) < 0)
        return false;
    text[strcspn(text, "\n")] = '\0';
    if (strlen(text) != ROOT_ID_LEN || strspn(text, "0123456789abcdef") != ROOT_ID_LEN)
        return false;
    snprintf(s->root_id, sizeof(s->root_id), "%s", text);
    return true;
}

static void store_meta_write_root_file(struct store *s)
{
    _cleanup_free_ char *path = store_meta_root_file(s), *text = NULL, *old = NULL;
    _cleanup_err_ struct err err = ERR_INIT;

    text = xasprintf("%s\n", s->root_id);
    if (file_read(AT_FDCWD, path, ROOT_ID_LEN + 16, &old, NULL, NULL) >= 0 && STREQ(old, text))
        return;
    /* A failure is only logged: the database has the id, and a full disk must not stop the
     * daemon. */
    if (file_replace(AT_FDCWD, path, text, strlen(text), 0600, true, &err) < 0)
        log_debug("store: %s", err.msg);
}

static int store_meta_make_root_id(struct store *s, struct err *err)
{
    uint64_t random;
    int r;

    if (!store_meta_read_root_file(s)) {
        if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
            return err_sys(err, errno, "get random bytes for the root id");
        snprintf(s->root_id, sizeof(s->root_id), "%016llx", (unsigned long long)random);
    }
    /* Written before the id: every store with an id is held until it is settled. */
    r = store_meta_write(s, HELD_KEY, "1", err);
    return r < 0 ? r : store_meta_write(s, ROOT_ID_KEY, s->root_id, err);
}

int store_meta_load(struct store *s, struct err *err)
{
    int r;

    r = store_meta_get(s, ROOT_ID_KEY, s->root_id, sizeof(s->root_id), err);
    if (r == 0)
        r = store_meta_make_root_id(s, err);
    if (r < 0)
        return r;
    store_meta_write_root_file(s);
    return 0;
}

bool store_is_held(struct store *s, const char *engine)
{
    _cleanup_free_ char *key = xasprintf(SETTLED_KEY "%s", engine);
    char value[8];

    return store_meta_get(s, HELD_KEY, value, sizeof(value), NULL) > 0 &&
           store_meta_get(s, key, value, sizeof(value), NULL) <= 0;
}

int store_settle(struct store *s, const char *engine, struct err *err)
{
    _cleanup_free_ char *key = xasprintf(SETTLED_KEY "%s", engine);

    return store_is_held(s, engine) ? store_meta_write(s, key, "1", err) : 0;
}
