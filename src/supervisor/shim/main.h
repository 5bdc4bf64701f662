/*
 * The shim: supervisor of one native sandbox. Started by the daemon with a socket as descriptor
 * SUP_FD_CONTROL, perhaps long before it is needed: waits there for its plan, builds the sandbox,
 * serves it, and outlives the daemon. Or, called with `remove`, does that and ends (remove.h).
 */
#pragma once

/* Exit status: 0 after a sandbox that was up, 1 when it never was. */
int shim_main(int argc, char **argv);
