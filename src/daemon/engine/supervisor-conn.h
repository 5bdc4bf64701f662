/*
 * Inside of struct engine_link, shared by supervisor-conn.c (transport, answers) and
 * supervisor-calls.c (one function per message). The public face is in engine.h.
 */
#pragma once

#include "daemon/engine/engine.h"
#include "lib/base/err.h"
#include "lib/base/time.h"
#include "proto/supervisor.h"

/* Waits for the answer with its `seq`. Owned by the link. */
struct link_request {
    struct link_request *next;
    uint64_t seq;
    struct deadline by;
    char exec[EXEC_ID_LEN + 1]; /* EXEC: whose start it is; else "" */
    link_result_fn done;
    link_stats_fn stats_done;
    void *arg;
    struct err err; /* set: to be told on the next turn, no answer will come */
};

/* Starts a message with the next seq; `exec` may be NULL. */
void link_begin(struct engine_link *l, struct shim_writer *w, enum shim_msg_type type,
                const char *exec);
/* Sends what nobody waits for. It cannot be refused: a peer that never reads ends the link.
 * Releases the writer, as does link_ask(). */
void link_tell(struct engine_link *l, struct shim_writer *w);
/* Sends, takes the fd (or -1), and gives the request to be filled with its callback. A failure to
 * send is told through it on the next turn. timeout 0: none. */
struct link_request *link_ask(struct engine_link *l, struct shim_writer *w, int fd,
                              uint64_t timeout);
