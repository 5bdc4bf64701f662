/*
 * The sandbox spec: JSON to struct sandbox_spec and back, with a check of every field, and the
 * configuration hash.
 *
 * A spec document is a patch: an absent (or null) field leaves the spec unchanged. So one function
 * makes a new spec from the defaults and changes an existing one. A limit that a patch names counts
 * as requested (struct sandbox_spec.asked) and must be enforced.
 */
#pragma once

#include "daemon/engine/sandbox-spec.h"
#include "lib/base/buf.h"
#include "lib/base/json.h"

/* Raise it when a change of the hardening must re-create existing sandboxes. */
#define SPEC_HARDENING_VERSION 3
/* The same for sandboxes that may write to a folder of the host: set-id bits. */
#define SPEC_HARDENING_VERSION_HOST 4

enum { SPEC_HASH_LEN = 64 };

/* The built-in defaults. The caller releases them with sandbox_spec_done(). */
void spec_defaults(struct sandbox_spec *ret);

/*
 * Applies `patch` to *spec. Sets *engine (borrowed from the patch) when the patch names one. Mount
 * sources must be inside mount_roots. On failure *spec is unchanged.
 */
int spec_apply(struct sandbox_spec *spec, const char **engine, const json_t *patch,
               char *const *mount_roots, struct err *err);

/* The same for a document with leases only. */
int spec_apply_leases(struct sandbox_spec *spec, const json_t *patch, struct err *err);

/* The whole spec. Only the default isolation is left out, and what a confined sandbox has in place
 * of others: ports, no tmpfs. `engine` may be NULL. New reference. */
json_t *spec_to_json(const struct sandbox_spec *spec, const char *engine);
/* The same into a JSON_PUT_INIT buffer, with or without the environment. */
void spec_put(struct buf *b, const char *key, const struct sandbox_spec *spec, const char *engine,
              bool env);
/* The limits only: "limits":{"memory":…,"cpus":…,…}. */
void spec_put_limits(struct buf *b, const struct sandbox_spec *spec);
/* ["memory",…] from enum limit_bit bits. */
json_t *spec_limit_names(uint32_t bits);
void spec_put_limit_names(struct buf *b, const char *key, uint32_t bits);

/* The stored form: canonical text with the requested limits and the image digest, and back. */
char *spec_to_text(const struct sandbox_spec *spec);
int spec_from_text(const char *text, struct sandbox_spec *ret, struct err *err);

/* SHA-256 in hex over the canonical spec without leases and labels, the engine, the image digest
 * (spec->image_digest) and the hardening version. */
void spec_hash(const struct sandbox_spec *spec, const char *engine, char ret[static 65]);
/* For a spec that was stored with `hash`: older versions hashed the labels too. Sets hashed_labels
 * if that explains the hash, so that such a sandbox is not re-created. */
void spec_match_hash(struct sandbox_spec *spec, const char *engine, const char *hash);

/* Converts an "env" object to K=V strings; also for execs. */
int spec_env_read(const json_t *obj, char ***ret, struct err *err);
/* The same for labels; obj NULL: none. */
int spec_labels_read(const json_t *obj, char ***ret, struct err *err);
int spec_check_path(const char *field, const char *p, struct err *err);

const char *spec_cache_mode_name(enum spec_cache_mode m);
const char *spec_network_name(enum spec_network n);
int spec_network_parse(const char *s, enum spec_network *ret, struct err *err);
const char *spec_isolation_name(enum spec_isolation i);
