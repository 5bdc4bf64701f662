/*
 * What the helper of an exec and the command's process do before execve, with namespaces
 * (exec-child.c) and without (confined-exec.c). Both are forks of the shim with one thread.
 */
#pragma once

#include <sys/types.h>

#include "lib/base/macro.h"
#include "lib/os/user.h"
#include "supervisor/shim/shim.h"

struct exec_entry {
    const struct shim *shim;
    const struct exec_spec *spec;
    const struct handover *handover;
    int status;       /* socket to the shim */
    int in, out, err; /* stdio of the command */
    int master;       /* of its terminal, or -1 */
    int mark;         /* as in struct supervised_exec */
    int listener;     /* socket that takes the listener of the command's filter, or -1 */
    struct user user;
    char **env; /* the array is ours, the strings are not */
};

struct exec_entry exec_child_entry(const struct shim *s, const struct supervised_exec *x,
                                   const struct exec_fds *fds);

/* In the helper. The kernel's OOM killer takes its children before us, and no process with the same
 * user can inspect it; pins it to the sandbox's processors. */
int exec_child_settle(const struct plan *plan, struct err *err);
/* processes: RLIMIT_NPROC; 0: no limit */
int exec_child_set_limits(const struct plan *plan, uint64_t processes, struct err *err);
int exec_child_open_null(int *ret, struct err *err);
int exec_child_enter_workdir(const char *path, struct err *err);
void exec_child_build_env(struct exec_entry *e);
void exec_child_report_started(const struct exec_entry *e, pid_t pid, int pidfd);

/* In the command's process: a session, its stdio; closes all but status and listener. */
int exec_child_arrange_stdio(struct exec_entry *e, struct err *err);
_noreturn_ void exec_child_run(const struct exec_entry *e);

/* Reports the error as that of the start. */
_noreturn_ void exec_child_fail(int status, const struct err *err);
_noreturn_ void exec_child_fail_clone(const struct exec_entry *e, int errnum);
