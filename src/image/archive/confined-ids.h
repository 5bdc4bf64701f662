/* The IDS argument of ripcord-image and ripcord-build: the owners of the files in the store. */
#pragma once

#include "image/archive/confined.h"
#include "lib/base/err.h"

/* "own", "range" or "sub:UID:GID". */
int confined_ids_parse(const char *text, struct confined_ids *ret, struct err *err);
