/*
 * Who is at the other end of a TCP connection within this machine: the kernel's table of sockets
 * has their owners.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Whether the peer of the connected socket `fd` belongs to this user. False, too, when it is not in
 * the table: it has gone, or is on another machine or in another network namespace. */
bool tcp_peer_is_user(int fd, uint32_t uid);

/* For tests: whether a line of /proc/net/tcp or tcp6 is the socket with these ends, and its owner.
 * Addresses and ports are as the kernel prints them: "0100007F:1F90". */
bool tcp_owner_of_line(const char *line, const char *local, const char *remote, uint32_t *ret);
