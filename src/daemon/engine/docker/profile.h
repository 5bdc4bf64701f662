/*
 * Converts the table of system calls (lib/os/seccomp-table.h) into the engine's JSON profile. The
 * engine's own profile may be years old and allows more than ours.
 *
 * One difference from the native engine: a refused argument gets the profile's default errno,
 * ENOSYS. (Engines before Docker 21 have no such default and answer EPERM.) The native engine has
 * an errno for each call.
 */
#pragma once

#include "lib/os/seccomp-table.h"

/* The text is always the same. The caller frees it. */
char *profile_text(enum seccomp_variant variant);
