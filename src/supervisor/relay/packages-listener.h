/*
 * The way of a container to its package registry: a listening socket in the container's own network
 * namespace, on which a process outside accepts (daemon/packages/packages-proxy.h). The container
 * itself needs no network.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

/*
 * For the container whose pid 1 is `pid` in the engine's eyes. Only for a caller with one thread.
 * Fails when that process is not of this container: the engine's machine is another one than ours
 * then, or it has ended.
 */
int packages_listener_open(const char *container, pid_t pid, uint16_t port, int *ret_fd,
                           struct err *err);
