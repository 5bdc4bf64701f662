/*
 * The walls around a child that reads archives (confined.c), by name, so that a test can show that
 * it would see each of them missing. In the product all stand and the question costs nothing; a
 * build for the tests (IMAGE_WALLS_OPTIONAL) leaves out what the test says.
 */
#pragma once

#include <stdbool.h>

#include "base/macro.h"

#ifdef IMAGE_WALLS_OPTIONAL
bool image_wall_stands(const char *wall);
#else
static inline bool image_wall_stands(const char *wall _unused_)
{
    return true;
}
#endif
