/*
 * Test switches. Each security check carries the name of a guard: GUARD("head size"). In the
 * product every guard is on and the macro is the constant true. Programs built for tests
 * (GUARDS_OPTIONAL) switch the guards off that the variable RIPCORD_WITHOUT lists, separated by
 * commas. The tests show that each attack succeeds once its guard is off, so a test that cannot
 * fail is found. docs/security-tests.md lists all guards.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/macro.h"

#ifdef GUARDS_OPTIONAL
bool guard_on(const char *name);
/* From here on the variable is read from this environment, not from the process's own. */
void guard_environment(char *const *env);
#define GUARD(name) guard_on(name)
#else
static inline void guard_environment(char *const *env _unused_)
{
}
#define GUARD(name) true
#endif
