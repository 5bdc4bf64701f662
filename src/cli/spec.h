/*
 * From options to the SPEC and EXECSPEC of the API (docs/API.md), checked here as far as can be
 * without the daemon, so that a typo costs no start of anything.
 */
#pragma once

#include "cli/options.h"
#include "lib/base/json.h"

extern const struct cli_group spec_group;     /* image, network, mounts, labels, … */
extern const struct cli_group lease_group;    /* idle-stop, max-life, rm-after */
extern const struct cli_group limits_group;   /* memory, cpus, … */
extern const struct cli_group place_group;    /* env, workdir, user: of a sandbox or of an exec */
extern const struct cli_group exec_group;     /* timeouts, detach, stats */
extern const struct cli_group terminal_group; /* -i, -t */

/* The SPEC from what was given only; with_place: env, workdir and user belong to the sandbox. */
int spec_from_args(const struct cli_args *a, bool with_place, json_t **ret, struct err *err);

/* Leases that were given, into doc. */
int leases_from_args(const struct cli_args *a, json_t *doc, struct err *err);

/* The EXECSPEC of argv (NULL-terminated). */
int exec_spec_from_args(const struct cli_args *a, char *const *argv, json_t **ret, struct err *err);

/* Rewrites an error that the daemon reports about a field of a spec so that it names the option of
 * that field: "field 'limits.memory' must be …" becomes "--memory must be …". Returns -err->code. */
int spec_name_option(struct err *err);

/* Sets obj[key] to a text, refusing bytes that are not UTF-8, which JSON cannot carry. */
int spec_set_text(json_t *obj, const char *key, const char *value, struct err *err);
