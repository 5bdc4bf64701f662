/*
 * How long output is kept: a budget for the finished execs of a sandbox, an age, and a number.
 * Oldest ends go first, the newest one never for its size alone. The row, which is the receipt,
 * stays and says that the journals are gone, until so many have followed that it goes too. On the
 * loop; the deleting is the engine's workers'.
 */
#pragma once

#include <stdint.h>

struct end_record;
struct exec;
struct manager;
struct sandbox;

/* What the store remembers of an earlier daemon's execs. */
void output_retention_load(struct sandbox *sb);
/* An exec of it has ended. */
void output_retention_ended(struct sandbox *sb, const struct exec *x);
/* Bytes that its journals take. */
uint64_t output_retention_bytes(const struct exec *x);
uint64_t output_retention_record_bytes(const struct end_record *end);
/* A little of what is due. */
void output_retention_tick(struct manager *m);
