/*
 * The shim's own structures: one process, one thread, one epoll loop for one sandbox. Everything
 * hangs off struct shim. Only the files of this folder include this header.
 *
 * Sources. A descriptor that the loop watches is a struct source embedded in its owner. The loop
 * takes one event at a time, so a handler may close any source and free any object but the one it
 * was called for; peers and execs that end in the middle of their own handler are marked and freed
 * by shim_sweep() after it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "base/err.h"
#include "base/time.h"
#include "journal/journal.h"
#include "journal/record.h"
#include "os/cgroup.h"
#include "shim/plan.h"
#include "shim/proto.h"

enum {
    SHIM_ID_MAX = 16,
    SHIM_IO_SIZE = 256 << 10, /* one buffer for messages and output; >= SHIM_MSG_MAX */
    SHIM_QUEUE_MAX = 1 << 20, /* bytes that a peer may leave unread before it is cut off */
    SHIM_PEERS_MAX = 16,
    SHIM_EXECS_MAX = 4096,
    SHIM_NAMESPACES = 6, /* kinds in enter.c */
};

struct source {
    int fd; /* owned; -1: not watched */
    uint32_t events;
    void (*ready)(struct source *s, uint32_t events);
};

/* ---- peers ---- */

struct packet {
    struct packet *next;
    int fd; /* owned, or -1 */
    size_t len;
    char data[];
};

struct peer {
    struct peer *next;
    struct shim *shim;
    struct source src;
    bool greeted, dead;
    struct packet *first, **last; /* not sent yet */
    size_t queued;
};

/* A peer that follows an exec's output. */
struct attachment {
    struct attachment *next;
    struct peer *peer;
    uint64_t told[JOURNAL_STREAMS]; /* by the last OUTPUT */
    uint64_t ack[JOURNAL_STREAMS];
    bool in_flight; /* an OUTPUT is not ACKed yet */
};

/* ---- execs ---- */

struct stream {
    struct source src; /* the pipe's read end, or the pty's master */
    struct exec *exec;
    struct journal_writer journal;
    uint64_t dropped; /* bytes that found no room on the disk */
    bool full;        /* the disk was: nothing more is kept, so that what is kept has no hole */
    bool widened;     /* the pipe was given its large size */
};

enum exec_state {
    EXEC_STARTING, /* the helper works */
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

struct exec {
    struct exec *next;
    struct shim *shim;
    char id[SHIM_ID_MAX + 1];
    enum exec_state state;
    bool freed;
    struct exec_spec spec;

    struct peer *starter; /* who waits for STARTED; NULL when it has gone */
    uint64_t seq;
    int stdin_fd; /* write end, until handed over; -1 */
    struct err start_err;

    struct source status; /* from helper and child, until execve */
    struct source helper; /* pidfd */
    struct source main;   /* pidfd */
    struct stream streams[JOURNAL_STREAMS];
    bool tty;
    int pid;
    int dirfd; /* its journals' folder */
    struct cgroup_group group;
    int mark; /* namespace that all its processes are in (kin.h), or -1 */
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
    uint64_t pids_denied_before;
    int wait_status;
    struct rusage usage;
};

/* ---- the sandbox ---- */

struct shim {
    struct plan plan;
    enum shim_state state;
    int epoll;
    struct source listener, timer, init, signals;
    uint64_t timer_at; /* what the timer is set to, or DEADLINE_NEVER */
    int run_dirfd, exec_dirfd;
    int init_sock;
    int init_pid;
    bool init_gone;
    int namespaces[SHIM_NAMESPACES]; /* of pid 1 (enter.h), or -1 */
    uint64_t memory_told; /* MemTotal inside, bytes; 0: /proc/meminfo is the machine's own */
    int meminfo_fd;       /* the file that stands in its place, or -1 */
    uint64_t refresh_at;  /* of that file, while an exec runs */
    struct cgroup cgroup;
    struct cgroup_group init_group;
    uint32_t unenforced;
    struct peer *peers;
    struct exec *execs;
    struct job *jobs;
    char *io; /* SHIM_IO_SIZE bytes, mapped while there is work */
    bool kill_sent;
    struct deadline stop_by; /* end of the grace */
    bool over;               /* the loop ends */
};

/* loop.c */
int source_add(struct shim *s, struct source *src, int fd, uint32_t events,
               void (*ready)(struct source *, uint32_t), struct err *err);
void source_set(struct shim *s, struct source *src, uint32_t events);
void source_close(struct shim *s, struct source *src);
int loop_run(struct shim *s, struct err *err);
char *shim_io(struct shim *s); /* the shared buffer; valid until the next handler */

/* start.c: brings the sandbox up, or leaves nothing behind. */
int sandbox_start(struct shim *s, struct err *err);

/* peers.c */
int peers_listen(struct shim *s, struct err *err);
int peer_add(struct shim *s, int fd, struct err *err); /* takes the fd; greets */
/* Takes the fd. Fails by marking the peer dead: its handler cleans up. */
void peer_send(struct peer *p, struct shim_writer *w, int fd);
void peer_result(struct peer *p, uint64_t seq, const struct err *err);
void peers_broadcast(struct shim *s, struct shim_writer *w);
/* Before the end: waits for slow readers, then lets all of them read in peace. */
void peers_finish(struct shim *s, uint64_t usec);
void peer_hang_up(int fd);
void peer_free(struct peer *p);

/* commands.c: one message of a peer that has said HELLO, and the descriptor that came with it
 * (taken; or -1). */
void command_run(struct peer *p, struct shim_reader *r, int fd);

/* exec.c */
void exec_start(struct peer *p, struct shim_reader *r);
struct exec *exec_find(struct shim *s, const char *id);
bool exec_is_live(const struct exec *x); /* not OVER */
size_t execs_live(const struct shim *s);
void exec_free(struct exec *x);
/* Kills all of the exec's processes; the record will name the cause if that is what ends it. */
void exec_kill(struct exec *x, enum end_cause cause);
void exec_spec_done(struct exec_spec *spec);

/* exec-child.c: the helper that enters the sandbox. Never returns. */
enum { EXEC_STARTED_FDS = 3 }; /* at most, with its STARTED */
struct exec_fds {
    int status;       /* socket to the shim */
    int in, out, err; /* the command's stdio; -1 with a tty */
    const struct cgroup *cgroup;
    const struct cgroup_group *group;
};
_noreturn_ void exec_helper(const struct shim *s, const struct exec_spec *spec,
                            const struct exec_fds *fds);

/* streams.c */
int streams_open(struct exec *x, int out, int err_fd, struct err *err);
void streams_close(struct exec *x);
bool streams_drained(const struct exec *x);
void streams_wake(struct exec *x);   /* after ACK, DETACH: read on where readers have caught up */
void streams_notify(struct exec *x); /* OUTPUT to those who may have one */
void stream_discard(struct exec *x); /* from now on read and forget */
void streams_discard_on(struct exec *x); /* at discard_at */
int attachment_add(struct exec *x, struct peer *p, const uint64_t ack[JOURNAL_STREAMS]);
struct attachment *attachment_find(struct exec *x, const struct peer *p);
void attachments_remove(struct exec *x, const struct peer *p); /* NULL: all */

/* end.c */
void exec_on_main(struct source *src, uint32_t events);
void exec_try_finish(struct exec *x);
void exec_fail_start(struct exec *x, const struct err *err);

/* stop.c */
void stop_begin(struct shim *s, uint64_t grace_usec);
void stop_advance(struct shim *s); /* whatever can be done now towards the end */
void stop_on_init(struct source *src, uint32_t events);
void stop_if_init_dies(struct shim *s); /* before a death is judged */

/* job.c: work inside that is no command. Answered with RESULT when it is done. */
int job_dial(struct peer *p, uint64_t seq, uint64_t port, struct err *err);
int job_copy(struct peer *p, uint64_t seq, const char *path, bool into, int fd, struct err *err);
void jobs_forget(struct shim *s, const struct peer *p); /* the peer goes, its jobs end unheard */
void jobs_end(struct shim *s);

/* network.c: the veth pair of network `open`; nothing for other modes. */
int network_start(const struct shim *s, struct err *err);

/* facts.c: what /proc/meminfo inside says is brought up to date. */
#define FACTS_INTERVAL USEC_PER_SEC
uint64_t facts_refresh_at(const struct shim *s); /* when next, or DEADLINE_NEVER */
void facts_refresh(struct shim *s, uint64_t now);

/* timers.c */
void timers_arm(struct shim *s);
void timers_on_expiry(struct source *src, uint32_t events);
