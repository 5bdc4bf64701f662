/*
 * Commands of a confined sandbox. The shim forks a helper as for any exec. The helper gives up its
 * privileges, forks the reaper (reaper.h), and goes on as the broker (broker.h). The reaper forks
 * the command's process.
 */
#pragma once

#include "supervisor/shim/shim.h"

struct exec_entry;

_noreturn_ void confined_exec_helper(const struct shim *s, const struct supervised_exec *x,
                                     const struct exec_fds *fds);
/* The command's process: enters its Landlock domain, installs its filters, runs it. */
_noreturn_ void confined_exec_run(struct exec_entry *e);
