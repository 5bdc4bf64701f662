/*
 * A connection to a service of the sandbox, made from inside its network namespace.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

/* 127.0.0.1, or ::1 where only that one listens. ERR_NOT_FOUND when nobody does. */
int dial_inside(uint16_t port, int *ret_fd, struct err *err);
