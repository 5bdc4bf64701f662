/*
 * What stands between us and what others send, by name, so that a test can show that it would see
 * each of them missing. In the product all stand and the question costs nothing; a build for the
 * tests (WALLS_OPTIONAL) leaves out what the test says: test/unit/test_walls.py, which runs unit
 * tests with one wall less and wants them to fail. docs/security-tests.md lists them.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/macro.h"

#ifdef WALLS_OPTIONAL
bool wall_up(const char *wall);
#else
static inline bool wall_up(const char *wall _unused_)
{
    return true;
}
#endif
