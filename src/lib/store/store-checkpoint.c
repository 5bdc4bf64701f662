/*
 * Checkpoints of the write-ahead log. A checkpoint waits for the disk (10 to 40 ms, measured),
 * which would block the loop. So a separate thread makes them on its own connection; SQLite lets
 * writers continue meanwhile.
 */
#include <pthread.h>

#include "lib/base/log.h"
#include "lib/base/thread.h"
#include "lib/store/store-internal.h"

/* A writer that never pauses can outrun the thread: above the second mark it makes the checkpoint
 * itself. */
enum { CHECKPOINT_PAGES = 1000, CHECKPOINT_PAGES_MAX = 4000 };

static void *store_checkpoint_run(void *arg)
{
    struct store *s = arg;
    sqlite3 *db = NULL;
    int r;

    r = sqlite3_open_v2(s->path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (r == SQLITE_OK)
        r = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (r != SQLITE_OK) /* no data is lost: the log grows until a checkpoint succeeds */
        log_debug("database '%s': checkpoint: %s", s->path, sqlite3_errstr(r));
    sqlite3_close(db);
    atomic_store(&s->checkpointing, false);
    return NULL;
}

static void store_checkpoint_join(struct store *s)
{
    if (s->checkpoint_started)
        pthread_join(s->checkpoint_thread, NULL);
    s->checkpoint_started = false;
}

static void store_checkpoint_start(struct store *s)
{
    store_checkpoint_join(s); /* of one that has ended */
    atomic_store(&s->checkpointing, true);
    s->checkpoint_started = thread_start(&s->checkpoint_thread, store_checkpoint_run, s) == 0;
    if (!s->checkpoint_started)
        atomic_store(&s->checkpointing, false);
}

/* A checkpoint that a reader kept from finishing is not tried again at each commit. */
static int store_checkpoint_on_commit(void *arg, sqlite3 *db, const char *name _unused_, int pages)
{
    struct store *s = arg;

    if (pages < CHECKPOINT_PAGES)
        s->checkpoint_at = CHECKPOINT_PAGES;
    if (pages < s->checkpoint_at || atomic_load(&s->checkpointing))
        return SQLITE_OK;
    s->checkpoint_at = pages + CHECKPOINT_PAGES;
    if (pages < CHECKPOINT_PAGES_MAX)
        store_checkpoint_start(s);
    else
        sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return SQLITE_OK;
}

void store_checkpoints_start(struct store *s)
{
    sqlite3_wal_hook(s->db, store_checkpoint_on_commit,
                     s); /* replaces the automatic checkpoint of SQLite */
}

void store_checkpoints_stop(struct store *s)
{
    store_checkpoint_join(s);
}
