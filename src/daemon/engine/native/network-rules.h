/*
 * The names and the text of the firewall rules of network `open`. No system call is made here.
 * Every name carries the root id.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

enum {
    NETWORK_IFNAME_MAX = 16, /* IFNAMSIZ */
    NETWORK_NAME_MAX = 29,   /* longest iptables chain name and its NUL */
};

/* "rc<8 digits of the root id>-<lease>". A lease has one holder, so an interface that already has
 * the name belongs to a dead sandbox. */
void network_ifname(const char *root_id, uint32_t lease, char ret[static NETWORK_IFNAME_MAX]);
/* All interfaces of this root: "rc<8 digits of the root id>-*" for nft, with '+' for iptables. */
void network_pattern(const char *root_id, char wildcard, char ret[static NETWORK_IFNAME_MAX]);

void network_table(const char *root_id, char ret[static NETWORK_NAME_MAX]);
/* `which`: "F" forward, "I" input, "N" nat. */
void network_chain(const char *root_id, const char *which, char ret[static NETWORK_NAME_MAX]);

/* For `nft -f -`, which applies all rules or none, and replaces existing ones. resolvers may be
 * NULL. `limited`: with a share of the machine's table of connections for each sandbox. */
int network_rules_nft(const char *root_id, char *const *resolvers, bool limited, char **ret,
                      struct err *err);
/* For `iptables-restore --noflush`. */
int network_rules_iptables(const char *root_id, char *const *resolvers, bool limited, char **ret,
                           struct err *err);
