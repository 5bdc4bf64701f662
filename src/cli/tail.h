/*
 * Where the last lines of an exec's output begin.
 */
#pragma once

#include <jansson.h>

#include "client/client.h"

enum { TAIL_MAX = 1000000 };

/*
 * *ret: the offset of the last `lines` lines of "stdout" or "stderr", as far as they are still
 * stored. An incomplete last line counts. The exec is the answer for a single exec. Reads the
 * stream from its end, so that a long one costs no more than its tail.
 */
int tail_offset(struct client *c, const char *sandbox, const json_t *exec, const char *stream,
                uint64_t lines, uint64_t *ret, struct err *err);
