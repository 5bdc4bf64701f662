/*
 * The reaper of a confined command: parent of the command, and a subreaper in a Landlock domain of
 * its own, outside of the command's. All processes of the exec are its descendants for ever, and
 * none of them can signal or inspect it. It starts the command, reports its end, and kills what is
 * left when the shim says so or has gone. When it ends, no process of the exec is left.
 */
#pragma once

#include "supervisor/shim/shim.h"

struct exec_entry;

/* The process. control: its socket to the shim. */
_noreturn_ void reaper_main(struct exec_entry *e, int control);

/* In the shim: the processes behind one exec. Lives until the reaper has ended, which may be long
 * after the exec. */
struct exec_reaper {
    struct exec_reaper *next;
    struct shim *shim;
    struct shim_exec *exec;     /* NULL once that is freed */
    struct loop_source control; /* the reaper's socket */
    struct loop_source broker;  /* pidfd of our child */
    bool reported;              /* the end of the command's process */
};
/* Forks the helper. `far`: the reaper's end of `control`; both are taken on success. */
int reaper_start(struct shim_exec *x, const struct exec_fds *fds, int control, struct err *err);
/* All processes of the exec. */
void reaper_kill(struct shim_exec *x);
void reapers_kill(struct shim *s);
/* Whether a reaper still has to kill and to reap. */
bool reapers_live(const struct shim *s);
/* The exec is freed. Kills its processes unless its main one has been reported. */
void reaper_detach(struct shim_exec *x);
void reapers_free(struct shim *s);
