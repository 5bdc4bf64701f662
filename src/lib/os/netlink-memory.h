/*
 * Memory in the receive queues of netlink sockets. No cgroup counts it: a socket that asks and
 * never reads keeps its answers, up to its receive buffer.
 */
#pragma once

#include <stdint.h>

/* Bytes in the network namespace of this process; 0 if the process has ended, and more than any
 * limit if the namespace has more sockets than any program needs. */
uint64_t netlink_memory(int pid);
