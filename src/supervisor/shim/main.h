/*
 * The shim: supervisor of one native sandbox. The daemon starts it with a socket as descriptor
 * SUP_FD_CONTROL, perhaps long before it is needed. The shim waits there for its plan, builds the
 * sandbox, serves it, and outlives the daemon. Called with `remove`, it removes a tree instead
 * (remove.h).
 */
#pragma once

/* Exit status: 0 if the sandbox was up, else 1. */
int shim_main(int argc, char **argv);
