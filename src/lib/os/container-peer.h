/*
 * Who is at the other end of a TCP connection: a container of this machine, or somebody else.
 *
 * Docker, Podman and LXC connect containers by a bridge that has nothing but one end of a veth pair
 * for each. Whose address lies in the subnet of such a bridge is taken for one of them, this
 * machine itself excepted. A bridge that also has a network card, or a virtual machine, is a
 * network like any other.
 */
#pragma once

#include <stdbool.h>

bool container_peer_is_local(int fd);
