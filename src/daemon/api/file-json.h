/*
 * Between JSON and the fields of proto/files.h, by the tables there. The key of a field is its
 * name. Bytes that are not UTF-8 have the key NAME_base64, in requests and in answers.
 */
#pragma once

#include <jansson.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "proto/files.h"

/* Adds the fields of `body`, which the operation allows, to the request `w`. Unknown fields and
 * missing ones are ERR_INVALID. ret_user: the field "user", or NULL; the caller frees it. */
int file_json_request(enum files_op op, const json_t *body, struct buf *w, char **ret_user,
                      struct err *err);
/* Sets the fields of a message in `o`. */
int file_json_answer(const struct files_message *m, json_t *o, struct err *err);
/* Sets o[key] to text, or o[key_base64]. */
void file_json_put_bytes(json_t *o, const char *key, const char *data, size_t len);
