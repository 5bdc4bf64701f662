/*
 * The structures of the relay: the supervisor (supervisor/common/supervisor.h) of one running
 * Docker or Podman sandbox. Only the files of this folder include this header.
 *
 * Threads. Only the loop's thread touches these objects. Calls of the Engine API block, so each
 * call runs as a struct relay_work on a short-lived thread. That thread sees only its own work and
 * data that never changes (the client, the plan). Its result returns to the loop through a pipe.
 * Threads are simpler than state machines here: the client is straight-line code with deadlines, an
 * exec costs the engine about 50 ms anyway, and a call that hangs delays only itself.
 *
 * All work inside the container goes through a guest (proto/guest.h), on a struct guest_stream: the
 * hijacked stream of one engine exec.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dockerapi/demux.h"
#include "dockerapi/docker.h"
#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/macro.h"
#include "lib/base/time.h"
#include "proto/guest-mux.h"
#include "proto/guest.h"
#include "proto/relay-plan.h"
#include "supervisor/common/supervisor.h"

enum {
    RELAY_JOBS_MAX = 64,   /* copies and dials */
    RELAY_TEXT_MAX = 4096, /* of an engine's error text */
    RELAY_USER_MAX = 64,
};

#define RELAY_CALL_TIMEOUT (30 * USEC_PER_SEC)  /* any one call of the engine */
#define RELAY_GREET_TIMEOUT (30 * USEC_PER_SEC) /* from the stream to the guest's HELLO */
#define RELAY_KILL_TIMEOUT (5 * USEC_PER_SEC)   /* from KILL to EXIT */
#define RELAY_END_TIMEOUT (5 * USEC_PER_SEC)    /* from the container's end to a stream's */

struct relay;

/* ---- work.c ---- */

/* A limited number of each kind runs at once, the others wait (work.c). So a request for the whole
 * container never waits behind a thousand execs. */
enum work_kind { WORK_CONTROL, WORK_OPEN, WORK_LOSS, WORK_KINDS };

/* Begins the structure of each kind of work. */
struct relay_work {
    struct relay_work *next;
    struct relay *relay;
    enum work_kind kind;
    void (*run)(struct relay_work *w);  /* on a thread */
    void (*done)(struct relay_work *w); /* on the loop; frees it */
    struct err err;                     /* of run() */
    bool dropped; /* its result is not needed any more: if it still waits, it is not started */
    enum docker_reason reason;
};

/* Takes the work; done() is called later from an event, never during this call. */
void work_submit(struct relay *r, struct relay_work *w);
/* On a thread: done() will be called on the loop. */
void work_post(struct relay_work *w);
int works_open(struct relay *r, struct err *err);

/* ---- guest-stream.c: the stream of one guest ---- */

struct guest_stream;

struct guest_stream_ops {
    void (*greeted)(struct guest_stream *l); /* HELLO has arrived */
    /* Each frame after HELLO. 1: go on; 0: no more frames for now (guest_stream_resume()); an
     * error: the guest breaks the protocol. The frame is invalid once the stream is closed. */
    int (*frame)(struct guest_stream *l, const struct guest_frame *f, struct err *err);
    void (*drained)(struct guest_stream *l); /* `out` is sent; or NULL */
    /* Called once, at the end. err: the stream could not be opened, the guest broke the protocol,
     * or the first bytes were not HELLO (but the engine's error text). NULL: the stream just ended.
     */
    void (*ended)(struct guest_stream *l, struct err *err);
    /* Called last in each event: the owner may free the stream. Or NULL. */
    void (*settle)(struct guest_stream *l);
};

enum guest_stream_state {
    GUEST_STREAM_CLOSED,
    GUEST_STREAM_OPENING,
    GUEST_STREAM_GREETING,
    GUEST_STREAM_UP
};

struct guest_stream {
    struct guest_stream *next; /* of relay->guest_streams while not CLOSED */
    struct relay *relay;
    const struct guest_stream_ops *ops;
    enum guest_stream_state state;
    struct relay_work *opening;
    char *exec_id; /* the engine's; NULL before the exec exists */
    struct loop_source src;
    struct docker_demux demux;
    struct buf in;   /* from the guest, not yet a whole frame */
    struct buf out;  /* for the guest, not yet sent */
    struct buf text; /* the engine's error text in place of HELLO */
    bool begun;      /* the first byte of stdout has arrived */
    bool garbled;    /* and it is not the first byte of a guest's frame */
    bool held;       /* the owner wants no more frames for now */
    bool deaf;       /* writing has failed; the rest is still read */
    uint32_t guest_pid;
    uint16_t guest_minor; /* version of its protocol */
    uint64_t greet_by;
};

void guest_stream_init(struct guest_stream *l, struct relay *r, const struct guest_stream_ops *ops);
/* Starts `guest ARGS…` in the container as that user. */
void guest_stream_open(struct guest_stream *l, const char *user, const char *const *args);
/* The same before the loop runs: returns when the engine has answered; ended() may have been
 * called. */
void guest_stream_open_now(struct guest_stream *l, const char *user, const char *const *args);
/* The guest, if it runs, sees the end of its stdin. No ops are called any more. */
void guest_stream_close(struct guest_stream *l);
void guest_stream_done(struct guest_stream *l); /* closes, and frees the exec's id */
void guest_stream_resume(struct guest_stream *l);
/* Put frames into l->out, then call this. */
void guest_stream_flush(struct guest_stream *l);
/* Takes bytes of the engine's stream, cut at any byte; at most GUEST_STREAM_CHUNK. Public for the
 * fuzzer. */
enum { GUEST_STREAM_CHUNK = 64 << 10 };
void guest_stream_take(struct guest_stream *l, const char *data, size_t len);
uint64_t guest_streams_next(const struct relay *r); /* earliest greet_by */
void guest_streams_expire(struct relay *r, uint64_t now);

/* ---- calls.c: straight-line, on threads ---- */

struct opened {
    char *exec_id;
    struct docker_hijacked stream;
};

int call_open(const struct relay *r, const char *user, const char *const *args,
              const struct deadline *by, struct opened *ret, enum docker_reason *ret_reason,
              struct err *err);

enum container_life { LIFE_RUNNING, LIFE_PAUSED, LIFE_GONE };
struct relay_container {
    enum container_life life;
    int pid;  /* of its pid 1, on the engine's machine */
    bool oom; /* it is gone because the OOM killer ended its own kernel (plan.own_kernel) */
};
int call_inspect(const struct relay *r, const struct deadline *by, struct relay_container *ret,
                 struct err *err);
/* Waits until the engine reports the end of the exec. -ERR_NOT_FOUND: unknown exec. */
int call_exec_status(const struct relay *r, const char *exec_id, const struct deadline *by,
                     int *ret_status, struct err *err);
/* Kills the user's processes that have lost their guest, and the given guest with its tree. */
int call_reap(const struct relay *r, const char *user, uint32_t guest_pid,
              const struct deadline *by, struct err *err);

/* ---- exec.c ---- */

struct relay_exec {
    struct supervised_exec exec; /* first: supervisor/common allocates and frees it */
    struct guest_stream stream;
    char user[RELAY_USER_MAX + 1];
    struct loop_source input; /* the daemon's bytes for stdin */
    int input_end;    /* the other end of input; -1 after it was handed over, except with a tty */
    uint32_t credit;  /* bytes of STDIN that the guest can take */
    uint64_t kill_by; /* KILL must be answered until then, or DEADLINE_NEVER */
    uint64_t end_by;  /* the container has gone: the stream must end until then */
    struct relay_work *loss; /* finding out how it ended */
    struct guest_exit exit;
    bool exit_known; /* `exit` holds the guest's report */
};

void relay_exec_init(struct supervised_exec *base);
void relay_exec_done(struct supervised_exec *base);
int relay_exec_launch(struct supervised_exec *base, struct err *err);
void relay_exec_attach(struct relay_exec *x,
                       struct relay *r); /* everything except guest_stream_open() */
int relay_exec_signal(struct supervised_exec *base, int sig, struct err *err);
void relay_exec_kill(struct supervised_exec *base);
int relay_exec_terminal(struct supervised_exec *base);
int relay_exec_resize(struct supervised_exec *base, uint16_t rows, uint16_t cols, struct err *err);
int relay_exec_stdin_close(struct supervised_exec *base, struct err *err);
void relay_exec_readable(struct supervised_exec *base);
bool relay_exec_has_survivors(const struct supervised_exec *base);
void relay_exec_fill(const struct supervised_exec *base, struct end_record *rec);
void relay_exec_over(struct supervised_exec *base);
uint64_t relay_execs_next(const struct relay *r);
void relay_execs_expire(struct relay *r, uint64_t now);
void relay_execs_thawed(struct relay *r); /* sends KILL to execs that were killed while frozen */
void relay_execs_gone(struct relay *r);   /* the container is gone: their streams must end soon */
void relay_execs_lose(struct relay *r, const struct err *why);

/* ---- loss.c: a command whose guest is lost ---- */

/* Kills the command's processes, asks the engine how the command ended, and ends the exec. `why` is
 * copied: the guest broke the protocol; NULL: its stream ended, or it does not answer. */
void loss_begin(struct relay_exec *x, const struct err *why);
void loss_forget(struct relay_exec *x);
/* Tries again to kill processes that could not be killed: from time to time, and when the engine is
 * back or the container is thawed. */
void loss_retry(struct relay *r);

/* ---- job.c: dial and copy ---- */

struct relay_job;
int job_dial(struct supervisor_peer *p, uint64_t seq, uint64_t port, struct err *err);
int job_copy(struct supervisor_peer *p, uint64_t seq, const struct sup_copy *copy, int fd,
             struct err *err);
int job_files(struct supervisor_peer *p, uint64_t seq, const char *user, int fd, struct err *err);
void jobs_forget(struct supervisor *sup, const struct supervisor_peer *p);
void jobs_end(struct relay *r);

/* ---- control.c: the container as a whole ---- */

int control_freeze(struct supervisor_peer *p, uint64_t seq, bool on, struct err *err);
int control_stats(struct supervisor_peer *p, uint64_t seq, struct err *err);
void controls_forget(struct relay *r, const struct supervisor_peer *p);
void control_thaw(struct supervisor *sup);
void control_stop(struct supervisor *sup);
void control_retry(struct relay *r); /* at stop_at */

/* ---- kernel-memory.c: memory that the engine's limit does not contain ---- */

void relay_memory_watch(struct relay *r); /* from now on, as long as processes run */
void relay_memory_check(struct relay *r, uint64_t now);

/* ---- watch.c: a thread that sits in the engine's `wait` ---- */

int watch_start(struct relay *r, struct err *err);

/* ---- packages-tunnel.c: to the package cache through the guest ---- */

/*
 * If the relay cannot enter the container's network (packages-listener.h), a guest listens inside.
 * The relay forwards each connection to a listening socket of its own, on which the package cache
 * accepts. That socket serves only this sandbox. No byte from the guest decides where a connection
 * leads.
 */
struct packages_tunnel {
    struct guest_stream stream;
    struct guest_mux mux;
    bool listening;    /* the guest has confirmed that it listens */
    bool kept;         /* it has listened once: a stream that breaks is opened again */
    struct err err;    /* of the last try */
    unsigned pause_ms; /* before the next try */
    uint64_t since;    /* when it began to listen */
    uint64_t at;       /* time of the next try, deadline of a running try, or DEADLINE_NEVER */
};

void packages_tunnel_init(struct relay *r);
/* Blocks until the guest listens. *ret_fd: the socket on which its connections arrive. */
int packages_tunnel_open(struct relay *r, int *ret_fd, struct err *err);
void packages_tunnel_end(struct relay *r);
uint64_t packages_tunnel_next(const struct relay *r);
void packages_tunnel_expire(struct relay *r, uint64_t now);

/* ---- the sandbox ---- */

struct relay {
    struct supervisor sup;
    struct relay_plan plan;
    struct docker *docker;

    struct loop_source results; /* pointers to finished works */
    int results_end;
    struct relay_work *waiting, **waiting_last;
    unsigned busy[WORK_KINDS]; /* on threads */

    int packages_listener; /* of packages-listener.h or the tunnel; or -1, see packages_err */
    struct err packages_err;
    struct packages_tunnel packages_tunnel;

    struct guest_stream *guest_streams;
    struct relay_job *jobs;
    struct relay_control *controls;
    struct orphan *orphans;   /* guests that could not be reaped yet */
    uint64_t orphans_at;      /* the next try, or DEADLINE_NEVER */
    bool here;                /* its processes are on this machine and use this kernel's network */
    bool memory_over;         /* it was over its limit at the last check */
    uint64_t memory_check_at; /* see kernel-memory.c; or DEADLINE_NEVER */
    bool oom;                 /* as in struct relay_container */
    bool dead; /* the engine reports that the container does not run; its event will follow */
    unsigned stop_tries;
    uint64_t stop_at; /* next try to stop the container, or DEADLINE_NEVER */
};

/* main.c: no process runs in the container any more. May be called twice. */
void relay_gone(struct relay *r);

static inline struct relay *relay_of(struct supervisor *sup)
{
    return container_of(sup, struct relay, sup);
}

static inline struct relay_exec *relay_exec_of(struct supervised_exec *x)
{
    return container_of(x, struct relay_exec, exec);
}
