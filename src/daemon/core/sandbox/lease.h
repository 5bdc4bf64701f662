/*
 * Leases: how long a sandbox stays up (idle_stop, max_life) and is kept (rm_after), counted on the
 * lease clock (lease-clock.h). They are no part of what a sandbox is: changing one re-creates nothing.
 *
 *   idle_stop   stopped after so long without a command; never while one runs
 *   max_life    stopped so long after it came up, whatever runs; never removed
 *   rm_after    removed after so long stopped (or failed)
 */
#pragma once

#include <stdbool.h>

#include "daemon/core/sandbox/op-queue.h"
#include "daemon/core/sandbox/sandbox.h"
#include "lib/base/json.h"

/* Its state has changed: what is counted from now on. */
void lease_moved(struct sandbox *sb, enum sandbox_state from);
/* It was used. Kept across a restart when it has an idle_stop. */
void lease_touch(struct sandbox *sb);
/* Of a row: readings that an older ripcord did not keep begin now. */
void lease_load(struct sandbox *sb, uint64_t up_at, uint64_t idle_at, uint64_t down_at);

/* Whether two specs have the same leases; and takes them over. */
bool lease_equal(const struct sandbox_spec *a, const struct sandbox_spec *b);
void lease_copy(struct sandbox_spec *to, const struct sandbox_spec *from);
/* Takes the leases of op->want over, in the store and in what the engine keeps beside the sandbox,
 * where they differ; then goes on, or fails the operation. */
void lease_apply(struct op *op, op_step_fn then);

/* What happens next by itself: {"at","in_ms","action":"stop|remove","by":"idle_stop|…"}, or null.
 * New reference. */
json_t *lease_to_json(const struct sandbox *sb);

/* About once a second: carries out what is due. */
void lease_tick(struct manager *m);
