/*
 * What the native engine can do on this machine: its capabilities, and for each that is missing the
 * reason and one instruction. Looks at the machine each time; any thread.
 */
#pragma once

#include <stdint.h>

struct engine;
struct err;
struct native_engine;
struct sandbox_spec;

/* enum engine_caps bits. n->ranges, n->subids and n->quota are known. */
uint32_t native_abilities(const struct native_engine *n);

/* engine_ops.look_again and .lack */
uint32_t native_look_again(const struct engine *e);
void native_lack(const struct engine *e, uint32_t cap, struct err *ret);

/* The shim, a program in memory, cannot be made or started: adds to an EACCES what forbids it.
 * Returns -err->code. */
int native_explain_no_shim(struct err *err);

/* ERR_UNSUPPORTED if the spec's user needs more ids than a sandbox has here. */
int native_check_user_ids(const struct native_engine *n, const struct sandbox_spec *spec,
                          struct err *err);
