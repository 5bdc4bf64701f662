/*
 * The daemon's connection to the supervisor of a running sandbox (the shim, or the relay on
 * Docker), on the loop: execs are started, signalled and reported over it. The messages are those
 * of proto/supervisor.h. The end of the connection *is* the report that the sandbox has ended.
 *
 * All calls are made on the loop. A callback is never called from inside a call of this header. The
 * connection copies what it is given, and takes fds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/journal/record.h"

struct exec_request;
struct loop;
struct sup_copy;
struct supervisor_conn;

/* `arg` is the one given to supervisor_conn_open(). */
struct supervisor_events {
    void (*started)(void *arg, const char *exec, int pid,
                    int stdin_fd /* owned by the callee, or -1 */);
    /* The supervisor wrote an end record too: `ended` follows. */
    void (*start_failed)(void *arg, const char *exec, const struct err *err);
    void (*output)(void *arg, const char *exec, uint64_t stdout_end, uint64_t stderr_end);
    void (*ended)(void *arg, const char *exec, const struct end_record *rec);
    /* The supervisor has ended. The last call; the connection is freed after it. */
    void (*closed)(void *arg);
    /* The sandbox is going down: nothing was begun or recorded, and only `closed` follows. NULL:
     * start_failed is called instead. */
    void (*refused)(void *arg, const char *exec, const struct err *err);
};

/* Takes the fd. minor: the supervisor's version; a message that it does not know fails at once. */
struct supervisor_conn *supervisor_conn_open(struct loop *loop, int fd, uint32_t minor,
                                             const struct supervisor_events *events, void *arg);
/* Whether the supervisor has ended: requests then fail, and `closed` follows. */
bool supervisor_conn_is_over(const struct supervisor_conn *l);
/* No callback is called after this. NULL is fine. */
void supervisor_conn_close(struct supervisor_conn *l);

typedef void (*supervisor_result_fn)(void *arg, const struct err *err,
                                     int fd /* owned by the callee, or -1 */);
typedef void (*supervisor_stats_fn)(void *arg, const struct err *err,
                                    char **stats /* "name=value", borrowed */);

void supervisor_conn_exec(struct supervisor_conn *l, const struct exec_request *req);
/* -ERR_UNSUPPORTED if the supervisor is too old for a command of this size. */
int supervisor_conn_check_exec(const struct supervisor_conn *l, const struct exec_request *req,
                               struct err *err);
/* fd: the master of the terminal, or -1. */
void supervisor_conn_attach(struct supervisor_conn *l, const char *exec, uint64_t stdout_ack,
                            uint64_t stderr_ack, supervisor_result_fn done, void *arg);
void supervisor_conn_detach(struct supervisor_conn *l, const char *exec);
/* The spec that the sandbox runs with is stored. Not sent to a supervisor that does not know it. */
void supervisor_conn_settled(struct supervisor_conn *l);
void supervisor_conn_ack(struct supervisor_conn *l, const char *exec, uint64_t stdout_ack,
                         uint64_t stderr_ack);
void supervisor_conn_signal(struct supervisor_conn *l, const char *exec, int sig,
                            supervisor_result_fn done, void *arg);
void supervisor_conn_kill(struct supervisor_conn *l, const char *exec, enum end_cause cause,
                          supervisor_result_fn done, void *arg);
void supervisor_conn_resize(struct supervisor_conn *l, const char *exec, uint16_t rows,
                            uint16_t cols);
void supervisor_conn_stdin_close(struct supervisor_conn *l, const char *exec);
/* `for_good`: the sandbox is removed next. */
void supervisor_conn_stop(struct supervisor_conn *l, uint64_t grace_usec, bool for_good,
                          supervisor_result_fn done, void *arg);
void supervisor_conn_pause(struct supervisor_conn *l, bool on, supervisor_result_fn done,
                           void *arg);
void supervisor_conn_stats(struct supervisor_conn *l, supervisor_stats_fn done, void *arg);
/* fd: a socket that is connected to the port inside the sandbox. */
void supervisor_conn_dial(struct supervisor_conn *l, uint16_t port, supervisor_result_fn done,
                          void *arg);
/* fd: the listening socket on which the sandbox expects the package cache. */
void supervisor_conn_listener(struct supervisor_conn *l, supervisor_result_fn done, void *arg);
/* Streams a tar out of or into the sandbox through `tar_fd` (taken). stats: entries, bytes,
 * skipped. Without any option, an older supervisor copies as it always did: it replaces files. */
/* One operation of proto/files.h over `fd`, which it takes. user NULL: the sandbox's. */
void supervisor_conn_files(struct supervisor_conn *l, const char *user, int fd,
                           supervisor_stats_fn done, void *arg);
void supervisor_conn_copy(struct supervisor_conn *l, const struct sup_copy *copy, int tar_fd,
                          supervisor_stats_fn done, void *arg);
