/*
 * A container's access to the package cache: a listening socket in the container's own network
 * namespace, on which a process outside accepts (daemon/packages/packages-proxy.h). The container
 * itself needs no network.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

/*
 * `pid` is the container's pid 1 as the engine reports it. The caller must have only one thread.
 * Fails if that process is not in this container: then the engine runs on another machine, or the
 * container has ended.
 */
int packages_listener_open(const char *container, pid_t pid, uint16_t port, int *ret_fd,
                           struct err *err);
