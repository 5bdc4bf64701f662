/*
 * Inside of struct supervisor_conn, shared by supervisor-conn.c (transport, answers) and
 * supervisor-calls.c (one function per message). The public part is supervisor-conn.h.
 */
#pragma once

#include "daemon/engine/exec-request.h"
#include "daemon/engine/supervisor-conn.h"
#include "lib/base/err.h"
#include "lib/base/time.h"
#include "proto/supervisor.h"

/* Waits for the answer with its `seq`. Owned by the connection. */
struct supervisor_request {
    struct supervisor_request *next;
    uint64_t seq;
    struct deadline by;
    char exec[EXEC_ID_LEN + 1]; /* EXEC: the id of the exec; else "" */
    supervisor_result_fn done;
    supervisor_stats_fn stats_done;
    void *arg;
    struct err err; /* set: no answer will come, and the next turn reports this error */
};

/* The minor version of the supervisor. */
uint32_t supervisor_conn_minor(const struct supervisor_conn *l);

uint64_t supervisor_conn_next_seq(struct supervisor_conn *l);
/* Starts a message with the next seq; `exec` may be NULL. */
void supervisor_conn_begin(struct supervisor_conn *l, struct sup_writer *w, enum sup_msg_type type,
                           const char *exec);
/* Sends a message without an answer. It cannot be refused: a peer that never reads ends the
 * connection. Releases the writer, as does supervisor_conn_request(). */
void supervisor_conn_notify(struct supervisor_conn *l, struct sup_writer *w);
/* Sends a message, takes the fd (or -1), and returns the request, which the caller fills with its
 * callback. A failure to send reaches that callback on the next turn. timeout 0: none. */
struct supervisor_request *supervisor_conn_request(struct supervisor_conn *l, struct sup_writer *w,
                                                   int fd, uint64_t timeout);
/* The same for a message that could not be made: nothing is sent, and the callback gets `why`. */
struct supervisor_request *supervisor_conn_unmade(struct supervisor_conn *l, struct sup_writer *w,
                                                  const struct err *why);
