/* The start of a ripcord-packages process (proto/packages.h): for the keeper. */
#pragma once

#include "lib/base/err.h"

/* Both descriptors are the caller's; the process is its child, to be reaped through the pidfd. */
int packages_spawn(const char *program, char *const *env, const char *settings, int *ret_pidfd,
                   int *ret_control, struct err *err);
