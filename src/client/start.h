/*
 * Starts `ripcordd` if it does not run. Only one daemon is started, even if several processes try
 * at the same time. The daemon inherits nothing from the caller: no terminal, pipes, working folder
 * or environment, except the few variables that it needs.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/path.h"

/* Finds the daemon's program with path_of_program(). The caller frees *ret. */
int start_find_daemon(char **ret, struct err *err);

/* Connects to the daemon of these folders and starts it if necessary. The caller owns *ret_fd. */
int start_connect(const struct path_roots *paths, int *ret_fd, struct err *err);
/* The same without starting it: fails with ERR_ENGINE if no daemon runs, and creates nothing. */
int start_connect_running(const struct path_roots *paths, int *ret_fd, struct err *err);
