/*
 * Execs as the manager handles them: start, loss of the supervisor, end. For core only.
 */
#pragma once

#include "daemon/core/exec/exec.h"
#include "lib/store/store.h"

/* A new exec in the sandbox's list. Takes the contents of the request. The caller owns a
 * reference. */
int exec_new(struct sandbox *sb, struct exec_request *req, struct exec **ret, struct err *err);
/* Adds a live exec that an earlier daemon started. */
void exec_adopt(struct sandbox *sb, const struct store_exec *row);
/* The request that travels with the start of an ephemeral sandbox, or NULL. exec_first_sent()
 * notes that it was sent. */
struct exec_request *exec_first_request(struct sandbox *sb);
void exec_first_sent(struct sandbox *sb);
void exec_notify(struct exec *x, enum exec_event event);
/* Tells the supervisor that the input has ended. */
void exec_stdin_close(struct exec *x);
/* Sends the exec to the supervisor of its sandbox, which must be connected. */
void exec_launch(struct exec *x);
/* Ends the exec as start_failed: its sandbox did not start. */
void exec_fail(struct exec *x, const struct err *err);

/* The supervisor has it. */
static inline bool exec_is_sent(const struct exec *x)
{
    return x->seq && !x->waiting;
}
/* Whether it may wait for the next start of its sandbox. Not for ever: a sandbox that cannot
 * stay up is a failure. */
bool exec_may_wait(struct exec *x);
/* daemon/core/sandbox/manager.c: starts its sandbox, then launches it. */
void manager_start_for(struct exec *x);

/* Events of the supervisor's connection. */
void exec_on_started(struct sandbox *sb, const char *id, int pid, int stdin_fd);
void exec_on_output(struct sandbox *sb, const char *id, uint64_t out, uint64_t err_end);
/* The supervisor refuses it because the sandbox goes down: it waits for the next start. */
void exec_on_refused(struct sandbox *sb, const char *id, const struct err *err);
void exec_on_ended(struct sandbox *sb, const char *id, const struct end_record *rec);
/*
 * The supervisor is gone. exec_all_lost() ends each live exec with the record that the supervisor
 * left, or as engine_lost; an exec that had not started waits. exec_start_waiting() starts the
 * sandbox for those: only when its state says that it is down, because a start would find it
 * running before.
 */
void exec_all_lost(struct sandbox *sb);
void exec_start_waiting(struct sandbox *sb);
/* After a restart of the daemon: ends execs that the store has as live but that no supervisor
 * got. */
void exec_end_unbegun(struct sandbox *sb);

/* Reads the end record that a supervisor left; -ERR_NOT_FOUND without one. */
int exec_read_end(const char *exec_root, const char *sandbox_id, const char *exec_id,
                  struct end_record *ret, struct err *err);
