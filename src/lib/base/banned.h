/*
 * Functions that may not be used in this tree: their use does not compile. Forced into every file
 * by meson (-include). Each has a safe replacement in base/: buf, parse, strv, xalloc.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef alloca
#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok strtok_r
#pragma GCC poison atoi atol atoll atof gets alloca system popen
