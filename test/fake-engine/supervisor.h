/*
 * The fake engine's supervisor: one thread per running sandbox that does what ripcord-shim does, as
 * far as its socket shows it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct sandbox_request;
struct fake_supervisor;

/* Starts the thread. conn: its end of the first connection, taken. */
struct fake_supervisor *fake_supervisor_start(const struct sandbox_request *req,
                                              const char *exec_root, uint64_t journal_budget,
                                              int conn);
/* One more connection (taken). */
void fake_supervisor_connect(struct fake_supervisor *s, int conn);
bool fake_supervisor_alive(struct fake_supervisor *s);
/* Kills it where it stands, waits and frees. NULL is fine. */
void fake_supervisor_end(struct fake_supervisor *s);
