/*
 * Options of ripcordd: one table, which also yields --help.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "lib/base/err.h"

struct options {
    /* Borrowed from argv; NULL: not given. */
    const char *root, *log_level, *engine, *ready_fd, *listen;
    bool log_json, print_config, help_config, help, version, foreground, allow_remote;
};

int options_parse(struct options *ret, int argc, char **argv, struct err *err);
void options_help(FILE *f);
