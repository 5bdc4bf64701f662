/*
 * The few rtnetlink requests that a sandbox's network needs, on a raw NETLINK_ROUTE socket: each
 * sends one message and waits for the kernel's acknowledgement, so that an error names the step and
 * carries the kernel's reason. Works in the network namespace of the caller (loopback, addresses,
 * routes inside) and across (a veth whose peer is created in another namespace).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

int rtnl_open(int *ret, struct err *err);

/* A veth pair: `name` here, `peer` in the namespace of peer_netns. Both down. mtu 0: the kernel's
 * default. */
int rtnl_add_veth(int sock, const char *name, const char *peer, int peer_netns, uint32_t mtu,
                  struct err *err);
/* A text for people, shown by `ip link`. */
int rtnl_set_alias(int sock, const char *name, const char *alias, struct err *err);
int rtnl_set_up(int sock, const char *name, struct err *err);
/* Addresses are in host byte order. */
int rtnl_add_address(int sock, const char *name, uint32_t address, uint8_t prefix, struct err *err);
int rtnl_add_default_route(int sock, const char *name, uint32_t gateway, struct err *err);
/* A missing interface is not an error. */
int rtnl_del_link(int sock, const char *name, struct err *err);
