/*
 * Connects to a service of the sandbox, from inside its network namespace.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

/* Connects to 127.0.0.1, else to ::1. ERR_NOT_FOUND: no process listens on the port. */
int dial_inside(uint16_t port, int *ret_fd, struct err *err);
