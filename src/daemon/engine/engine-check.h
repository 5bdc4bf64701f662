/*
 * Checks of a spec against the capabilities of an engine. engine_check_spec() of engine.h is the
 * public part; this header is only for engine.c. The engine must be open. Any thread.
 */
#pragma once

#include <stdint.h>

struct engine;
struct sandbox_spec;

/* Bits (enum limit_bit) of the spec's limits that this engine cannot enforce. NOFILE is an rlimit
 * and always works. */
uint32_t engine_check_unenforced(const struct engine *e, const struct sandbox_spec *spec);
