/*
 * The configuration file: YAML as a flat run of entries.
 */
#pragma once

#include <stddef.h>

#include "lib/base/err.h"

struct config_entry {
    const char *key;    /* dotted */
    const char *value;  /* a scalar, or NULL */
    char *const *items; /* a list, or NULL */
    size_t line;
};

typedef int (*config_entry_fn)(void *arg, const struct config_entry *e, struct err *err);

/* Errors carry file and line. A file that does not exist has no entries. */
int config_file_read(const char *path, config_entry_fn fn, void *arg, struct err *err);
