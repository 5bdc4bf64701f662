/*
 * Decides whether the peer of a TCP connection is a container of this machine.
 *
 * Docker, Podman and LXC connect containers to a bridge whose only ports are veth interfaces. A
 * peer whose address is in the subnet of such a bridge counts as a container, except this machine
 * itself. A bridge with a network card or a virtual machine counts as an ordinary network.
 */
#pragma once

#include <stdbool.h>

bool container_peer_is_local(int fd);
