/*
 * What every supervisor of a running sandbox does, whatever it runs on: one process, one thread,
 * one epoll loop; daemons that come and go (proto/supervisor.h); execs with their journals, acks,
 * timeouts and end records; the order of a stop. The shim (native) and the relay (Docker) embed
 * struct supervisor and struct supervised_exec and fill in struct supervisor_ops for what differs.
 *
 * Sources. A descriptor that the loop watches is a struct loop_source embedded in its owner. The loop
 * takes one event at a time, so a handler may close any source and free any object but the one it
 * was called for; peers and execs that end in the middle of their own handler are marked and freed
 * by the loop after it.
 *
 * Life: supervisor_init(), fill in what stands below "set by the owner", supervisor_open(), bring
 * the sandbox up, supervisor_serve() until all is over (or supervisor_fail()), supervisor_done().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "lib/base/err.h"
#include "lib/base/time.h"
#include "lib/journal/journal.h"
#include "lib/journal/record.h"
#include "proto/handover.h"
#include "proto/supervisor.h"

enum {
    SUPERVISE_ID_MAX = 16,
    SUPERVISE_IO_SIZE = 256 << 10, /* one buffer for messages and output; >= SUP_MSG_MAX */
    SUPERVISE_QUEUE_MAX = 1 << 20, /* bytes that a peer may leave unread before it is cut off */
    SUPERVISE_PEERS_MAX = 16,
    SUPERVISE_EXECS_MAX = 4096,
};

struct supervisor;
struct supervised_exec;

struct loop_source {
    int fd; /* owned; -1: not watched */
    uint32_t events;
    void (*ready)(struct loop_source *s, uint32_t events);
};

/* ---- peers ---- */

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
    bool held; /* the sandbox is not there yet: what is for it waits */
    struct supervisor_packet *first, **last; /* not sent yet */
    size_t queued;
};

/* A peer that follows an exec's output. */
struct attachment {
    struct attachment *next;
    struct supervisor_peer *peer;
    uint64_t told[JOURNAL_STREAMS]; /* by the last OUTPUT */
    uint64_t ack[JOURNAL_STREAMS];
    bool in_flight; /* an OUTPUT is not ACKed yet */
};

/* ---- execs ---- */

struct exec_stream {
    struct loop_source
        src; /* the pipe's read end, or the pty's master; -1 where the owner feeds it */
    struct supervised_exec *exec;
    struct journal_writer journal;
    uint64_t dropped; /* bytes that could not be stored */
    int lost_errno; /* why, or 0: nothing more is kept after it, so that what is kept has no hole */
    bool widened;   /* the pipe was given its large size */
};

enum supervised_exec_state {
    EXEC_STARTING, /* launched; whether it runs is not known yet */
    EXEC_RUNNING,
    EXEC_DRAINING, /* the main process has ended, a pipe is still open */
    EXEC_OVER, /* the record is written; a daemonised child may still hold a pipe or the cgroup */
};

/* What the daemon asked for; freed once the command has started. */
struct exec_spec {
    char **argv, **env;
    char *cwd, *user; /* NULL: the sandbox's */
    uint64_t flags;
    uint16_t rows, cols;
};

struct supervised_exec {
    struct supervised_exec *next;
    struct supervisor *sup;
    char id[SUPERVISE_ID_MAX + 1];
    enum supervised_exec_state state;
    bool freed;
    struct exec_spec spec;
    struct handover handover; /* until the command has it */
    struct loop_source input; /* its stdin, while the handover's input is written to it */
    size_t input_at;

    struct supervisor_peer *starter; /* who waits for STARTED; NULL when it has gone */
    uint64_t seq;

    struct exec_stream streams[JOURNAL_STREAMS];
    bool fed;       /* output still comes by stream_feed() */
    bool awaited;   /* an engine is about to start it: that time is not the command's own */
    bool entrusted; /* to somebody inside, who may have begun it without our knowledge */
    bool tty;
    bool input_whole; /* no daemon has anything of its stdin that it is still to hand over */
    bool input_lost;  /* one had, and has gone with it */
    int pid;
    int dirfd; /* its journals' folder */
    struct attachment *attached;

    uint64_t started_wall, started_mono;
    uint64_t timeout, idle_timeout; /* usec, 0: none */
    uint64_t last_output;
    struct deadline drain_by;
    uint64_t discard_at; /* once over: when its pipes are looked at again, or DEADLINE_NEVER */
    bool killed;         /* we killed it, for: */
    enum end_cause kill_cause;
    bool stopped; /* it was alive when the sandbox was told to stop */
    bool alone;   /* no other exec ran beside it: the sandbox's counters are its own */
    int wait_status;
    struct rusage usage;
};

/* ---- what differs ---- */

/*
 * Functions that answer a peer's message return 0 (RESULT follows), 1 (they answer or have answered
 * by themselves) or an error.
 */
struct supervisor_ops {
    size_t exec_size; /* of the owner's exec, which begins with struct supervised_exec */
    void (*exec_init)(struct supervised_exec *x); /* its own part, zeroed before */
    void (*exec_done)(struct supervised_exec *x); /* releases it, in whatever state */

    /* Begins to start the command. From an event then: exec_started() or exec_fail_start(). */
    int (*launch)(struct supervised_exec *x, struct err *err);
    int (*signal)(struct supervised_exec *x, int sig,
                  struct err *err);          /* RUNNING: to the main process */
    void (*kill)(struct supervised_exec *x); /* all of its processes */
    int (*terminal)(
        struct supervised_exec *x); /* with a tty: a new descriptor to write to it, or -1 */
    int (*resize)(struct supervised_exec *x, uint16_t rows, uint16_t cols, struct err *err);
    int (*stdin_close)(struct supervised_exec *x, struct err *err);
    bool (*has_company)(
        const struct supervised_exec *x); /* processes of it live on after the main one */
    void (*fill)(const struct supervised_exec *x, struct end_record *rec); /* usage and counters */
    void (*over)(
        struct supervised_exec *x); /* the record is written: what only a live exec needs goes */
    void (*readable)(
        struct supervised_exec *x); /* fed execs: readers have caught up; NULL: none is fed */

    int (*freeze)(struct supervisor_peer *p, uint64_t seq, bool on, struct err *err);
    int (*stats)(struct supervisor_peer *p, uint64_t seq, struct err *err);
    int (*dial)(struct supervisor_peer *p, uint64_t seq, uint64_t port, struct err *err);
    int (*copy)(struct supervisor_peer *p, uint64_t seq, const char *path, bool into, int fd,
                struct err *err);                           /* fd: borrowed */
    int (*listener)(struct supervisor *s, struct err *err); /* a new descriptor; NULL: has none */
    void (*forget)(struct supervisor *s,
                   const struct supervisor_peer *p); /* it goes: answer it no more */

    bool (*has_died)(
        const struct supervisor *s);         /* perhaps before its event came; NULL: see gone */
    void (*stopping)(struct supervisor *s);  /* before the commands are told: thaw */
    void (*shut_down)(struct supervisor *s); /* end all that is inside; once. `gone` follows */
    void (*finish)(struct supervisor *s);    /* gone, every exec has its record: clean up */
    uint64_t (*timer_at)(const struct supervisor *s); /* of its own, or DEADLINE_NEVER */
    void (*timer)(struct supervisor *s, uint64_t now);
};

/* ---- the sandbox ---- */

struct supervisor {
    const struct supervisor_ops *ops;
    /* Set by the owner; strings are its own and outlive the supervisor. */
    const char *sandbox_id, *name, *hash;
    uint64_t journal_budget;
    bool ephemeral;
    bool tied; /* ends when nobody is connected any more */
    int pid;   /* of the sandbox's pid 1, for people */
    uint32_t unenforced;
    bool gone; /* nothing runs inside any more */

    enum sup_state state;
    int epoll;
    struct loop_source listener, timer, signals;
    uint64_t timer_at; /* what the timer is set to, or DEADLINE_NEVER */
    int run_dirfd, exec_dirfd;
    struct supervisor_peer *peers;
    struct supervised_exec *execs;
    char *io; /* SUPERVISE_IO_SIZE bytes, mapped while there is work */
    bool shut;
    struct deadline stop_by; /* end of the grace */
    bool for_good;           /* SUP_STOP_FOR_GOOD */
    bool over;               /* the loop ends */
};

/* serve.c */
void supervisor_init(struct supervisor *s, const struct supervisor_ops *ops);
void supervisor_hold_fds(void); /* first thing in main: 0 to 4 are what they should be */
int supervisor_open(struct supervisor *s, const char *run_dir, const char *exec_dir,
                    struct err *err);
void supervisor_fail(struct supervisor *s, const struct err *err); /* FAILED, to who started us */
int supervisor_serve(struct supervisor *s, struct err *err);       /* READY, then the loop */
void execs_drop(struct supervisor *s); /* of a sandbox that did not come up: as if none had come */
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
int peer_add(struct supervisor *s, int fd, struct err *err); /* takes the fd; greets */
/* Before the sandbox is there: takes one message that starts a command. 0: the next is none. */
int peer_early(struct supervisor *s, int fd, struct err *err);
void peer_release(struct supervisor_peer *p, struct sup_writer *news);
/* Takes the fd. Fails by marking the peer dead: its handler cleans up. */
void peer_send(struct supervisor_peer *p, struct sup_writer *w, int fd);
void peer_result(struct supervisor_peer *p, uint64_t seq, const struct err *err);
void peers_broadcast(struct supervisor *s, struct sup_writer *w);
/* Before the end: waits for slow readers, then lets all of them read in peace. */
void peers_finish(struct supervisor *s, uint64_t usec);
/* Whether a daemon has gone that had some of its input, also where that is not news yet. */
void peers_note_input(struct supervised_exec *x);
void peer_hang_up(int fd);
void peer_free(struct supervisor_peer *p);

/* commands.c: one message of a peer that has said HELLO, and the descriptor that came with it
 * (taken; or -1). */
void command_run(struct supervisor_peer *p, struct sup_reader *r, int fd);

/* exec.c */
void exec_start(struct supervisor_peer *p, struct sup_reader *r,
                int fd); /* fd: handover, or -1; borrowed */
struct supervised_exec *exec_find(struct supervisor *s, const char *id);
bool exec_is_live(const struct supervised_exec *x); /* not OVER */
size_t execs_live(const struct supervisor *s);
void exec_free(struct supervised_exec *x);
/* Kills all of the exec's processes; the record will name the cause if that is what ends it. */
void exec_kill(struct supervised_exec *x, enum end_cause cause);
/* The command runs. fd: what to write its stdin to, taken; or -1. */
void exec_started(struct supervised_exec *x, int fd);
void exec_spec_done(struct exec_spec *spec);

/* input.c */
void input_begin(struct supervised_exec *x, int fd); /* takes it: the command's stdin, or -1 */
void input_close(struct supervised_exec *x);

/* streams.c */
int streams_open(struct supervised_exec *x, int out, int err_fd, struct err *err);
void streams_close(struct supervised_exec *x);
bool streams_drained(const struct supervised_exec *x);
void streams_last_words(struct supervised_exec *x); /* before the record of one that is not */
void streams_wake(
    struct supervised_exec *x); /* after ACK, DETACH: read on where readers have caught up */
void streams_notify(struct supervised_exec *x);     /* OUTPUT to those who may have one */
void stream_discard(struct supervised_exec *x);     /* from now on read and forget */
void streams_discard_on(struct supervised_exec *x); /* at discard_at */
/* For owners that get output otherwise than from a pipe: keeps the bytes, and streams_notify() is
 * to follow. False: a reader is a whole budget behind, bring nothing more until ops->readable(). */
bool stream_feed(struct supervised_exec *x, enum journal_stream which, const void *data,
                 size_t len);
int attachment_add(struct supervised_exec *x, struct supervisor_peer *p,
                   const uint64_t ack[JOURNAL_STREAMS]);
struct attachment *attachment_find(struct supervised_exec *x, const struct supervisor_peer *p);
void attachments_remove(struct supervised_exec *x, const struct supervisor_peer *p); /* NULL: all */

/* end.c */
/* The main process has ended with x->wait_status and x->usage: drain, then the record. */
void exec_main_ended(struct supervised_exec *x);
void exec_try_finish(struct supervised_exec *x);
void exec_fail_start(struct supervised_exec *x, const struct err *err);
/* The sandbox goes down and a command may wait for its next start: no new one is begun. */
bool exec_is_late(const struct supervised_exec *x);
void exec_tell_refused(struct supervised_exec *x, const struct err *why);
/* It was killed on its way in, by us: for its time, or on request. */
void exec_killed_in_start(struct supervised_exec *x);
/* How it ended cannot be learnt any more: engine_lost, with the reason. */
void exec_lose(struct supervised_exec *x, const struct err *why);

/* stop.c */
void stop_begin(struct supervisor *s, uint64_t grace_usec);
void stop_advance(struct supervisor *s); /* whatever can be done now towards the end */

/* timers.c */
void timers_arm(struct supervisor *s);
void timers_on_expiry(struct loop_source *src, uint32_t events);
