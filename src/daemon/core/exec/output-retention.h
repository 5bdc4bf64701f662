/*
 * Retention of output: per sandbox a budget for the output of ended execs, an age, and a number of
 * execs. The oldest ends go first; the newest output never goes for its size alone. The row stays
 * as the receipt and says that the journals are gone, until the exec is beyond the number of execs
 * that are kept. On the loop; workers of the engine delete the files.
 */
#pragma once

#include <stdint.h>

struct end_record;
struct exec;
struct manager;
struct sandbox;

/* Loads what the store knows about execs of an earlier daemon. */
void output_retention_load(struct sandbox *sb);
/* To be called when an exec of the sandbox has ended. */
void output_retention_ended(struct sandbox *sb, const struct exec *x);
/* Bytes that the journals of an exec take on disk. */
uint64_t output_retention_bytes(const struct exec *x);
uint64_t output_retention_record_bytes(const struct end_record *end);
/* Does a small part of what is due. */
void output_retention_tick(struct manager *m);
