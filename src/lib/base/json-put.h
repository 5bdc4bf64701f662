/*
 * JSON written straight into a buffer, for answers that are asked for often: making a document of
 * jansson first takes several times as long. Commas come by themselves. `key` NULL: an item of an
 * array, or the outermost value.
 *
 * The buffer must be JSON_PUT_INIT: it has no limit, so nothing here can fail.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"

#define JSON_PUT_INIT BUF_INIT(SIZE_MAX / 2)

void json_put_open(struct buf *b, const char *key, char bracket); /* '{' or '[' */
void json_put_close(struct buf *b, char bracket);                 /* '}' or ']' */

void json_put_string(struct buf *b, const char *key, const char *s); /* NULL: null */
void json_put_number(struct buf *b, const char *key, uint64_t n);
void json_put_bool(struct buf *b, const char *key, bool yes);
void json_put_time(struct buf *b, const char *key, uint64_t wall); /* 0: null */
void json_put_raw(struct buf *b, const char *key, const char *json);
