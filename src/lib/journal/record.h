/*
 * The end record of an exec. The supervisor writes it once, when the wait status is known and both
 * pipes are drained. It is the file `end` in the folder of the exec, with one `key=value` line per
 * field, and is replaced atomically. Without the file the exec has not ended, or its supervisor
 * died (the daemon then reports engine_lost).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

enum end_cause {
    END_EXITED,
    END_SIGNALED,
    END_OOM,
    END_PIDS_LIMIT,
    END_TIMEOUT,
    END_IDLE_TIMEOUT,
    END_KILLED,
    END_SANDBOX_STOPPED,
    END_ENGINE_LOST,
    END_START_FAILED,
    END_CAUSE_MAX,
};

struct end_record {
    enum end_cause cause;
    int exit_code;                     /* -1 unless it exited */
    int signal;                        /* 0 unless a signal ended it */
    uint64_t started_wall, ended_wall; /* microseconds since the epoch */
    uint64_t wall_usec;                /* on the monotonic clock */
    uint64_t cpu_usec;
    uint64_t memory_peak, memory_limit; /* bytes; 0: unknown, no limit */
    uint64_t oom_kills, pids_denied;
    uint64_t io_read, io_write; /* bytes; 0: unknown */
    uint64_t stdout_bytes, stderr_bytes;
    uint64_t stdout_dropped, stderr_dropped; /* bytes dropped because of the budget */
    bool drained;        /* false: after the grace time a background process still held a pipe */
    enum err_code error; /* START_FAILED: the error code */
    char message[512];   /* START_FAILED, or output could not be stored: the reason */
    char hint[256];      /* START_FAILED: the hint, or "" */
    char isolation[16];  /* of the sandbox: "strict" or "confined"; "": shared */
};

const char *end_cause_name(enum end_cause cause);
int end_cause_parse(const char *name, enum end_cause *ret);

/* The status a shell would show: exit code, 128 + signal, or 125/126/127 for our own failures. */
int end_record_status(const struct end_record *rec);

int end_record_format(const struct end_record *rec, struct buf *b);
int end_record_parse(const char *text, size_t len, struct end_record *ret, struct err *err);
int end_record_write(int exec_dirfd, const struct end_record *rec, struct err *err);
/* -ERR_NOT_FOUND: no record (yet). */
int end_record_read(int exec_dirfd, struct end_record *ret, struct err *err);
