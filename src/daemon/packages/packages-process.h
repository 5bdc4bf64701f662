/* Starts a ripcord-packages process (proto/packages.h) for the packages proxy. */
#pragma once

#include "lib/base/err.h"

/* The caller owns both descriptors, and reaps the process through the pidfd. */
int packages_spawn(const char *program, char *const *env, const char *settings, int *ret_pidfd,
                   int *ret_control, struct err *err);
