/*
 * End records as JSON: the END document of the API, which the store keeps as well.
 */
#pragma once

#include "lib/base/json.h"
#include "lib/journal/record.h"

json_t *end_record_to_json(const struct end_record *rec);

/* The record of an exec that never reached a supervisor, or whose supervisor left no record. */
void end_record_make(struct end_record *ret, enum end_cause cause, enum err_code error,
                     const char *why, uint64_t started_wall);
