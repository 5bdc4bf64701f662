/*
 * The table of system calls (lib/os/seccomp-table.h) as the engine's JSON profile. The engine's own
 * profile may be years old, and lets through what ours does not.
 *
 * What differs from native: a refused argument gets the profile's default, ENOSYS (engines before
 * Docker 21 know no such default and say EPERM), where native has an errno for each call.
 */
#pragma once

/* The caller's to free; the same every time. */
char *profile_text(void);
