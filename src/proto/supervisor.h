/*
 * The supervisor protocol: messages between the daemon and the supervisor of one sandbox
 * (ripcord-shim or ripcord-relay), on a SOCK_SEQPACKET unix socket, one message per packet.
 *
 * The daemon starts a supervisor with one end of a socket pair as descriptor 3. The supervisor also
 * listens on `shim.sock` in the sandbox's run folder, so that a later daemon can take over. Several
 * connections may be open at once; each gets the answers to its own requests.
 *
 * A message is `struct sup_msg` followed by typed fields (`struct sup_field`, padded to 8 bytes).
 * A reader skips fields that it does not know, so either side may be newer. The first message on
 * each connection is HELLO, from both sides, with the version. A peer with another major version
 * gets an error and is disconnected. All lengths are checked before use. Numbers are in host order,
 * because both sides run on the same machine.
 *
 * Every message of the daemon carries a `seq` that the daemon chooses; the answer carries the same
 * one. "+ fd" marks descriptors that travel with a message.
 *
 *  daemon -> supervisor
 *    PLAN         + fds: plan, log, id lease. Only as the very first message on descriptor 3
 *    HELLO        version
 *    EXEC         the fields of an exec; answered by STARTED or EXEC_FAILED
 *    EXEC_FED     the same, + fd: input and secrets for the command (proto/handover.h). A message
 *                 type of its own, so that an older supervisor refuses it
 *    EXEC_LARGE   as EXEC_FED, but ARG and ENV are in the handover: a command that is too large for
 *                 a message. A type of its own for the same reason
 *    ATTACH       exec [, ack offsets]; answered by ATTACHED, or by RESULT with an error
 *    DETACH       exec
 *    ACK          exec, stdout offset, stderr offset: read so far; allows the next OUTPUT
 *    SIGNAL       exec, signal: to the main process
 *    KILL         exec, cause: kills all processes of the exec
 *    RESIZE       exec, rows, cols
 *    STDIN_CLOSE  exec: the supervisor closes its own write end of stdin, if it kept one
 *    STOP         grace in microseconds [, flags]
 *    PAUSE
 *    RESUME
 *    STATS
 *    DIAL         port
 *    COPY         direction, path, + fd: tar stream
 *    COPY_AS      the same [, user, owner, mode, flags]. Into the sandbox, files are written
 *                 through, where COPY replaces them. A message type of its own, so that an older
 *                 supervisor refuses it
 *    FILES        [user], + fd: one end of a stream socket, over which a helper inside and the
 *                 daemon speak proto/files.h
 *    LISTENER
 *    SETTLED      no answer: the spec that this sandbox runs with is stored, so what the supervisor
 *                 keeps of an earlier one can go
 *
 *  supervisor -> daemon
 *    HELLO        version, pid of init, sandbox id, state, config hash; on every connection
 *    READY        the sandbox is up; unenforced limits. Only on descriptor 3
 *    FAILED       error: the sandbox did not start; the supervisor ends
 *    STARTED      exec, pid, + fd: write end of stdin if requested, or the pty's master
 *    EXEC_FAILED  exec, error. ENDED follows (cause start_failed), except when the message has a
 *                 state (STOPPING): then no command began, no record exists and no ENDED follows,
 *                 so the daemon may send the exec again later
 *    ATTACHED     exec, offsets so far, + fd: pty master if the exec has one; OUTPUT follows
 *    OUTPUT       exec, stdout end, stderr end. Only to attached peers, at most one without ACK
 *    ENDED        exec, text of the end record; to every peer
 *    STATS        memory, cpu, pids, …
 *    RESULT       error or nothing; answers every message that has no answer of its own:
 *                   DIAL: + fd: a connected TCP socket to 127.0.0.1:port inside
 *                   COPY, COPY_AS, FILES: sent when the helper has ended
 *                   LISTENER: + fd: the socket on which the sandbox reaches the package cache
 *                   STOP: sent at once; then ENDED for each exec, then STOPPED
 *    STOPPED      no process is left in the sandbox; the supervisor ends
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/command-size.h"
#include "lib/base/err.h"

/* The minor version rises with each new message type (1.1 PLAN, 1.2 LISTENER, 1.3 EXEC_FED,
 * 1.4 COPY_AS, 1.5 SETTLED, 1.6 EXEC_LARGE, 1.7 FILES), and with a flag that older readers may not
 * pass over (1.8 MERGED), not with a new field, which they skip. Tests build programs of other
 * versions. */
#ifndef SUP_VERSION_MAJOR
#define SUP_VERSION_MAJOR 1
#define SUP_VERSION_MINOR 8
#endif

/* Descriptor numbers when a supervisor starts, and the name of its socket. */
enum { SUP_FD_CONTROL = 3, SUP_FD_PLAN = 4 };
#define SUP_SOCKET "shim.sock"

enum {
    SUP_MSG_MAX = 192 << 10, /* a packet must fit into the buffers of a socket */
    /* The largest command as fields: header and padding take at most 16 bytes for each string. */
    SUP_COMMAND_MAX = COMMAND_STRINGS_MAX * 16 + 16,
    SUP_PLAN_MAX = SUP_COMMAND_MAX + (1 << 20),
};

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
    SUP_COPY_AS,
    SUP_SETTLED,
    SUP_EXEC_LARGE,
    SUP_FILES,
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
    SUP_TAG_ARG,              /* string, repeated; with EXEC_LARGE in the handover, as ENV */
    SUP_TAG_ENV,              /* string K=V, repeated */
    SUP_TAG_CWD,              /* string; absent: the sandbox's */
    SUP_TAG_USER,             /* string: name, uid or uid:gid; absent: the sandbox's */
    SUP_TAG_FLAGS,            /* u64: enum sup_exec_flags */
    SUP_TAG_TIMEOUT,          /* u64 usec; absent: no timeout */
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
    SUP_TAG_UNENFORCED,       /* u64: enum plan_limit bits that this machine cannot enforce */
    SUP_TAG_INPUT,            /* bytes, in a handover: the whole stdin */
    SUP_TAG_SECRET,           /* bytes, in a handover, repeated: name, NUL, value */
    SUP_TAG_SECRET_PLACE,     /* bytes, in a handover: target of the secret before it */
    SUP_TAG_OWNER,            /* string, as USER */
    SUP_TAG_MODE,             /* u64, at most 0777 */
    SUP_TAG_PLAN_FIRST = 256, /* tags of the plan: proto/plan.h */
};

enum sup_exec_flags {
    SUP_EXEC_STDIN = 1 << 0,  /* return the write end of stdin; else stdin is /dev/null */
    SUP_EXEC_TTY = 1 << 1,    /* a pty; stdout carries all output */
    SUP_EXEC_ATTACH = 1 << 2, /* attach the peer at once: OUTPUT from offset 0 */
    SUP_EXEC_MERGED = 1 << 3, /* since 1.8: stderr is stdout */
};

enum sup_stop_flags {
    SUP_STOP_FOR_GOOD = 1 << 0, /* the daemon removes the sandbox and its cgroups later */
};

enum sup_copy_flags {
    SUP_COPY_ATOMIC = 1 << 0,  /* write each file beside its place and rename it */
    SUP_COPY_PARENTS = 1 << 1, /* make the missing folders of the path */
    SUP_COPY_MODE = 1 << 2,    /* the field MODE counts */
};

/* The fields of COPY_AS. All strings are borrowed. COPY is one with ATOMIC alone. */
struct sup_copy {
    const char *path;
    bool into;         /* false: out of the sandbox, and only `user` counts */
    const char *user;  /* NULL: the sandbox's */
    const char *owner; /* of written files; NULL: the writer, or the previous owner */
    uint64_t mode;     /* of each file, with SUP_COPY_MODE */
    uint64_t flags;    /* enum sup_copy_flags */
};

enum sup_state { SUP_STARTING, SUP_RUNNING, SUP_PAUSED, SUP_STOPPING };

/* Writing: sup_begin(), fields, sup_finish(), then send buf_data(). A message over SUP_MSG_MAX is
 * remembered in `overflow`, and sup_finish() reports it. */
struct sup_writer {
    struct buf buf;
    int overflow;
};

void sup_begin(struct sup_writer *w, enum sup_msg_type type, uint64_t seq);
void sup_put_u64(struct sup_writer *w, uint16_t tag, uint64_t v);
void sup_put_str(struct sup_writer *w, uint16_t tag, const char *s); /* NULL: no field */
void sup_put_bytes(struct sup_writer *w, uint16_t tag, const void *p, size_t len);
/* SUP_TAG_STAT "name=value". */
void sup_put_stat(struct sup_writer *w, const char *name, uint64_t value);
void sup_put_err(struct sup_writer *w, const struct err *err);
void sup_put_copy(struct sup_writer *w, const struct sup_copy *c);
int sup_finish(struct sup_writer *w, struct err *err); /* writes the length */
enum sup_msg_type sup_type(const struct sup_writer *w);
void sup_writer_done(struct sup_writer *w);

/* EXEC and its kinds. */
static inline bool sup_starts_exec(unsigned type)
{
    return type == SUP_EXEC || type == SUP_EXEC_FED || type == SUP_EXEC_LARGE;
}

/* Whether a supervisor with this minor version knows the message; -ERR_UNSUPPORTED with a hint. */
int sup_check_known(enum sup_msg_type type, uint32_t minor, struct err *err);
/* The same for SUP_EXEC_MERGED. */
int sup_check_merged(uint32_t minor, struct err *err);

/* Reading: sup_read() checks the whole frame, then sup_next() walks the fields. Strings contain no
 * NUL and are NUL-terminated in place by their padding. Values stay valid as long as the packet. */
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
/* Collects the error fields of a message; err->code stays ERR_NONE if it has none. */
int sup_read_err(const void *packet, size_t len, struct err *err);
