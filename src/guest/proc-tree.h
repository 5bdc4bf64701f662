/*
 * Processes by kinship, from /proc: the one handle on them that a program without privileges has
 * inside a container. Every descendant of the guest stays below it (it is a child subreaper), so
 * its tree is complete at any instant; only the way there is a race against those that fork.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "lib/base/err.h"

/* pid 1 calls itself so (guest init). What could reach beyond our own tree is done only below it:
 * never on a machine where somebody starts the guest by hand. */
#define PROC_TREE_INIT_NAME "ripcord-init"

/*
 * One look for the caller's descendants: those that run are stopped until a look finds none, then
 * all get SIGKILL. The caller waits for them and repeats while it has children. False when /proc
 * cannot be read.
 */
bool proc_tree_kill_own(void);

/* SIGKILL to every process at once, which nothing can outrun; only where pid 1 is ours. */
void proc_tree_kill_everybody(void);

/* Everything below pid 1, and the guests given with all that is below them, until nothing of it is
 * left. *ret: how many were met. ERR_TIMEOUT when some do not go. */
int proc_tree_kill_lost(const pid_t *guests, size_t n, size_t *ret, struct err *err);
