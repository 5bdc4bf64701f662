/*
 * The structures of the shim: the supervisor (supervisor/common/supervisor.h) of one native
 * sandbox. Only the files of this folder include this header.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/macro.h"
#include "lib/base/time.h"
#include "lib/os/cgroup.h"
#include "proto/plan.h"
#include "proto/supervisor.h"
#include "supervisor/common/supervisor.h"

enum { SHIM_NAMESPACES = 6 }; /* kinds in enter.c */

struct confined_sandbox;
struct exec_reaper;

struct shim_exec {
    struct supervised_exec exec; /* first: supervisor/common allocates and frees it */
    int stdin_fd;                /* write end, until the daemon gets it; or -1 */
    struct err start_err;
    struct loop_source status; /* from helper and child, until execve */
    struct loop_source helper; /* pidfd */
    struct loop_source main;   /* pidfd */
    struct cgroup_group group;
    int mark; /* namespace of all its processes (exec-members.h), or -1 */
    struct cgroup_pids pids_before;
    uint64_t uncharged; /* memory outside of its cgroup for which it was killed (kernel-memory.c) */
    struct exec_reaper *reaper; /* confined sandboxes: reaper.h */
    bool survived;              /* confined: the main process ended before others */
};

struct shim {
    struct supervisor sup;
    struct plan plan;
    struct loop_source init; /* pidfd of pid 1 */
    uint64_t strays_at;      /* while pid 1 does not end: when unknown children are reaped next */
    int init_sock;
    int init_pid;
    int ready_pipe;                  /* see start.c; or -1 */
    bool by_descriptor;              /* namespaces are joined by descriptor: enter.h */
    bool masked_proc;                /* see own-proc.h */
    int namespaces[SHIM_NAMESPACES]; /* of pid 1 (enter.h), or -1 */
    uint64_t memory_shown;    /* MemTotal inside, bytes; 0: /proc/meminfo is the machine's own */
    int meminfo_fd;           /* the file that stands in its place, or -1 */
    uint64_t refresh_at;      /* of that file, while an exec runs */
    uint64_t memory_check_at; /* see kernel-memory.c; or DEADLINE_NEVER */
    int listener_fd;          /* with network `packages`: on the package cache's port; or -1 */
    int disk_with_old_root;   /* the disk, if the root of another spec is kept there; or -1 */
    struct cgroup cgroup;
    struct cgroup_group init_group;
    struct shim_job *jobs;
    struct confined_sandbox *confined; /* NULL: the sandbox has namespaces */
};

static inline struct shim *shim_of(struct supervisor *sup)
{
    return container_of(sup, struct shim, sup);
}

static inline struct shim_exec *shim_exec_of(struct supervised_exec *x)
{
    return container_of(x, struct shim_exec, exec);
}

static inline struct shim *shim_of_exec(struct shim_exec *x)
{
    return shim_of(x->exec.sup);
}

/* start.c: starts the sandbox. On failure nothing is left. */
int sandbox_start(struct shim *s, struct err *err);
/* start.c: makes the sandbox's cgroup again, with its limits. On v2 it is empty while no command
 * runs, and systemd removes empty cgroups of a unit that it stops or starts again. */
int shim_restore_cgroups(struct shim *s, struct err *err);
/* start.c: removes the root of another spec that the disk still has. A failure costs only space on
 * that disk, until the next start. */
void shim_drop_old_root(struct supervisor *sup);
/* confined.c: the same without namespaces. */
int confined_start(struct shim *s, struct err *err);

/* exec.c: see struct supervisor_ops. */
#define EXEC_GROUP_PREFIX "x-" /* then the exec's id */
void shim_exec_init(struct supervised_exec *base);
void shim_exec_done(struct supervised_exec *base);
int shim_exec_launch(struct supervised_exec *base, struct err *err);
int shim_exec_signal(struct supervised_exec *base, int sig, struct err *err);
void shim_exec_kill(struct supervised_exec *base);
int shim_exec_terminal(struct supervised_exec *base);
int shim_exec_resize(struct supervised_exec *base, uint16_t rows, uint16_t cols, struct err *err);
int shim_exec_stdin_close(struct supervised_exec *base, struct err *err);
bool shim_exec_has_survivors(const struct supervised_exec *base);
void shim_exec_fill(const struct supervised_exec *base, struct end_record *rec);
void shim_exec_over(struct supervised_exec *base);

/* exec-child.c: the helper that enters the sandbox. Never returns. */
enum { EXEC_STARTED_FDS = 3 }; /* maximum number of descriptors in its STARTED */
struct exec_fds {
    int status;       /* socket to the shim */
    int control;      /* confined: the reaper's socket to the shim; else -1 */
    int in, out, err; /* the command's stdio; -1 with a tty */
    const struct cgroup *cgroup;
    const struct cgroup_group *group;
};
_noreturn_ void exec_helper(const struct shim *s, const struct supervised_exec *x,
                            const struct exec_fds *fds);

/* stop.c */
void shim_stopping(struct supervisor *sup);
void shim_shut_down(struct supervisor *sup);
uint64_t shim_timer_at(const struct supervisor *sup);
void shim_timer(struct supervisor *sup, uint64_t now);
void shim_clean_up(struct supervisor *sup);
void stop_on_init(struct loop_source *src, uint32_t events);
void stop_if_init_dies(struct shim *s); /* before the cause of a command's death is decided */

/* job.c: work inside that is not a command. RESULT answers when it is done. */
int job_dial(struct supervisor_peer *p, uint64_t seq, uint64_t port, struct err *err);
int job_copy(struct supervisor_peer *p, uint64_t seq, const struct sup_copy *copy, int fd,
             struct err *err);
int job_files(struct supervisor_peer *p, uint64_t seq, const char *user, int fd, struct err *err);
void jobs_forget(struct supervisor *sup,
                 const struct supervisor_peer *p); /* its jobs end unheard */
void jobs_end(struct shim *s);

/* network.c: makes the veth pair of network `open`; does nothing for other modes. */
int network_start(const struct shim *s, struct err *err);

/* kernel-memory.c: kills the commands of a sandbox that holds much memory outside of its limit. */
void kernel_memory_watch(struct shim *s); /* a process is about to start inside */
uint64_t kernel_memory_check_at(const struct supervisor *sup); /* when next, or DEADLINE_NEVER */
void kernel_memory_check(struct supervisor *sup, uint64_t now);

/* proc-view-update.c: refreshes /proc/meminfo inside. */
#define PROC_VIEW_INTERVAL USEC_PER_SEC
uint64_t proc_view_refresh_at(const struct supervisor *sup); /* when next, or DEADLINE_NEVER */
void proc_view_refresh(struct supervisor *sup, uint64_t now);
