/*
 * What ripcord-relay and ripcord-guest say to each other through one hijacked exec stream of the
 * container engine: the guest's stdin and stdout. Its stderr stays empty; anything there, or
 * anything but HELLO first, is the engine's own error text.
 *
 * A frame is u8 type, u32 big-endian length, payload (at most GUEST_PAYLOAD_MAX). Numbers are big
 * endian. Each type has its exact payload; one that is longer or shorter is refused, as is a type
 * of the other direction. The reader of either side meets bytes that hostile code may have made.
 *
 * The guest is started as
 *
 *   guest exec           one command of the sandbox
 *   guest dial PORT      a TCP connection to 127.0.0.1 (or ::1) inside
 *   guest listen PORT    takes connections on 127.0.0.1 inside and carries them out (guest-mux.h)
 *   guest copy-in PATH   unpacks a tar stream, as lib/base/tree.h
 *   guest copy-out PATH  sends one
 *   guest reap [PID]...  kills what has lost its guest: every process below pid 1, and the trees of
 *                        the guests given (dead or stopped from inside). Execs that live, jobs, and
 *                        those being started are not touched: their parent is the engine
 *   guest init           pid 1 of the container; speaks nothing
 *
 *  relay -> guest
 *    SPEC         a piece of the spec's fields (below); as many frames as are needed
 *    RUN          empty: the spec is whole, start
 *    STDIN        bytes; after RUN
 *    STDIN_EOF    empty: no more follow. With a terminal nothing happens
 *    SIGNAL       u8 signal, 1 to 64: to the main process
 *    RESIZE       u16 rows, u16 cols
 *    KILL         u8 flags (enum guest_kill_flags): the command and every descendant of it.
 *                 Allowed at any time, also more than once
 *    ANSWER_DATA, ANSWER_EOF, ANSWER_CLOSE, ANSWER_ACK   as CALL_… below, the other way
 *
 *  guest -> relay
 *    HELLO        "RIPGUEST", u16 major, u16 minor, u32 pid of the guest inside the container
 *    STARTED      u32 pid of the command inside (exec), or 0 (dial: connected)
 *    FAILED       it could not be started, or the copy failed: u32 enum err_code, u32 errno or 0,
 *                 u16 length of the message, message, hint (the rest, may be empty). Each at most
 *                 GUEST_TEXT_MAX bytes, no NUL. The last frame
 *    STDIN_ACK    u32: so many more bytes of STDIN have been taken (exec only)
 *    STDIN_CLOSED empty: the command's stdin is closed at its end, what follows is taken and
 *                 dropped. Once
 *    STDOUT       bytes
 *    STDERR       bytes
 *    STDOUT_EOF   empty (dial: the service has closed its sending side)
 *    EXIT         struct guest_exit, its fields in order, u32 status and flags, then u64s. The last
 *                 frame of `exec`
 *    DONE         u64 entries, u64 bytes, u64 skipped: the last frame of the other modes (reap:
 *                 entries is the number of processes that were killed)
 *    CALL_OPEN    u32 id: somebody inside has connected. 1, 2, 3, …
 *    CALL_DATA    u32 id, bytes
 *    CALL_EOF     u32 id: no more bytes follow. Once
 *    CALL_CLOSE   u32 id: the connection broke; what the other side has not passed on is dropped
 *    CALL_ACK     u32 id, u32 bytes: so many more have been passed on
 *
 *  exec      HELLO | SPEC… RUN | STARTED or FAILED | STDOUT, STDERR, STDIN_ACK… | EXIT
 *  dial      HELLO | STARTED or FAILED | STDOUT… STDOUT_EOF against STDIN… STDIN_EOF | DONE
 *  listen    HELLO | STARTED or FAILED | CALL_… against ANSWER_…, until the line ends
 *  copy-in   HELLO | STDIN… STDIN_EOF | DONE or FAILED (may come before all of STDIN was read)
 *  copy-out  HELLO | STDOUT… | DONE or FAILED
 *  reap      HELLO | DONE or FAILED
 *
 * Credit. In `exec` the relay keeps at most GUEST_CREDIT bytes of STDIN unacknowledged, so that
 * SIGNAL and KILL are never stuck behind them; a relay that sends more is cut off. In `listen` each
 * connection has a window of its own, both ways (guest-mux.h). The other modes have no ACK: there
 * the stream's own back-pressure is enough.
 *
 * The program lies in the container as /.ripcord/guest, root's, mode 0111: what its user cannot
 * read is not dumpable from birth, so that nobody of the same uid can look into it or take its
 * descriptors. After EXIT the guest waits for the end of its stdin, which says that it was heard.
 * Then it may live on with its stdio closed, as the parent of daemonised children and the reader of
 * their pipes: the relay waits for no end of the stream then.
 *
 * The relay never half-closes the stream. Its end at the guest's stdin, or an error at its stdout,
 * means that relay or engine are gone: the command and all its descendants are killed. A stream
 * that ends without EXIT, FAILED or DONE means that the guest was killed: nothing is known of the
 * command's end, and its processes may live on (`guest reap`).
 *
 * Pure code, no I/O: shared by guest and relay.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

enum { GUEST_VERSION_MAJOR = 1, GUEST_VERSION_MINOR = 2 };

enum {
    GUEST_HEAD_SIZE = 5,
    GUEST_PAYLOAD_MAX = 64 << 10,
    GUEST_CREDIT = 64 << 10,
    GUEST_SPEC_MAX = 512 << 10, /* all fields together */
    GUEST_SPEC_ITEMS_MAX = 8192,
    GUEST_TEXT_MAX = 1024,
    GUEST_SIGNAL_MAX = 64,
    GUEST_SECRETS_MAX = 32,
    GUEST_DATA_HEAD = GUEST_HEAD_SIZE + 4, /* of CALL_DATA and ANSWER_DATA, with the id */
};

#define GUEST_UNKNOWN UINT64_MAX /* of a counter that could not be read */

/* The high bit says who speaks; no text in ASCII starts like a frame of the guest. */
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
    GUEST_RELAY_END, /* first that the relay does not say */

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
 * No other exec lives in the container. Then descendants that keep ahead of the search for them are
 * met by a signal to every process at once, daemonised children of earlier execs included.
 */
enum guest_kill_flags { GUEST_KILL_ALONE = 1 << 0 };

/* ---- frames ---- */

struct guest_frame {
    enum guest_type type;
    uint32_t length;
    const char *data; /* borrowed from the bytes given to guest_parse() */
};

/* 1 and *ret, the frame being the first *used bytes; 0 when more is needed; -ERR_INVALID. `from` is
 * who wrote the bytes. Lengths are checked; what is inside is for the functions below. */
int guest_parse(const char *data, size_t len, enum guest_side from, struct guest_frame *ret,
                size_t *used, struct err *err);

/* One frame; -ERR_LIMIT when it is too large, or the buffer full. */
int guest_put(struct buf *b, enum guest_type type, const void *data, size_t len) _must_check_;

/* The head alone, for those who send the payload from where it lies. */
void guest_put_head(char p[static GUEST_HEAD_SIZE], enum guest_type type, uint32_t length);

/* ---- relay -> guest ---- */

enum guest_spec_flags {
    GUEST_SPEC_STDIN = 1 << 0,     /* else it is /dev/null */
    GUEST_SPEC_TTY = 1 << 1,       /* a terminal; STDOUT carries all output */
    GUEST_SPEC_ENV_CLEAR = 1 << 2, /* only `env`, nothing of what the engine gives (HOME, ENV) */
};

/*
 * What to run. On the wire: fields of u8 tag, u32 length, value, one behind the other and cut into
 * SPEC frames anywhere. ARG and ENV repeat, in order; CWD, FLAGS (u32) and SIZE (u16, u16) come at
 * most once. SECRET is a name, NUL and the value. Strings hold no NUL; an unknown tag is refused.
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
/* All SPEC frames and RUN. The buffer needs GUEST_SPEC_WIRE_MAX of room. -ERR_LIMIT with words. */
int guest_put_spec(struct buf *b, const struct guest_spec *s, struct err *err);
enum { GUEST_SPEC_WIRE_MAX = GUEST_SPEC_MAX + 64 * GUEST_HEAD_SIZE };

/* The other side: collect the payloads of SPEC frames (fails over GUEST_SPEC_MAX), at RUN read. */
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
/* *why is filled from the frame (0); -ERR_INVALID and *why says so, when it is malformed. */
int guest_get_failed(const struct guest_frame *f, struct err *why);

enum guest_exit_flags {
    GUEST_EXIT_DRAINED = 1 << 0, /* not: a daemonised child held a pipe when the grace was over */
};

/*
 * The end of a command. Counters are the container's own cgroup files, read before the command was
 * started and after it ended, GUEST_UNKNOWN where that was not possible: an exec that was alone may
 * call the difference its own.
 */
struct guest_exit {
    uint32_t status; /* as of waitpid(2) */
    uint32_t flags;
    uint64_t stdout_bytes, stderr_bytes; /* all that was sent in frames */
    uint64_t cpu_usec;                   /* of all processes that were waited for */
    uint64_t max_rss;                    /* bytes; of the largest of them */
    uint64_t io_read, io_write;          /* bytes */
    uint64_t memory_peak_before, memory_peak;
    uint64_t memory_limit; /* GUEST_UNKNOWN also when there is none */
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
