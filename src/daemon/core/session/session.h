/*
 * Agent sessions: execs that get one JSON payload on stdin and answer with JSON lines
 * (docs/sessions.md). They differ from other execs in two ways: only one runs at a time in a
 * sandbox unless the caller allows more, and the output is read as numbered events. All on the
 * loop.
 */
#pragma once

#include "daemon/core/exec/exec.h"
#include "lib/base/buf.h"

/* ERR_CONFLICT, with its id, when a session is active. */
int session_check_free(const struct sandbox *sb, struct err *err);

/* The document of session `id`; "last" is the newest session. ERR_NOT_FOUND also for an exec that
 * is not a session. *ret is a new reference. */
int session_get_json(struct manager *m, struct sandbox *sb, const char *id, json_t **ret,
                     struct err *err);

/* Sends SIGTERM now, and kills the whole cgroup if it still runs after the grace (usec). */
int session_cancel(struct exec *x, uint64_t grace, exec_result_fn done, void *arg, struct err *err);

/* ---- events ---- */

struct session_reader;

struct session_reader_config {
    uint64_t since; /* the last number that the reader has; 0: from the beginning */
    bool follow;    /* wait for further events */
    void (*notify)(
        void *arg); /* there may be more to read; never called from inside another call */
    void *arg;
};

/* A reader of session `id` (or "last") of the sandbox, live or ended. ERR_NOT_FOUND for an exec
 * that is not a session, or whose output is no longer kept. */
int session_reader_new(struct manager *m, struct sandbox *sb, const char *id,
                       const struct session_reader_config *c, struct session_reader **ret,
                       struct err *err);
void session_reader_free(struct session_reader *r); /* NULL is allowed */

enum session_result {
    SESSION_NOTHING, /* nothing now; notify will be called if it follows */
    SESSION_EVENT,   /* one was appended */
    SESSION_OVER,    /* the exit event was delivered before */
};

/*
 * Appends the next event as {"seq":N,"stream":"stdout","event":{...}}, with the keys in this order
 * and without a line end; *ret_seq is its number. The buffer needs SESSION_TEXT_MAX.
 */
int session_read(struct session_reader *r, struct buf *b, uint64_t *ret_seq,
                 enum session_result *ret, struct err *err);
enum { SESSION_TEXT_MAX = 7 << 20 };
