/*
 * Test switches. Each security check carries the name of a guard: GUARD("head size"). In the
 * product every guard is on and the macro is the constant true. Programs built for tests
 * (GUARDS_OPTIONAL) switch the guards off that guard_without() or the variable RIPCORD_WITHOUT
 * lists, separated by commas. The tests show that each attack succeeds once its guard is off, so a
 * test that cannot fail is found. docs/security-tests.md lists all guards.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/macro.h"

#ifdef GUARDS_OPTIONAL
bool guard_on(const char *name);
/* Replaces RIPCORD_WITHOUT; NULL: all guards are on. The text is copied. */
void guard_without(const char *names);
#define GUARD(name) guard_on(name)
#else
static inline void guard_without(const char *names _unused_)
{
}
#define GUARD(name) true
#endif
