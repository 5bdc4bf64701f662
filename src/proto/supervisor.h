/*
 * What daemon and shim say to each other, on a SOCK_SEQPACKET unix socket, one message a packet.
 * The shim is started with one end of a socket pair as descriptor 3, where its plan comes first
 * (PLAN), and also listens on `shim.sock` in the sandbox's run folder, so that a later daemon can
 * take over. Several connections at once
 * are fine (each gets what it asked for).
 *
 * A message is `struct shim_msg` followed by typed fields (struct shim_field, padded to 8 bytes):
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
#ifndef SHIM_VERSION_MAJOR
#define SHIM_VERSION_MAJOR 1
#define SHIM_VERSION_MINOR 3
#endif

/* Descriptor numbers at start-up of the supervisor, and the name of its socket. */
enum { SHIM_FD_CONTROL = 3, SHIM_FD_PLAN = 4 };
#define SHIM_SOCKET "shim.sock"

enum { SHIM_MSG_MAX = 192 << 10, SHIM_PLAN_MAX = 4 << 20 };

enum shim_msg_type {
    SHIM_HELLO = 1,
    SHIM_READY,
    SHIM_FAILED,
    SHIM_EXEC,
    SHIM_STARTED,
    SHIM_EXEC_FAILED,
    SHIM_ATTACH,
    SHIM_ATTACHED,
    SHIM_DETACH,
    SHIM_ACK,
    SHIM_OUTPUT,
    SHIM_ENDED,
    SHIM_SIGNAL,
    SHIM_KILL,
    SHIM_RESIZE,
    SHIM_STDIN_CLOSE,
    SHIM_STOP,
    SHIM_STOPPED,
    SHIM_PAUSE,
    SHIM_RESUME,
    SHIM_STATS,
    SHIM_DIAL,
    SHIM_COPY,
    SHIM_RESULT,
    SHIM_PLAN,
    SHIM_LISTENER,
    SHIM_EXEC_FED,
    SHIM_MSG_TYPE_MAX,
};

struct shim_msg {
    uint16_t type; /* enum shim_msg_type */
    uint16_t reserved;
    uint32_t length; /* bytes of fields behind this header */
    uint64_t seq;
};

struct shim_field {
    uint16_t tag; /* enum shim_tag */
    uint16_t reserved;
    uint32_t length; /* bytes of value behind this header, before padding to 8 */
};

enum shim_tag {
    SHIM_TAG_VERSION = 1,      /* u64: major << 32 | minor */
    SHIM_TAG_SANDBOX,          /* string: sandbox id */
    SHIM_TAG_PID,              /* u64 */
    SHIM_TAG_STATE,            /* u64: enum shim_state */
    SHIM_TAG_ERR_CODE,         /* u64 */
    SHIM_TAG_ERR_ERRNO,        /* u64 */
    SHIM_TAG_ERR_MSG,          /* string */
    SHIM_TAG_ERR_HINT,         /* string */
    SHIM_TAG_EXEC,             /* string: exec id */
    SHIM_TAG_ARG,              /* string, repeated */
    SHIM_TAG_ENV,              /* string K=V, repeated */
    SHIM_TAG_CWD,              /* string; absent: the sandbox's */
    SHIM_TAG_USER,             /* string: name, uid or uid:gid; absent: the sandbox's */
    SHIM_TAG_FLAGS,            /* u64: enum shim_exec_flags */
    SHIM_TAG_TIMEOUT,          /* u64 usec; absent: none */
    SHIM_TAG_IDLE_TIMEOUT,     /* u64 usec */
    SHIM_TAG_ROWS,             /* u64 */
    SHIM_TAG_COLS,             /* u64 */
    SHIM_TAG_STDOUT,           /* u64 offset */
    SHIM_TAG_STDERR,           /* u64 offset */
    SHIM_TAG_STDOUT_START,     /* u64 lowest offset kept */
    SHIM_TAG_STDERR_START,     /* u64 */
    SHIM_TAG_RECORD,           /* string: end_record_format() text */
    SHIM_TAG_SIGNAL,           /* u64 */
    SHIM_TAG_CAUSE,            /* u64: enum end_cause for KILL */
    SHIM_TAG_GRACE,            /* u64 usec */
    SHIM_TAG_PORT,             /* u64 */
    SHIM_TAG_PATH,             /* string */
    SHIM_TAG_DIRECTION,        /* u64: 0 out of the sandbox, 1 into it */
    SHIM_TAG_STAT,             /* string "name=value", repeated */
    SHIM_TAG_HASH,             /* string: config hash of the plan */
    SHIM_TAG_UNENFORCED,       /* u64: enum limit_bit bits that hold only on paper here */
    SHIM_TAG_INPUT,            /* bytes, in a handover: for stdin, then its end */
    SHIM_TAG_SECRET,           /* bytes, in a handover, repeated: name, NUL, value */
    SHIM_TAG_SECRET_PLACE,     /* bytes, in a handover: where the secret before it goes */
    SHIM_TAG_PLAN_FIRST = 256, /* tags of the plan: proto/plan.h */
};

enum shim_exec_flags {
    SHIM_EXEC_STDIN = 1 << 0,  /* give me the write end of stdin; else it is /dev/null */
    SHIM_EXEC_TTY = 1 << 1,    /* a pty; stdout carries all output */
    SHIM_EXEC_ATTACH = 1 << 2, /* as if ATTACH followed: OUTPUT messages from offset 0 */
};

enum shim_stop_flags {
    SHIM_STOP_FOR_GOOD = 1 << 0, /* the daemon removes it, and its cgroups when it has time */
};

enum shim_state { SHIM_STARTING, SHIM_RUNNING, SHIM_PAUSED, SHIM_STOPPING };

/* Writing: shim_begin(), fields, then send buf_data(). Overflow of SHIM_MSG_MAX is kept in the
 * buffer's state and told by shim_finish(). */
struct shim_writer {
    struct buf buf;
    int overflow;
};

void shim_begin(struct shim_writer *w, enum shim_msg_type type, uint64_t seq);
void shim_put_u64(struct shim_writer *w, uint16_t tag, uint64_t v);
void shim_put_str(struct shim_writer *w, uint16_t tag, const char *s); /* NULL: nothing is put */
void shim_put_bytes(struct shim_writer *w, uint16_t tag, const void *p, size_t len);
/* SHIM_TAG_STAT "name=value". */
void shim_put_stat(struct shim_writer *w, const char *name, uint64_t value);
void shim_put_err(struct shim_writer *w, const struct err *err);
int shim_finish(struct shim_writer *w, struct err *err); /* fills in the length */
void shim_writer_done(struct shim_writer *w);

/* Reading: shim_read() checks the frame whole; then walk the fields. Strings are checked to hold no
 * NUL and are NUL-terminated by the padding or a copy: value is valid until the packet's buffer
 * goes. */
struct shim_reader {
    struct shim_msg head;
    const char *p, *end;
};

struct shim_value {
    uint16_t tag;
    const char *data; /* NUL-terminated for strings */
    uint32_t length;
    uint64_t u64; /* when length is 8 */
};

int shim_read(struct shim_reader *r, const void *packet, size_t len, struct err *err);
/* 1 and *ret; 0 at the end; -ERR_INVALID. */
int shim_next(struct shim_reader *r, struct shim_value *ret, struct err *err);
/* Collects the error fields of a message that carries them; ERR_NONE when there are none. */
int shim_read_err(const void *packet, size_t len, struct err *err);
