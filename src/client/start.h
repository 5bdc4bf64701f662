/*
 * Starting `ripcordd` when nobody answers: once, however many ask at the same time, and without
 * handing it anything of the caller's (terminal, pipes, folder, environment).
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/path.h"

/* The daemon's program: beside our own, else in the libexec folder. */
int start_find_daemon(char **ret, struct err *err);

/* Connects to the daemon of these folders, starting one when there is none. */
int start_connect(const struct path_roots *paths, int *ret_fd, struct err *err);
