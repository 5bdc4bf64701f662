/*
 * The host's side of network `open`: one set of firewall rules per root, which is in place before
 * the first interface of a sandbox comes up and is removed with the last.
 *
 * Every sandbox has its own veth pair and two addresses of 198.18.0.0/15, chosen by its id lease.
 * There is no bridge, so sandboxes share no layer 2. The rules match interface names that start
 * with our prefix and need not name each sandbox. The shim makes the pair
 * (supervisor/shim/network.c); it goes with the sandbox's network namespace, also after kill -9.
 *
 * Two kinds of files survive a crash of the daemon and record the state: "open" in the folder of
 * each run with this network, and ".rules" beside these folders, made before the rules and removed
 * after them.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/native/network-rules.h"
#include "lib/base/err.h"
#include "lib/base/time.h"

/* Of one root. Any thread. */
struct network {
    const char *root_id; /* borrowed */
    int runs;            /* borrowed: the folder that holds the runs' folders */
    pthread_mutex_t lock;
    char *applied;    /* rules that the kernel was given, or NULL */
    bool unlimited;   /* the kernel cannot limit the connections of a sandbox */
    uint64_t checked; /* time_mono() at the begin of the last check */
};

void network_init(struct network *n, const char *root_id);
void network_done(struct network *n);

/* Addresses of lease n, host byte order: the host's end and the sandbox's, a /31. */
uint32_t network_host_address(uint32_t lease);
uint32_t network_sandbox_address(uint32_t lease);

/* Whether nft or iptables is installed. */
bool network_possible(void);

/*
 * For a start: records the run as `open`, then makes sure that the rules are in the kernel (by nft,
 * else iptables) and that forwarding is on. Calls that wait for each other share one check.
 */
int network_ensure(struct network *n, const char *id, const struct deadline *by, struct err *err);
/* Removes the rules when no run is `open` any more. Cheap when there are no rules. */
int network_tidy(struct network *n, const struct deadline *by, struct err *err);

/* The host's name servers that a sandbox can reach (IPv4, not loopback), from resolv.conf or the
 * list of systemd-resolved. A new strv; NULL: none. */
char **network_resolvers(void);
/* /etc/resolv.conf for a sandbox; owned by the caller. */
char *network_resolv_conf(char *const *resolvers);
/* MTU of the interface with the default route; 0: unknown. */
uint32_t network_mtu(void);

/* Whether another firewall drops forwarded packets by default (Docker and some distributions set
 * that). */
bool network_forward_drops(const struct deadline *by);
