/*
 * Reads a YAML configuration file and passes its entries to a callback, one by one and flat.
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

/*
 * Calls fn() for each entry; the entry is valid during the call. Stops at the first error, which
 * names the file and the line. A file that does not exist has no entries.
 */
int config_file_read(const char *path, config_entry_fn fn, void *arg, struct err *err);
