/*
 * Shared by the files of store/: the connection and its prepared statements. One enum lists all
 * statements. Each is prepared on first use and kept.
 */
#pragma once

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#include "lib/store/store.h"

enum store_stmt {
    STMT_BEGIN,
    STMT_COMMIT,
    STMT_META_GET,
    STMT_META_SET,
    STMT_SANDBOX_PUT,
    STMT_SANDBOX_STATE,
    STMT_SANDBOX_IDLE,
    STMT_SANDBOX_DELETE,
    STMT_SANDBOX_EACH,
    STMT_EXEC_ADD,
    STMT_EXEC_END,
    STMT_EXEC_EACH,
    STMT_EXEC_OPEN,
    STMT_EXEC_GET,
    STMT_EXEC_LAST,
    STMT_EXEC_LAST_SESSION,
    STMT_EXEC_SEQ,
    STMT_EXEC_COUNT,
    STMT_EXEC_KEPT,
    STMT_EXEC_KEPT_SUM,
    STMT_EXEC_GONE,
    STMT_EXEC_TRIM,
    STMT_EVENT_ADD,
    STMT_EVENT_EACH,
    STMT_EVENT_SPAN,
    STMT_EVENT_TRIM,
    STMT_TOTAL_ADD,
    STMT_TOTAL_EACH,
    STMT_TOTAL_DELETE,
    STMT_TOTAL_TRIM,
    STMT_KEY_ADD,
    STMT_KEY_GET,
    STMT_KEY_EXEC,
    STMT_KEY_ANSWER,
    STMT_KEY_DELETE,
    STMT_KEY_EXPIRE,
    STMT_KEY_SIZE,
    STMT_KEY_OLDEST,
    STMT_MAX,
};

struct store {
    sqlite3 *db;
    char *path;
    char root_id[17];
    sqlite3_stmt *stmts[STMT_MAX];

    /* Only store-checkpoint.c uses these. */
    pthread_t checkpoint_thread;
    bool checkpoint_started; /* the thread must be joined */
    atomic_bool checkpointing;
    int checkpoint_at; /* pages in the log */
};

/* Fills err with the message of SQLite and the name of the file. Returns -ERR_SYSTEM. */
int store_fail(struct store *s, const char *what, struct err *err);

/* A statement that is ready to use. NULL: SQLite refused it, and *err is filled. */
sqlite3_stmt *store_prepare(struct store *s, enum store_stmt which, const char *sql,
                            struct err *err);
/* Runs a statement without result rows, then resets it. */
int store_run(struct store *s, sqlite3_stmt *st, const char *what, struct err *err);
/* Steps to the next row: 1, or 0 at the end, or an error. The last two reset the statement. */
int store_step(struct store *s, sqlite3_stmt *st, const char *what, struct err *err);

void store_bind_text(sqlite3_stmt *st, int col, const char *text); /* NULL binds NULL */
void store_bind_u64(sqlite3_stmt *st, int col, uint64_t v);
const char *store_text(sqlite3_stmt *st, int col); /* NULL for NULL */
uint64_t store_u64(sqlite3_stmt *st, int col);

/* store-checkpoint.c */
void store_checkpoints_start(struct store *s);
void store_checkpoints_stop(struct store *s);

int store_migrate(struct store *s, struct err *err);
int store_meta_load(struct store *s, struct err *err);
