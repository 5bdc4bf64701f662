/* Whose files the store holds, as the daemon tells its helpers. */
#pragma once

#include "image/archive/confined.h"
#include "lib/base/err.h"

/* "own", "range" or "sub:UID:GID". */
int confined_ids_parse(const char *text, struct confined_ids *ret, struct err *err);
