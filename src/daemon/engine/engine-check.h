/*
 * Checks of a spec against the capabilities of an engine. engine_check_spec() of engine.h is the
 * public part; this header is for engine.c and the backends. The engine must be open. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct err;
struct sandbox_spec;

/* Bits (enum limit_bit) of the spec's limits that this engine cannot enforce. NOFILE is an rlimit
 * and always works. */
uint32_t engine_check_unenforced(const struct engine *e, const struct sandbox_spec *spec);

/* Completes a refusal because of a missing capability with engine_ops.lack. Returns -err->code. */
int engine_check_lack(const struct engine *e, uint32_t cap, struct err *err);

/* Whether the image must have an account of spec->user. Numbers work without one, and engines
 * provide the default user. */
bool engine_check_needs_account(const struct sandbox_spec *spec);
/* The error when it has none. */
int engine_check_no_account(const struct sandbox_spec *spec, struct err *err);
