/*
 * GET and PUT …/files for the bytes of one file, with ranges, entity tags and conditions. The same
 * routes with application/x-tar are in files.c, which chooses.
 */
#pragma once

#include "daemon/api/call.h"
#include "proto/supervisor.h"

/* Both take the call. `copy` has the query. */
void file_raw_get(struct api_call *call, const struct sup_copy *copy);
void file_raw_put(struct api_call *call, const struct sup_copy *copy);
