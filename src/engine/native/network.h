/*
 * The host's side of network mode `open`: one set of firewall rules per root, in place before the
 * first interface of a sandbox comes up and gone with the last. Every sandbox has its own veth pair
 * and its own two addresses (198.18.0.0/15, taken by its id lease): no bridge, so there is no layer
 * 2 between sandboxes, and the rules need not name them one by one: they match interface names that
 * start with our prefix. The pair itself is made by the shim (shim/network.c) and goes with the
 * sandbox's network namespace, also after kill -9.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/time.h"

enum { NETWORK_IFNAME_MAX = 16, NETWORK_LEASES_MAX = 65536 };

/* Addresses of lease n, host byte order: the host's end and the sandbox's, a /31. */
uint32_t network_host_address(uint32_t lease);
uint32_t network_box_address(uint32_t lease);

/* "r<6 of the root id>-<7 of the sandbox id>". */
void network_ifname(const char *root_id, const char *id, char ret[static NETWORK_IFNAME_MAX]);

/* Applies the rules (nft, else iptables) and turns forwarding on; idempotent. ERR_UNSUPPORTED
 * without either program. */
int network_ensure(const char *root_id, const struct deadline *by, struct err *err);
/* Removes the rules; fine when there are none. */
int network_remove(const char *root_id, const struct deadline *by, struct err *err);

/* The host's name servers that a sandbox can reach (IPv4, not loopback), as a strv; from
 * resolv.conf, or systemd-resolved's own list. */
int network_resolvers(char ***ret, struct err *err);

/* The rules as text for `nft -f -`; separate for the tests. */
int network_rules_nft(const char *root_id, char *const *resolvers, char **ret, struct err *err);
