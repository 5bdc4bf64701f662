/*
 * A sandbox without namespaces (docs/decisions/033-confined.md): its folders, its Landlock rules,
 * its beginning and end. confined-exec.h has the commands.
 *
 * Every process of the sandbox descends from the shim, which is a subreaper: none can leave. The
 * sandbox is over when the shim has no child left.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct plan;
struct shim;
struct supervisor;
struct user;

struct confined_sandbox {
    int rules;       /* Landlock ruleset of every command and copy */
    int alive;       /* locked while the shim or a reaper lives: the next daemon waits for it */
    char *home;      /* its path */
    char **writable; /* real paths of the folders that it may write to */
    struct exec_reaper *reapers;
    uint64_t children_at; /* while it ends: when children are reaped next */
};

void confined_free(struct confined_sandbox *c); /* NULL is fine */

/* The path that the user means: /home/agent stands for the sandbox's own folder. New. */
char *confined_path(const struct shim *s, const char *path);
/* The user of commands and copies: there is one. who NULL: the sandbox's. */
int confined_user(const struct shim *s, const char *who, struct user *ret, struct err *err);
/* In a helper: becomes that user and gives up every privilege, for good. */
int confined_become(const struct plan *plan, struct err *err);
/* In a helper: enters the Landlock domain of a command. */
int confined_enter(const struct shim *s, struct err *err);

/* The end (stop.c calls them). */
void confined_shut_down(struct shim *s);
uint64_t confined_timer_at(const struct shim *s); /* or DEADLINE_NEVER */
void confined_timer(struct shim *s, uint64_t now);
