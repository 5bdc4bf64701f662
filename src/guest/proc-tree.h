/*
 * Finds and kills process trees through /proc, the only way for a program without privileges inside
 * a container. The guest is a child subreaper, so every descendant stays below it and its tree is
 * complete at any moment. Scanning the tree, however, races against processes that fork.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "lib/base/err.h"

/* The process name of pid 1 (guest init). Signals beyond our own tree are sent only below such a
 * pid 1, never on a machine where somebody starts the guest by hand. */
#define PROC_TREE_INIT_NAME "ripcord-init"

/*
 * Stops the caller's descendants until a scan finds none that runs, then sends SIGKILL to all. The
 * caller reaps them and repeats this while it has children. False if /proc cannot be read.
 */
bool proc_tree_kill_own(void);

/* Sends SIGKILL to every process at once, which no fork can escape. Only if pid 1 is ours. */
void proc_tree_kill_everybody(void);

/* Kills every process below pid 1, and the given guests with their trees, until none is left.
 * *ret: the number of processes. ERR_TIMEOUT if some survive. */
int proc_tree_kill_lost(const pid_t *guests, size_t n, size_t *ret, struct err *err);
