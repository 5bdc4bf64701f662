/*
 * The sandbox spec: JSON to struct sandbox_spec and back, every field checked, and the config hash.
 *
 * A spec document is a patch: a field that is absent (or null) leaves the spec as it is, so the
 * same function makes a new spec from the defaults and changes an existing one. Limits named by a
 * patch count as asked for (struct sandbox_spec.asked).
 */
#pragma once

#include "daemon/engine/sandbox-spec.h"
#include "lib/base/json.h"

/* Raise it when hardening changes in a way that old sandboxes must not keep. */
#define SPEC_HARDENING_VERSION 3

enum { SPEC_HASH_LEN = 64 };

/* The built-in defaults (DESIGN 5). The caller releases it with sandbox_spec_done(). */
void spec_defaults(struct sandbox_spec *ret);

/*
 * Applies `patch` to *spec. *engine (borrowed from the patch) is set when the patch names one.
 * mount_roots: folders below which mount sources may lie. On failure *spec is as it was.
 */
int spec_apply(struct sandbox_spec *spec, const char **engine, const json_t *patch,
               char *const *mount_roots, struct err *err);

/* The same of a document that holds nothing but leases. */
int spec_apply_leases(struct sandbox_spec *spec, const json_t *patch, struct err *err);

/* The whole spec, every field present but the usual isolation; `engine` may be NULL. New reference.
 */
json_t *spec_to_json(const struct sandbox_spec *spec, const char *engine);
/* {"memory":…,"cpus":…,…} alone. */
json_t *spec_limits_to_json(const struct sandbox_spec *spec);
/* ["memory",…] from enum limit_bit bits. */
json_t *spec_limit_names(uint32_t bits);

/* What is stored: canonical text with the asked-for bits, and back. */
char *spec_to_text(const struct sandbox_spec *spec);
int spec_from_text(const char *text, struct sandbox_spec *ret, struct err *err);

/* SHA-256 over canonical spec without its leases, engine, image digest (spec->image_digest) and
 * hardening version, in hex. */
void spec_hash(const struct sandbox_spec *spec, const char *engine, char ret[static 65]);

/* An "env" object to K=V strings; also used for execs. */
int spec_env_read(const json_t *obj, char ***ret, struct err *err);
int spec_check_path(const char *field, const char *p, struct err *err);

const char *spec_cache_mode_name(enum spec_cache_mode m);
const char *spec_network_name(enum spec_network n);
int spec_network_parse(const char *s, enum spec_network *ret, struct err *err);
const char *spec_isolation_name(enum spec_isolation i);
