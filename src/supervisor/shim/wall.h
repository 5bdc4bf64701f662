/*
 * The walls between a sandbox and the machine, by name, so that a test can show that it would see
 * each of them missing. In the product all stand and the question costs nothing; a build for the
 * tests (SHIM_WALLS_OPTIONAL) leaves out those that the sandbox's variable RIPCORD_WITHOUT names,
 * separated by commas. docs/security-tests.md lists them.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/macro.h"
#include "proto/plan.h"

#ifdef SHIM_WALLS_OPTIONAL
bool wall_stands(const struct plan *plan, const char *wall);
#else
static inline bool wall_stands(const struct plan *plan _unused_, const char *wall _unused_)
{
    return true;
}
#endif
