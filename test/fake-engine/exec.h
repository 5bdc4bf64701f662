/*
 * One scripted command of the fake engine: its journals, its clock and its end record. Used by one
 * supervisor thread only.
 */
#pragma once

#include <stdbool.h>

#include "daemon/engine/exec-request.h"
#include "lib/base/err.h"
#include "lib/base/time.h"
#include "lib/journal/journal.h"
#include "lib/journal/record.h"

struct fake_exec {
    struct fake_exec *next;
    char id[EXEC_ID_LEN + 1];
    int dirfd;     /* its folder */
    int stdin_fd;  /* read end, or -1 */
    int stdin_out; /* write end until it is handed over, or -1 */
    struct journal_writer streams[JOURNAL_STREAMS];
    struct deadline end_at, timeout_at, idle_at;
    uint64_t idle_timeout;
    uint64_t started_mono;
    struct end_record rec;
    bool ended;
};

/* Makes the folder and the journals, and runs the command until it would wait. A failure is a
 * failed start: the end record says so as well, and *ret is set in any case. */
int fake_exec_start(int exec_dirfd, const struct exec_request *req, uint64_t budget,
                    struct fake_exec **ret, struct err *err);
void fake_exec_free(struct fake_exec *x);
/* To be called when stdin is readable, and when time has passed. */
void fake_exec_on_stdin(struct fake_exec *x);
void fake_exec_on_time(struct fake_exec *x);
/* When fake_exec_on_time() has something to do. */
struct deadline fake_exec_next(const struct fake_exec *x);
/* Ends it with this cause and writes the record; no effect after its end. */
void fake_exec_end(struct fake_exec *x, enum end_cause cause, int exit_code, int sig);
