/*
 * Agent sessions: an exec that gets one JSON payload on its stdin and answers with JSON lines
 * (docs/sessions.md). It is an exec in all but this: only one at a time runs in a sandbox unless
 * the caller says otherwise, and its output is read as numbered events. All on the loop.
 */
#pragma once

#include "daemon/core/exec/exec.h"
#include "lib/base/buf.h"

/* ERR_CONFLICT, naming the one that runs. */
int session_check_free(const struct sandbox *sb, struct err *err);

/* SIGTERM now, and when it lives on after the grace (usec), the whole of it is killed. */
int session_cancel(struct exec *x, uint64_t grace, exec_result_fn done, void *arg, struct err *err);

/* ---- events ---- */

struct session_reader;

struct session_reader_config {
    uint64_t since;            /* the last number that the reader has; 0: from the beginning */
    bool follow;               /* wait for what is still to come */
    void (*notify)(void *arg); /* something may be there to read; never from inside a call */
    void *arg;
};

/* Of session `id` (or "last") of the sandbox, live or not. ERR_NOT_FOUND for an exec that is none,
 * or whose output is not kept any more. */
int session_reader_new(struct manager *m, struct sandbox *sb, const char *id,
                       const struct session_reader_config *c, struct session_reader **ret,
                       struct err *err);
void session_reader_free(struct session_reader *r); /* NULL is fine */

enum session_result {
    SESSION_NOTHING, /* not now: notify will be called, unless it does not follow */
    SESSION_EVENT,   /* one was appended */
    SESSION_OVER,    /* the exit event was the last one */
};

/*
 * Appends the next event as {"seq":N,"stream":"stdout","event":{...}}, its keys in this order and
 * without a line end; *ret_seq is its number. The buffer needs SESSION_TEXT_MAX.
 */
int session_read(struct session_reader *r, struct buf *b, uint64_t *ret_seq,
                 enum session_result *ret, struct err *err);
enum { SESSION_TEXT_MAX = 7 << 20 };
