/*
 * The broker of a confined command: carries out the calls that its filter reports
 * (lib/os/seccomp-confined.h). It is a process with the command's user, outside of the command's
 * Landlock domain, so it checks what Landlock would have: sockets are TCP and bound to the loopback
 * interface, and only files in the sandbox's own folders are changed.
 *
 * It never lets the kernel go on with a call that it has looked at, because the caller could change
 * the arguments in between (seccomp_unotify(2)).
 */
#pragma once

#include "lib/base/macro.h"

struct shim;

/* Takes the listener from `sock`, and ends with the last process that has the filter. */
_noreturn_ void broker_main(const struct shim *s, int sock);
