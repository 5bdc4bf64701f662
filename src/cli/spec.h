/*
 * Turns options into the SPEC and EXECSPEC of the API (docs/API.md). Values are checked here as far
 * as possible, so that a typo does not start the daemon.
 */
#pragma once

#include "cli/options.h"
#include "lib/base/json.h"

extern const struct cli_group spec_group;     /* image, network, mounts, labels, … */
extern const struct cli_group lease_group;    /* idle-stop, max-life, rm-after */
extern const struct cli_group limits_group;   /* memory, cpus, … */
extern const struct cli_group place_group;    /* env, workdir, user; for a sandbox or an exec */
extern const struct cli_group exec_group;     /* timeouts, detach, stats */
extern const struct cli_group terminal_group; /* -i, -t */

/* Makes the SPEC of the given options. with_place: include env, workdir and user. *ret is a new
 * reference. */
int spec_from_args(const struct cli_args *a, bool with_place, json_t **ret, struct err *err);

/* Adds the given leases to doc. */
int leases_from_args(const struct cli_args *a, json_t *doc, struct err *err);

/* Makes the EXECSPEC of the command argv (NULL-terminated). *ret is a new reference. */
int exec_spec_from_args(const struct cli_args *a, char *const *argv, json_t **ret, struct err *err);

/* Rewrites an error that the daemon reports about a field of a spec so that it names the
 * option of that field: "field 'limits.memory' must be …" becomes "--memory must be …".
 * Returns -err->code. */
int spec_name_option(struct err *err);

/* Sets obj[key] to a text. Refuses bytes that are not UTF-8, which JSON cannot hold. */
int spec_set_text(json_t *obj, const char *key, const char *value, struct err *err);
