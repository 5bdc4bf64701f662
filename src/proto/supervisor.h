/*
 * What daemon and shim say to each other, on a SOCK_SEQPACKET unix socket, one message a packet.
 * The shim is started with one end of a socket pair as descriptor 3, where its plan comes first
 * (PLAN), and also listens on `shim.sock` in the sandbox's run folder, so that a later daemon can
 * take over. Several connections at once
 * are fine (each gets what it asked for).
 *
 * A message is `struct sup_msg` followed by typed fields (struct sup_field, padded to 8 bytes):
 * fields that a reader does not know are skipped, so that either side may be newer. The first
 * message on each connection is HELLO from both sides with the version; a peer with another *major*
 * version is told so and cut off. All lengths are checked before use; numbers are host order (same
 * machine).
 *
 * Descriptors travel beside a message where the table says so.
 *
 *  daemon -> shim
 *    PLAN         [+ fds: plan, log, lease of ids]: only as the very first message on descriptor 3
 *    HELLO        version
 *    EXEC         the exec's fields; answered by STARTED or EXEC_FAILED with the same seq
 *    EXEC_FED     since 1.3: the same [+ fd: what is given to the command beside them
 *                 (proto/handover.h)]. A message of its own, so that an older supervisor refuses it
 *    ATTACH       exec [, ack offsets]; answered by ATTACHED (or RESULT with the error)
 *    DETACH       exec
 *    ACK          exec, stdout offset, stderr offset: read so far; allows the next OUTPUT
 *    SIGNAL       exec, signal (to the main process)
 *    KILL         exec, cause (the exec's whole cgroup)
 *    RESIZE       exec, rows, cols
 *    STDIN_CLOSE  exec: close the shim's own copy of stdin's write end, if it kept one
 *    STOP         grace in microseconds [, flags]
 *    PAUSE, RESUME
 *    STATS
 *    DIAL         port
 *    COPY         direction, path, options [+ fd: tar stream]
 *    LISTENER     since 1.2
 *
 *  shim -> daemon
 *    HELLO        version, pid of init, sandbox id, state, config hash; on every connection
 *    READY        the sandbox is up; unenforced limits. Only on descriptor 3
 *    FAILED       error: it is not, the shim ends
 *    STARTED      exec, pid [+ fd: write end of stdin, when asked; the pty's master with a tty]
 *    EXEC_FAILED  exec, error; ENDED follows (cause start_failed). With a state (STOPPING;
 * since 1.4) nothing was begun or recorded, and no ENDED follows: it may be sent again ATTACHED
 * exec, offsets so far [+ fd: pty master, when it has one]; then OUTPUT OUTPUT       exec, stdout
 * end, stderr end: only to attached peers, at most one un-ACKed ENDED        exec, end record text:
 * to every peer STATS        memory, cpu, pids, … RESULT       error or none: to every message that
 * has no answer of its own. DIAL: + fd, a connected TCP socket to 127.0.0.1:port inside. COPY: when
 * the helper has ended. LISTENER: + fd, the socket that the sandbox finds its package registry
 * behind. STOP: at once; then ENDED for each exec, then STOPPED STOPPED      everything is gone;
 * the shim ends
 *
 * Every daemon message carries a `seq` chosen by the daemon; the answer carries the same one.
 */
#pragma once

#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

/* 1.1: PLAN. 1.2: LISTENER. 1.3: EXEC_FED. Tests build programs of other versions. */
#ifndef SUP_VERSION_MAJOR
#define SUP_VERSION_MAJOR 1
#define SUP_VERSION_MINOR 3
#endif

/* Descriptor numbers at start-up of the supervisor, and the name of its socket. */
enum { SUP_FD_CONTROL = 3, SUP_FD_PLAN = 4 };
#define SUP_SOCKET "shim.sock"

enum { SUP_MSG_MAX = 192 << 10, SUP_PLAN_MAX = 4 << 20 };

enum sup_msg_type {
    SUP_HELLO = 1,
    SUP_READY,
    SUP_FAILED,
    SUP_EXEC,
    SUP_STARTED,
    SUP_EXEC_FAILED,
    SUP_ATTACH,
    SUP_ATTACHED,
    SUP_DETACH,
    SUP_ACK,
    SUP_OUTPUT,
    SUP_ENDED,
    SUP_SIGNAL,
    SUP_KILL,
    SUP_RESIZE,
    SUP_STDIN_CLOSE,
    SUP_STOP,
    SUP_STOPPED,
    SUP_PAUSE,
    SUP_RESUME,
    SUP_STATS,
    SUP_DIAL,
    SUP_COPY,
    SUP_RESULT,
    SUP_PLAN,
    SUP_LISTENER,
    SUP_EXEC_FED,
    SUP_MSG_TYPE_MAX,
};

struct sup_msg {
    uint16_t type; /* enum sup_msg_type */
    uint16_t reserved;
    uint32_t length; /* bytes of fields behind this header */
    uint64_t seq;
};

struct sup_field {
    uint16_t tag; /* enum sup_tag */
    uint16_t reserved;
    uint32_t length; /* bytes of value behind this header, before padding to 8 */
};

enum sup_tag {
    SUP_TAG_VERSION = 1,      /* u64: major << 32 | minor */
    SUP_TAG_SANDBOX,          /* string: sandbox id */
    SUP_TAG_PID,              /* u64 */
    SUP_TAG_STATE,            /* u64: enum sup_state */
    SUP_TAG_ERR_CODE,         /* u64 */
    SUP_TAG_ERR_ERRNO,        /* u64 */
    SUP_TAG_ERR_MSG,          /* string */
    SUP_TAG_ERR_HINT,         /* string */
    SUP_TAG_EXEC,             /* string: exec id */
    SUP_TAG_ARG,              /* string, repeated */
    SUP_TAG_ENV,              /* string K=V, repeated */
    SUP_TAG_CWD,              /* string; absent: the sandbox's */
    SUP_TAG_USER,             /* string: name, uid or uid:gid; absent: the sandbox's */
    SUP_TAG_FLAGS,            /* u64: enum sup_exec_flags */
    SUP_TAG_TIMEOUT,          /* u64 usec; absent: none */
    SUP_TAG_IDLE_TIMEOUT,     /* u64 usec */
    SUP_TAG_ROWS,             /* u64 */
    SUP_TAG_COLS,             /* u64 */
    SUP_TAG_STDOUT,           /* u64 offset */
    SUP_TAG_STDERR,           /* u64 offset */
    SUP_TAG_STDOUT_START,     /* u64 lowest offset kept */
    SUP_TAG_STDERR_START,     /* u64 */
    SUP_TAG_RECORD,           /* string: end_record_format() text */
    SUP_TAG_SIGNAL,           /* u64 */
    SUP_TAG_CAUSE,            /* u64: enum end_cause for KILL */
    SUP_TAG_GRACE,            /* u64 usec */
    SUP_TAG_PORT,             /* u64 */
    SUP_TAG_PATH,             /* string */
    SUP_TAG_DIRECTION,        /* u64: 0 out of the sandbox, 1 into it */
    SUP_TAG_STAT,             /* string "name=value", repeated */
    SUP_TAG_HASH,             /* string: config hash of the plan */
    SUP_TAG_UNENFORCED,       /* u64: enum limit_bit bits that hold only on paper here */
    SUP_TAG_INPUT,            /* bytes, in a handover: for stdin, then its end */
    SUP_TAG_SECRET,           /* bytes, in a handover, repeated: name, NUL, value */
    SUP_TAG_SECRET_PLACE,     /* bytes, in a handover: where the secret before it goes */
    SUP_TAG_PLAN_FIRST = 256, /* tags of the plan: proto/plan.h */
};

enum sup_exec_flags {
    SUP_EXEC_STDIN = 1 << 0,  /* give me the write end of stdin; else it is /dev/null */
    SUP_EXEC_TTY = 1 << 1,    /* a pty; stdout carries all output */
    SUP_EXEC_ATTACH = 1 << 2, /* as if ATTACH followed: OUTPUT messages from offset 0 */
};

enum sup_stop_flags {
    SUP_STOP_FOR_GOOD = 1 << 0, /* the daemon removes it, and its cgroups when it has time */
};

enum sup_state { SUP_STARTING, SUP_RUNNING, SUP_PAUSED, SUP_STOPPING };

/* Writing: sup_begin(), fields, then send buf_data(). Overflow of SUP_MSG_MAX is kept in the
 * buffer's state and told by sup_finish(). */
struct sup_writer {
    struct buf buf;
    int overflow;
};

void sup_begin(struct sup_writer *w, enum sup_msg_type type, uint64_t seq);
void sup_put_u64(struct sup_writer *w, uint16_t tag, uint64_t v);
void sup_put_str(struct sup_writer *w, uint16_t tag, const char *s); /* NULL: nothing is put */
void sup_put_bytes(struct sup_writer *w, uint16_t tag, const void *p, size_t len);
/* SUP_TAG_STAT "name=value". */
void sup_put_stat(struct sup_writer *w, const char *name, uint64_t value);
void sup_put_err(struct sup_writer *w, const struct err *err);
int sup_finish(struct sup_writer *w, struct err *err); /* fills in the length */
void sup_writer_done(struct sup_writer *w);

/* Reading: sup_read() checks the frame whole; then walk the fields. Strings are checked to hold no
 * NUL and are NUL-terminated by the padding or a copy: value is valid until the packet's buffer
 * goes. */
struct sup_reader {
    struct sup_msg head;
    const char *p, *end;
};

struct sup_value {
    uint16_t tag;
    const char *data; /* NUL-terminated for strings */
    uint32_t length;
    uint64_t u64; /* when length is 8 */
};

int sup_read(struct sup_reader *r, const void *packet, size_t len, struct err *err);
/* 1 and *ret; 0 at the end; -ERR_INVALID. */
int sup_next(struct sup_reader *r, struct sup_value *ret, struct err *err);
/* Collects the error fields of a message that carries them; ERR_NONE when there are none. */
int sup_read_err(const void *packet, size_t len, struct err *err);
