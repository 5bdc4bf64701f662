/*
 * The guest protocol: frames between ripcord-relay and ripcord-guest, over one hijacked exec stream
 * of the container engine, which is the guest's stdin and stdout. The guest writes nothing to
 * stderr. Bytes on stderr, or a first frame other than HELLO, are the engine's own error text.
 *
 * A frame is u8 type, u32 big-endian length, payload (at most GUEST_PAYLOAD_MAX). Numbers are big
 * endian. Each type has an exact payload; a reader refuses other lengths, and types of the other
 * direction. Hostile code may have made the bytes that either side reads.
 *
 * The guest is started as
 *
 *   guest exec           runs one command of the sandbox
 *   guest dial PORT      opens a TCP connection to 127.0.0.1 (or ::1) inside
 *   guest listen PORT    accepts connections on 127.0.0.1 inside and forwards them (guest-mux.h)
 *   guest copy-in PATH   unpacks a tar stream (lib/base/tree.h). Since 1.3 words may follow the
 *                        path: `through`, `parents`, `owner=USER`, `mode=OCTAL`
 *   guest copy-out PATH  sends a tar stream
 *   guest files          one file operation (proto/files.h), whose bytes are STDIN and STDOUT
 *   guest reap [PID]...  kills processes that have lost their guest: every process below pid 1, and
 *                        the trees of the given guests (dead, or stopped from inside). It does not
 *                        touch live execs, jobs and starting ones, whose parent is the engine
 *   guest init           is pid 1 of the container; sends and receives nothing
 *
 *  relay -> guest
 *    SPEC         a piece of the spec's fields (below); repeated as needed
 *    RUN          empty: the spec is complete, start the command
 *    STDIN        bytes; after RUN
 *    STDIN_EOF    empty: the end of stdin. Ignored with a terminal
 *    SIGNAL       u8 signal, 1 to 64: to the main process
 *    RESIZE       u16 rows, u16 cols
 *    KILL         u8 flags (enum guest_kill_flags): kill the command and all its descendants.
 *                 Allowed at any time, and more than once
 *    ANSWER_DATA, ANSWER_EOF, ANSWER_CLOSE, ANSWER_ACK   as CALL_… below, the other way
 *
 *  guest -> relay
 *    HELLO        "RIPGUEST", u16 major, u16 minor, u32 pid of the guest inside the container
 *    STARTED      u32 pid of the command inside (exec), or 0 (dial: connected)
 *    FAILED       the start or the copy failed: u32 enum err_code, u32 errno or 0, u16 length of
 *                 the message, message, hint (the rest, may be empty). Message and hint have at
 *                 most GUEST_TEXT_MAX bytes each and no NUL. The last frame
 *    STDIN_ACK    u32: this many more bytes of STDIN were taken (exec only)
 *    STDIN_CLOSED empty: the command has closed its stdin; further STDIN is dropped. Once
 *    STDOUT       bytes
 *    STDERR       bytes
 *    STDOUT_EOF   empty (dial: the service has closed its sending side)
 *    EXIT         struct guest_exit: its fields in order, u32 status and flags, then u64s. The last
 *                 frame of `exec`
 *    DONE         u64 entries, u64 bytes, u64 skipped. The last frame of the other modes (reap:
 *                 entries is the number of killed processes)
 *    CALL_OPEN    u32 id: a process inside has connected. Ids are 1, 2, 3, …
 *    CALL_DATA    u32 id, bytes
 *    CALL_EOF     u32 id: the end of its bytes. Once
 *    CALL_CLOSE   u32 id: the connection broke; the other side drops bytes that are not passed on
 *    CALL_ACK     u32 id, u32 bytes: this many more bytes were passed on
 *
 *  exec      HELLO | SPEC… RUN | STARTED or FAILED | STDOUT, STDERR, STDIN_ACK… | EXIT
 *  dial      HELLO | STARTED or FAILED | STDOUT… STDOUT_EOF against STDIN… STDIN_EOF | DONE
 *  listen    HELLO | STARTED or FAILED | CALL_… against ANSWER_…, until the stream ends
 *  copy-in   HELLO | STDIN… STDIN_EOF | DONE or FAILED (may come before all of STDIN was read)
 *  copy-out  HELLO | STDOUT… | DONE or FAILED
 *  files     HELLO | STDIN… against STDOUT… | DONE or FAILED
 *  reap      HELLO | DONE or FAILED
 *
 * Credit. In `exec` the relay keeps at most GUEST_CREDIT bytes of STDIN unacknowledged, so that
 * SIGNAL and KILL never wait behind them. A guest disconnects a relay that sends more. In `listen`
 * each connection has a window in each direction (guest-mux.h). The other modes have no ACK: the
 * back-pressure of the stream is enough.
 *
 * Protection. The program is in the container as /.ripcord/guest, owned by root, mode 0111. A
 * process whose user cannot read the program file is not dumpable from its start, so no process of
 * the same uid can inspect it or take its descriptors.
 *
 * The end. After EXIT the guest waits for the end of its stdin, which confirms that the relay has
 * read EXIT. Then the guest may live on with its stdio closed, as the parent of daemonised children
 * and the reader of their pipes; the relay does not wait for the end of the stream.
 *
 * The relay never half-closes the stream. The end of the guest's stdin, or an error at its stdout,
 * means that the relay or the engine is gone: the guest then kills the command and all its
 * descendants. A stream that ends without EXIT, FAILED or DONE means that the guest was killed: the
 * command's end is unknown, and its processes may still run (`guest reap`).
 *
 * This code does no I/O; guest and relay share it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/command-size.h"
#include "lib/base/err.h"

/* Tests build a guest of another version. */
#ifndef GUEST_VERSION_MINOR
#define GUEST_VERSION_MINOR 6
#endif
enum { GUEST_VERSION_MAJOR = 1 };
enum {
    GUEST_MINOR_WORDS = 3, /* an older guest ignores the words of copy-in */
    GUEST_MINOR_LARGE = 4, /* an older guest takes GUEST_OLD_SPEC_MAX and GUEST_OLD_ITEMS_MAX */
    GUEST_MINOR_MERGED = 6,
};

enum {
    GUEST_HEAD_SIZE = 5,
    GUEST_PAYLOAD_MAX = 64 << 10,
    GUEST_CREDIT = 64 << 10,
    GUEST_SPEC_MAX = COMMAND_MAX + (128 << 10), /* all fields together */
    GUEST_SPEC_ITEMS_MAX = COMMAND_STRINGS_MAX,
    GUEST_OLD_SPEC_MAX = 512 << 10,
    GUEST_OLD_ITEMS_MAX = 8192,
    GUEST_TEXT_MAX = 1024,
    GUEST_SIGNAL_MAX = 64,
    GUEST_SECRETS_MAX = 32,
    GUEST_DATA_HEAD = GUEST_HEAD_SIZE + 4, /* of CALL_DATA and ANSWER_DATA, with the id */
};

/* If this file exists, the guest runs no command and unpacks nothing as root. */
#define GUEST_NO_ROOT "/.ripcord/no-root"

#define GUEST_UNKNOWN UINT64_MAX /* a counter that could not be read */

/* The high bit marks frames of the guest, so no ASCII text starts like a frame of the guest. */
enum guest_type {
    GUEST_SPEC = 0x01,
    GUEST_RUN,
    GUEST_STDIN,
    GUEST_STDIN_EOF,
    GUEST_SIGNAL,
    GUEST_RESIZE,
    GUEST_KILL,
    GUEST_ANSWER_DATA, /* since 1.2, as is CALL_… */
    GUEST_ANSWER_EOF,
    GUEST_ANSWER_CLOSE,
    GUEST_ANSWER_ACK,
    GUEST_RELAY_END, /* one more than the last type of the relay */

    GUEST_HELLO = 0x81,
    GUEST_STARTED,
    GUEST_FAILED,
    GUEST_STDIN_ACK,
    GUEST_STDIN_CLOSED,
    GUEST_STDOUT,
    GUEST_STDERR,
    GUEST_STDOUT_EOF,
    GUEST_EXIT,
    GUEST_DONE,
    GUEST_CALL_OPEN,
    GUEST_CALL_DATA, /* in the order of ANSWER_… */
    GUEST_CALL_EOF,
    GUEST_CALL_CLOSE,
    GUEST_CALL_ACK,
    GUEST_GUEST_END,
};

enum guest_side { GUEST_SIDE_RELAY, GUEST_SIDE_GUEST };

/*
 * ALONE: no other exec is live in the container. If descendants fork faster than the guest finds
 * them, the guest may then signal every process at once, including daemonised children of earlier
 * execs.
 */
enum guest_kill_flags { GUEST_KILL_ALONE = 1 << 0 };

/* ---- frames ---- */

struct guest_frame {
    enum guest_type type;
    uint32_t length;
    const char *data; /* borrowed from the bytes given to guest_parse() */
};

/* 1 and *ret, the frame in the first *used bytes; 0 if more bytes are needed; -ERR_INVALID. `from`
 * is the side that wrote the bytes. Lengths are checked here, payloads by the functions below. */
int guest_parse(const char *data, size_t len, enum guest_side from, struct guest_frame *ret,
                size_t *used, struct err *err);

/* Appends one frame; -ERR_LIMIT if it is too large or the buffer is full. */
int guest_put(struct buf *b, enum guest_type type, const void *data, size_t len) _must_check_;

/* Only the head, for callers that send the payload without copying it. */
void guest_put_head(char p[static GUEST_HEAD_SIZE], enum guest_type type, uint32_t length);

/* ---- relay -> guest ---- */

enum guest_spec_flags {
    GUEST_SPEC_STDIN = 1 << 0,     /* else stdin is /dev/null */
    GUEST_SPEC_TTY = 1 << 1,       /* a terminal; STDOUT carries all output */
    GUEST_SPEC_MERGED = 1 << 3,    /* since 1.6: stderr is stdout */
    GUEST_SPEC_ENV_CLEAR = 1 << 2, /* only `env`, without the engine's variables (HOME, ENV) */
};

/*
 * The command to run. On the wire: fields of u8 tag, u32 length, value, in sequence and cut into
 * SPEC frames at any byte. ARG and ENV repeat, in order; CWD, FLAGS (u32) and SIZE (u16, u16) come
 * at most once. SECRET is a name, NUL and the value. Strings contain no NUL. An unknown tag is an
 * error.
 */
enum guest_spec_tag {
    GUEST_TAG_ARG = 1, /* the first one is the command; at least one, not empty */
    GUEST_TAG_ENV,     /* K=V, K as lib/base/parse.h has it; replaces what the engine gave */
    GUEST_TAG_CWD,     /* absolute; absent: where the engine put the guest */
    GUEST_TAG_FLAGS,
    GUEST_TAG_SIZE,   /* rows, cols of the terminal */
    GUEST_TAG_SECRET, /* since 1.1 */
};

struct guest_secret {
    char *name, *value; /* owned */
    size_t len;
};

struct guest_spec {
    char **argv, **env; /* owned */
    char *cwd;          /* owned; NULL: as it is */
    uint32_t flags;
    uint16_t rows, cols;
    struct guest_secret *secrets; /* owned */
    size_t n_secrets;
};

void guest_spec_done(struct guest_spec *s);
/* Appends all SPEC frames and RUN for a guest of that minor version. The buffer needs room for
 * GUEST_SPEC_WIRE_MAX bytes. -ERR_LIMIT if the spec is too large, -ERR_UNSUPPORTED if it is too
 * large for that guest. */
int guest_put_spec(struct buf *b, const struct guest_spec *s, uint16_t minor, struct err *err);
enum { GUEST_SPEC_WIRE_MAX = GUEST_SPEC_MAX + 64 * GUEST_HEAD_SIZE };

/* The guest's side: collects the payloads of SPEC frames (at most GUEST_SPEC_MAX bytes), and parses
 * them at RUN. */
int guest_collect_spec(struct buf *fields, const struct guest_frame *f, struct err *err);
int guest_get_spec(const struct buf *fields, struct guest_spec *ret, struct err *err);

int guest_put_signal(struct buf *b, int sig) _must_check_;
int guest_put_resize(struct buf *b, uint16_t rows, uint16_t cols) _must_check_;
int guest_put_kill(struct buf *b, uint8_t flags) _must_check_;
int guest_get_signal(const struct guest_frame *f, int *ret, struct err *err);
void guest_get_resize(const struct guest_frame *f, uint16_t *ret_rows, uint16_t *ret_cols);
uint8_t guest_get_kill(const struct guest_frame *f);

/* ---- guest -> relay ---- */

struct guest_hello {
    uint16_t major, minor;
    uint32_t pid;
};

int guest_put_hello(struct buf *b, uint32_t pid) _must_check_;
/* -ERR_INVALID for other bytes, -ERR_UNSUPPORTED for another major version. */
int guest_get_hello(const struct guest_frame *f, struct guest_hello *ret, struct err *err);

int guest_put_u32(struct buf *b, enum guest_type type, uint32_t v) _must_check_;
uint32_t guest_get_u32(const struct guest_frame *f); /* STARTED, STDIN_ACK; the id of CALL_… */

int guest_put_failed(struct buf *b, const struct err *why) _must_check_;
/* 0: *why holds the error of the frame. -ERR_INVALID: the frame is malformed, and *why says so. */
int guest_get_failed(const struct guest_frame *f, struct err *why);

enum guest_exit_flags {
    GUEST_EXIT_DRAINED = 1 << 0, /* all output was read; else a daemonised child held a pipe */
};

/*
 * The end of a command. Counters come from the container's own cgroup files, read before the
 * command started and after it ended; GUEST_UNKNOWN if that was not possible. The difference
 * belongs to the exec only if it ran alone.
 */
struct guest_exit {
    uint32_t status; /* as waitpid(2) returns it */
    uint32_t flags;
    uint64_t stdout_bytes, stderr_bytes; /* sent in frames */
    uint64_t cpu_usec;                   /* of all processes that were waited for */
    uint64_t max_rss;                    /* bytes; of the largest of them */
    uint64_t io_read, io_write;          /* bytes */
    uint64_t memory_peak_before, memory_peak;
    uint64_t memory_limit; /* GUEST_UNKNOWN also without a limit */
    uint64_t oom_kills_before, oom_kills;
    uint64_t pids_denied_before, pids_denied;
};

int guest_put_exit(struct buf *b, const struct guest_exit *e) _must_check_;
/* -ERR_INVALID for a status that no process can have. */
int guest_get_exit(const struct guest_frame *f, struct guest_exit *ret, struct err *err);

struct guest_done {
    uint64_t entries, bytes, skipped;
};

int guest_put_done(struct buf *b, const struct guest_done *d) _must_check_;
void guest_get_done(const struct guest_frame *f, struct guest_done *ret);

/* ---- connections, both ways ---- */

void guest_put_data_head(char p[static GUEST_DATA_HEAD], enum guest_type type, uint32_t id,
                         uint32_t bytes); /* which follow */
int guest_put_ack(struct buf *b, enum guest_type type, uint32_t id, uint32_t bytes) _must_check_;
uint32_t guest_get_ack(const struct guest_frame *f); /* the bytes */
