/*
 * A listening socket on the loopback of the caller's network namespace. A process in another
 * namespace can serve clients through this socket; it needs no interface and no route.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

int listen_inside(uint16_t port, int *ret_fd, struct err *err); /* on 127.0.0.1, non-blocking */
