/*
 * The supervisor of the fake engine: one thread per running sandbox that behaves like ripcord-shim
 * on its socket.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct sandbox_request;
struct fake_supervisor;

/* Starts the thread. Takes conn, its end of the first connection. */
struct fake_supervisor *fake_supervisor_start(const struct sandbox_request *req,
                                              const char *exec_root, uint64_t journal_budget,
                                              int conn);
/* Adds a connection. Takes conn. */
void fake_supervisor_connect(struct fake_supervisor *s, int conn);
bool fake_supervisor_alive(struct fake_supervisor *s);
/* Kills it at once, waits and frees. NULL is allowed. */
void fake_supervisor_end(struct fake_supervisor *s);
