/*
 * Leases: how long a sandbox stays up (idle_stop, max_life) and is kept (rm_after), measured with
 * the lease clock (lease-clock.h). They are not part of the configuration hash: changing a lease
 * re-creates nothing.
 *
 *   idle_stop   stops it after so long without a command; never while one runs
 *   max_life    stops it so long after its start, whatever runs; never removes it
 *   rm_after    removes it after it was stopped (or failed) for so long
 */
#pragma once

#include <stdbool.h>

#include "daemon/core/sandbox/op-queue.h"
#include "daemon/core/sandbox/sandbox.h"
#include "lib/base/json-put.h"

/* To be called after a change of state: starts the clocks that the new state needs. */
void lease_moved(struct sandbox *sb, enum sandbox_state from);
/* To be called when the sandbox is used. The time is saved when it has an idle_stop. */
void lease_touch(struct sandbox *sb);
/* Readings of a stored row. 0 (an older version did not save it): starts now. */
void lease_load(struct sandbox *sb, uint64_t up_at, uint64_t idle_at, uint64_t down_at);

/* The next automatic action: {"at","in_ms","action":"stop|remove","by":"idle_stop|…"}, or null.
 * New reference. */
void lease_put(struct buf *b, const char *key, const struct sandbox *sb);

/* About once a second: queues the operations that are due. */
void lease_tick(struct manager *m);
