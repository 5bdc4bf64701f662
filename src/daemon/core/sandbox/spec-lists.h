/*
 * The lists of a spec: env, labels, mounts, ports and caches. Each entry has a key: the name of a
 * variable or label, the target of a mount, the port, a tool. One rule holds for all of them: an
 * entry of a patch replaces the entry with the same key or is added, and the others stay. `clear`
 * of the patch removes entries before that.
 */
#pragma once

#include "daemon/engine/sandbox-spec.h"
#include "lib/base/json.h"

/* ["env", "labels=KEY", …]: a whole list, or one entry. */
int spec_clear_lists(struct sandbox_spec *spec, const json_t *array, struct err *err);
int spec_apply_env(struct sandbox_spec *spec, const json_t *obj, struct err *err);
int spec_apply_labels(struct sandbox_spec *spec, const json_t *obj, struct err *err);
int spec_apply_mounts(struct sandbox_spec *spec, const json_t *array, char *const *roots,
                      struct err *err);
int spec_apply_caches(struct sandbox_spec *spec, const json_t *obj, struct err *err);
int spec_apply_ports(struct sandbox_spec *spec, const json_t *array, struct err *err);
/* A strict or confined sandbox shares no cache. The default mode becomes private; a requested
 * shared mode is refused. `caches`: those of the patch, or NULL. */
int spec_apply_own_caches(struct sandbox_spec *spec, const json_t *caches, struct err *err);
