/*
 * Output of commands in JSON. Bytes that are UTF-8 become {"text"}, all others {"base64"}.
 */
#pragma once

#include "lib/base/json.h"

/* Adds one of the two fields to the object. */
void exec_text_put(json_t *o, const char *data, size_t len);

/* How many bytes at the end are the beginning of a UTF-8 character, 0 to 3. The next piece has the
 * other bytes. */
size_t exec_text_cut(const char *data, size_t len);
/* How many bytes at the start are the end of a character, 0 to 3. */
size_t exec_text_skip(const char *data, size_t len);
