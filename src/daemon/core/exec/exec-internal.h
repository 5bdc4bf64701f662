/*
 * What the manager does with execs.
 */
#pragma once

#include "daemon/core/exec/exec.h"
#include "lib/store/store.h"

/* A new exec in the sandbox's list; takes the request's contents. The reference is the caller's. */
int exec_new(struct sandbox *sb, struct exec_request *req, struct exec **ret, struct err *err);
/* A live one that an earlier daemon started. */
void exec_adopt(struct sandbox *sb, const struct store_exec *row);
/* What the start of an ephemeral sandbox takes along, or NULL; and that it did. */
struct exec_request *exec_first_request(struct sandbox *sb);
void exec_first_sent(struct sandbox *sb);
/* Sends it to the supervisor. */
void exec_launch(struct exec *x);
/* The sandbox did not come up. */
void exec_fail(struct exec *x, const struct err *err);

/* In the supervisor's hands. */
static inline bool exec_is_sent(const struct exec *x)
{
    return x->seq && !x->waiting;
}
/* For the next start, but not for ever: a sandbox that cannot stay up is a failure. */
bool exec_may_wait(struct exec *x);
/* daemon/core/sandbox/manager.c: starts its sandbox, then launches it. */
void manager_start_for(struct exec *x);

/* Link events. */
void exec_on_started(struct sandbox *sb, const char *id, int pid, int stdin_fd);
void exec_on_output(struct sandbox *sb, const char *id, uint64_t out, uint64_t err_end);
/* Its sandbox goes down: it waits for the next start. */
void exec_on_refused(struct sandbox *sb, const char *id, const struct err *err);
void exec_on_ended(struct sandbox *sb, const char *id, const struct end_record *rec);
/* The supervisor has gone: each live exec gets the record it left behind, or says engine_lost; one
 * that was not begun waits. Those are sent to the next start when the sandbox's state says that it
 * is down: before, a start would find it running. */
void exec_all_lost(struct sandbox *sb);
void exec_start_waiting(struct sandbox *sb);
/* After a restart, of those that the store has as live: the last daemon was to send them again. */
void exec_end_unbegun(struct sandbox *sb);

/* The end file that a supervisor has left; -ERR_NOT_FOUND without one. */
int exec_read_end(const char *exec_root, const char *sandbox_id, const char *exec_id,
                  struct end_record *ret, struct err *err);
/* Ends that could not be saved (a full disk) are kept in memory and tried again. */
void exec_retry_unsaved(struct manager *m);
struct exec *exec_find_unsaved(struct manager *m, const char *id);
