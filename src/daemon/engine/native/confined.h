/*
 * Isolation `confined`: sandboxes without namespaces (docs/decisions/033-confined.md,
 * supervisor/shim/confined.h). The daemon's side: whether it is possible here, the folders, and the
 * parts of the plan that differ.
 *
 * A daemon that may change users gives each sandbox a user id of its own, which its home keeps.
 * One further group lets these users, and nobody else, pass the folders above their homes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

struct engine;
struct native_engine;
struct plan;
struct sandbox_request;
struct sandbox_spec;

/* Finds out whether it is possible (n->no_confined), and with which ids. */
void native_confined_open(struct native_engine *n);
/* What a confined sandbox cannot have; ERR_UNSUPPORTED. */
int native_confined_check(const struct sandbox_spec *spec, struct err *err);
/* Makes its folders in `dir`, the sandbox's own. Fine when they exist. */
int native_confined_make(struct native_engine *n, const struct sandbox_request *req, int dir,
                         struct err *err);

/* Whether a sandbox with namespaces could be a confined one. */
bool native_confined_is_choice(const struct native_engine *n, const struct sandbox_spec *spec);

/* What goes to the shim with the plan; -1: none. Owned by the caller. */
struct native_confined_fds {
    int lease;    /* of a block of ports */
    int listener; /* of the package cache */
};
/* Fills the plan except for names, limits and mounts. */
int native_confined_plan(struct native_engine *n, const struct sandbox_request *req, struct plan *p,
                         struct native_confined_fds *ret, char ***warnings, struct err *err);

/* After the shim has ended: waits until its processes have ended, too. */
int native_confined_await(struct native_engine *n, const char *id, const struct deadline *by,
                          struct err *err);
