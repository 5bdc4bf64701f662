/*
 * Whether a command can be confined without namespaces here, found out by doing it.
 */
#pragma once

#include "lib/base/err.h"

/* Confines the calling thread for good: call it in a thread or process that ends then. 0, or
 * ERR_UNSUPPORTED with what is missing and what to do. */
int confined_probe(struct err *err);
