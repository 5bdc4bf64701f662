/*
 * The part that every supervisor of a running sandbox shares: one process, one thread, one epoll
 * loop; connections of daemons that come and go (proto/supervisor.h); execs with their journals,
 * acks, timeouts and end records; the order of a stop. The shim (native) and the relay (Docker,
 * Podman) embed struct supervisor and struct supervised_exec, and fill in struct supervisor_ops for
 * the parts that differ. Below, "the owner" is the shim or the relay.
 *
 * Sources. A descriptor that the loop watches is a struct loop_source embedded in its owner. The
 * loop takes one event at a time, so a handler may close any source and free any object except the
 * one it was called for. Peers and execs that end in their own handler are marked, and the loop
 * frees them after the handler.
 *
 * Life: supervisor_init(), fill in the fields "set by the owner", supervisor_open(), start the
 * sandbox, supervisor_serve() until it is over (or supervisor_fail()), supervisor_done().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "lib/base/err.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/journal/journal.h"
#include "lib/journal/record.h"
#include "proto/handover.h"
#include "proto/supervisor.h"

enum {
    SUPERVISOR_ID_MAX = 16,
    SUPERVISOR_IO_SIZE = 256 << 10, /* one buffer for messages and output; >= SUP_MSG_MAX */
    SUPERVISOR_QUEUE_MAX = 1 << 20, /* bytes that a peer may leave unread before we disconnect it */
    SUPERVISOR_PEERS_MAX = 16,
    SUPERVISOR_EXECS_MAX = 4096,
};

struct supervisor;
struct supervised_exec;

struct loop_source {
    int fd; /* owned; -1: not watched */
    uint32_t events;
    void (*ready)(struct loop_source *s, uint32_t events);
};

/* ---- peers: the daemons that are connected ---- */

struct supervisor_packet {
    struct supervisor_packet *next;
    int fd; /* owned, or -1 */
    size_t len;
    char data[];
};

struct supervisor_peer {
    struct supervisor_peer *next;
    struct supervisor *sup;
    struct loop_source src;
    bool greeted, dead;
    bool held; /* the sandbox is not up yet: messages to this peer wait in the queue */
    struct supervisor_packet *first, **last; /* not sent yet */
    size_t queued;
};

/* A peer that follows an exec's output. */
struct attachment {
    struct attachment *next;
    struct supervisor_peer *peer;
    uint64_t announced[JOURNAL_STREAMS]; /* end offsets in the last OUTPUT */
    uint64_t ack[JOURNAL_STREAMS];
    bool in_flight; /* an OUTPUT is not ACKed yet */
};

/* ---- execs ---- */

struct exec_stream {
    struct loop_source src; /* the pipe's read end or the pty's master; -1 if the owner feeds it */
    struct supervised_exec *exec;
    struct journal_writer journal;
    uint64_t dropped; /* bytes that could not be stored */
    int lost_errno;   /* why; or 0. After it nothing is stored, so that stored output has no hole */
    bool widened;     /* the pipe has its large size */
};

enum supervised_exec_state {
    EXEC_STARTING, /* launched; we do not know yet whether it runs */
    EXEC_RUNNING,
    EXEC_DRAINING, /* the main process has ended, a pipe is still open */
    EXEC_OVER, /* the record is written; a daemonised child may still hold a pipe or the cgroup */
};

/* The daemon's request; freed once the command has started. The strings lie in `message`, or in the
 * handover of EXEC_LARGE, and cannot be written to. */
struct exec_spec {
    char *message;               /* owned: a copy of the fields */
    struct strv_list args, vars; /* of the message */
    char **argv, **env;          /* NULL: empty */
    const char *cwd, *user;      /* NULL: the sandbox's; cwd: see exec_workdir() */
    uint64_t flags;
    uint16_t rows, cols;
};

struct supervised_exec {
    struct supervised_exec *next;
    struct supervisor *sup;
    char id[SUPERVISOR_ID_MAX + 1];
    enum supervised_exec_state state;
    bool freed; /* the loop frees it after this event */
    struct exec_spec spec;
    struct handover handover; /* until the command has it */
    struct loop_source input; /* the command's stdin while the handover's input is written to it */
    size_t input_at;

    struct supervisor_peer *starter; /* waits for STARTED; NULL once it has disconnected */
    uint64_t seq;

    struct exec_stream streams[JOURNAL_STREAMS];
    bool fed;       /* the owner still delivers output by stream_feed() */
    bool awaited;   /* the engine is still starting it: timeouts do not count yet */
    bool entrusted; /* the guest has it, and may have started it without our knowledge */
    bool tty;
    bool input_whole; /* no daemon still holds a part of its stdin */
    bool input_lost;  /* a daemon held a part of its stdin and ended */
    int pid;
    int dirfd; /* its journals' folder */
    struct attachment *attached;

    uint64_t started_wall, started_mono;
    uint64_t timeout, idle_timeout; /* usec, 0: no timeout */
    uint64_t last_output;
    struct deadline drain_by;
    uint64_t discard_at; /* state OVER: when its pipes are read again, or DEADLINE_NEVER */
    bool killed;         /* we killed it, for kill_cause */
    enum end_cause kill_cause;
    bool stopped; /* it was alive when the stop of the sandbox began */
    bool alone;   /* no other exec ran at the same time: the sandbox's counters are its own */
    int wait_status;
    struct rusage usage;
};

/* ---- what differs between shim and relay ---- */

/*
 * Functions that answer a peer's message return 0 (RESULT follows), 1 (they have answered or will
 * answer by themselves) or an error.
 */
struct supervisor_ops {
    size_t exec_size; /* of the owner's exec, which begins with struct supervised_exec */
    void (*exec_init)(struct supervised_exec *x); /* the owner's part; zeroed before */
    void (*exec_done)(struct supervised_exec *x); /* releases that part, in any state */

    /* Begins to start the command. Later, from an event: exec_started() or exec_fail_start(). */
    int (*launch)(struct supervised_exec *x, struct err *err);
    /* State RUNNING only: to the main process. */
    int (*signal)(struct supervised_exec *x, int sig, struct err *err);
    /* All processes of the exec. */
    void (*kill)(struct supervised_exec *x);
    /* With a tty: a new descriptor to write to it, or -1. */
    int (*terminal)(struct supervised_exec *x);
    int (*resize)(struct supervised_exec *x, uint16_t rows, uint16_t cols, struct err *err);
    int (*stdin_close)(struct supervised_exec *x, struct err *err);
    /* True if processes of the exec live on after the main one. */
    bool (*has_survivors)(const struct supervised_exec *x);
    /* Writes usage and counters into the record. */
    void (*fill)(const struct supervised_exec *x, struct end_record *rec);
    /* The record is written: releases the resources of a live exec. */
    void (*over)(struct supervised_exec *x);
    /* Fed execs: readers have caught up. NULL if no exec is ever fed. */
    void (*readable)(struct supervised_exec *x);

    int (*freeze)(struct supervisor_peer *p, uint64_t seq, bool on, struct err *err);
    int (*stats)(struct supervisor_peer *p, uint64_t seq, struct err *err);
    int (*dial)(struct supervisor_peer *p, uint64_t seq, uint64_t port, struct err *err);
    /* fd and the strings are borrowed. */
    int (*copy)(struct supervisor_peer *p, uint64_t seq, const struct sup_copy *copy, int fd,
                struct err *err);
    int (*files)(struct supervisor_peer *p, uint64_t seq, const char *user, int fd,
                 struct err *err);
    /* A new descriptor of the package cache's socket. NULL: unsupported. */
    int (*listener)(struct supervisor *s, struct err *err);
    /* The spec of this run is stored. NULL: nothing of an earlier one is kept. */
    void (*settled)(struct supervisor *s);
    /* The peer has gone: its answers are dropped. */
    void (*forget)(struct supervisor *s, const struct supervisor_peer *p);

    /* True if the sandbox has died, perhaps before its event arrives. NULL: use s->gone. */
    bool (*has_died)(const struct supervisor *s);
    void (*stopping)(struct supervisor *s);  /* before commands get SIGTERM: thaw the sandbox */
    void (*shut_down)(struct supervisor *s); /* ends every process inside; once. `gone` follows */
    void (*finish)(struct supervisor *s);    /* `gone`, and every exec has its record: clean up */
    uint64_t (*timer_at)(const struct supervisor *s); /* the owner's next timer or DEADLINE_NEVER */
    void (*timer)(struct supervisor *s, uint64_t now);
};

/* ---- the sandbox ---- */

struct supervisor {
    const struct supervisor_ops *ops;
    /* Set by the owner; the strings belong to the owner and outlive the supervisor. */
    const char *sandbox_id, *name, *hash;
    const char *isolation; /* for end records; NULL: shared */
    uint64_t journal_budget;
    bool ephemeral;
    bool tied; /* the sandbox stops when no daemon is connected any more */
    int pid;   /* of the sandbox's pid 1, for people */
    uint32_t unenforced;
    bool gone; /* no process is left inside */

    enum sup_state state;
    int epoll;
    struct loop_source listener, timer, signals;
    uint64_t timer_at; /* the timer's current setting, or DEADLINE_NEVER */
    int run_dirfd, exec_dirfd;
    struct supervisor_peer *peers;
    struct supervised_exec *execs;
    char *io;                /* SUPERVISOR_IO_SIZE bytes, mapped while there is work */
    bool shut;               /* ops->shut_down() was called */
    struct deadline stop_by; /* end of the grace */
    bool for_good;           /* SUP_STOP_FOR_GOOD */
    bool over;               /* the loop ends */
};

/* serve.c */
void supervisor_init(struct supervisor *s, const struct supervisor_ops *ops);
void supervisor_hold_fds(void); /* first call in main: makes sure that 0 to 4 are in use */
int supervisor_open(struct supervisor *s, const char *run_dir, const char *exec_dir,
                    struct err *err);
/* Sends FAILED to the daemon that started us. */
void supervisor_fail(struct supervisor *s, const struct err *err);
/* Sends READY, then runs the loop. */
int supervisor_serve(struct supervisor *s, struct err *err);
/* For a sandbox that did not start: frees early execs without a record. */
void execs_drop(struct supervisor *s);
void supervisor_done(struct supervisor *s);

/* loop.c */
int source_add(struct supervisor *s, struct loop_source *src, int fd, uint32_t events,
               void (*ready)(struct loop_source *, uint32_t), struct err *err);
void source_set(struct supervisor *s, struct loop_source *src, uint32_t events);
void source_close(struct supervisor *s, struct loop_source *src);
int loop_run(struct supervisor *s, struct err *err);
char *supervisor_io(struct supervisor *s); /* the shared buffer; valid until the next handler */

/* peers.c */
int peers_listen(struct supervisor *s, struct err *err);
int peer_add(struct supervisor *s, int fd, struct err *err); /* takes the fd; sends HELLO */
/* Before the sandbox is up: takes one message, if it starts a command. 0: the next message does not
 * start a command and waits. */
int peer_early(struct supervisor *s, int fd, struct err *err);
/* The sandbox is up: sends HELLO, `news`, then the messages that were held. */
void peer_release(struct supervisor_peer *p, struct sup_writer *news);
/* Takes the fd. A failure marks the peer dead; its handler cleans up. */
void peer_send(struct supervisor_peer *p, struct sup_writer *w, int fd);
void peer_result(struct supervisor_peer *p, uint64_t seq, const struct err *err);
void peers_broadcast(struct supervisor *s, struct sup_writer *w);
/* Before we exit: waits up to `usec` for slow readers, and closes so that no message is lost. */
void peers_finish(struct supervisor *s, uint64_t usec);
/* Sets x->input_lost if a daemon that held a part of the exec's input has ended or is ending. */
void peers_note_input(struct supervised_exec *x);
void peer_hang_up(int fd);
void peer_free(struct supervisor_peer *p);

/* commands.c: runs one message of a peer that has sent HELLO. Takes fd, the descriptor that came
 * with it, or -1. */
void command_run(struct supervisor_peer *p, struct sup_reader *r, int fd);

/* exec.c */
/* fd: the handover, or -1; borrowed. */
void exec_start(struct supervisor_peer *p, struct sup_reader *r, int fd);
struct supervised_exec *exec_find(struct supervisor *s, const char *id);
bool exec_is_live(const struct supervised_exec *x); /* not OVER */
size_t execs_live(const struct supervisor *s);
void exec_free(struct supervised_exec *x);
/* Kills all of the exec's processes; the record will name the cause if the kill ends the exec. */
/* The working folder of a command: a relative one is below the sandbox's. The caller frees it. */
char *exec_workdir(const struct exec_spec *spec, const char *of_sandbox);
void exec_kill(struct supervised_exec *x, enum end_cause cause);
/* The command runs. fd: the write end of its stdin, or -1; taken. */
void exec_started(struct supervised_exec *x, int fd);
void exec_spec_done(struct exec_spec *spec);

/* input.c */
void input_begin(struct supervised_exec *x, int fd); /* takes fd: the command's stdin, or -1 */
void input_close(struct supervised_exec *x);

/* streams.c */
int streams_open(struct supervised_exec *x, int out, int err_fd, struct err *err);
void streams_close(struct supervised_exec *x);
bool streams_drained(const struct supervised_exec *x);
/* Before the record of an exec whose pipes are still open: stores the bytes that are in them. */
void streams_read_rest(struct supervised_exec *x);
/* After ACK or DETACH: reads on where readers have caught up. */
void streams_wake(struct supervised_exec *x);
void streams_notify(struct supervised_exec *x);     /* sends OUTPUT to peers that may get one */
void stream_discard(struct supervised_exec *x);     /* from now on output is read and dropped */
void streams_discard_on(struct supervised_exec *x); /* at discard_at */
/* For owners that get output in another way than from a pipe: stores the bytes; the owner calls
 * streams_notify() afterwards. False: a reader is a whole budget behind, so the owner must wait for
 * ops->readable(). */
bool stream_feed(struct supervised_exec *x, enum journal_stream which, const void *data,
                 size_t len);
int attachment_add(struct supervised_exec *x, struct supervisor_peer *p,
                   const uint64_t ack[JOURNAL_STREAMS]);
struct attachment *attachment_find(struct supervised_exec *x, const struct supervisor_peer *p);
void attachments_remove(struct supervised_exec *x, const struct supervisor_peer *p); /* NULL: all */

/* end-cause.c */
/* The main process has ended with x->wait_status and x->usage: drains, then writes the record. */
void exec_main_ended(struct supervised_exec *x);
void exec_try_finish(struct supervised_exec *x);
void exec_fail_start(struct supervised_exec *x, const struct err *err);
/* True if the sandbox is going down and a later start can run the command: do not begin it now. */
bool exec_is_late(const struct supervised_exec *x);
void exec_send_refused(struct supervised_exec *x, const struct err *why);
/* We killed it before its command ran: because of its timeout, or on request. */
void exec_killed_in_start(struct supervised_exec *x);
/* The end of the command is unknown: cause engine_lost, with the reason. */
void exec_lose(struct supervised_exec *x, const struct err *why);

/* stop.c */
void stop_begin(struct supervisor *s, uint64_t grace_usec);
void stop_advance(struct supervisor *s); /* takes the next steps of a stop that are possible now */

/* timers.c */
void timers_arm(struct supervisor *s);
void timers_on_expiry(struct loop_source *src, uint32_t events);
