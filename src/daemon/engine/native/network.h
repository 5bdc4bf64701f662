/*
 * The host's side of network mode `open`: one set of firewall rules per root, in place before the
 * first interface of a sandbox comes up and gone with the last. Every sandbox has its own veth pair
 * and its own two addresses (198.18.0.0/15, taken by its id lease): no bridge, so there is no layer
 * 2 between sandboxes, and the rules need not name them one by one: they match interface names that
 * start with our prefix. The pair itself is made by the shim (supervisor/shim/network.c) and goes
 * with the sandbox's network namespace, also after kill -9.
 *
 * Which runs are `open` stands where no crash of ours can make it untrue: a file "open" in the
 * folder of each such run, which goes with that folder, and a file ".rules" beside the folders from
 * before the rules are made until after they are removed.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/native/network-rules.h"
#include "lib/base/err.h"
#include "lib/base/time.h"

/* Of one root. All calls may come from several threads at once. */
struct network {
    const char *root_id; /* borrowed */
    int runs;            /* borrowed: folder of the runs' folders */
    pthread_mutex_t lock;
    char *applied;    /* rules that the kernel was given, or NULL */
    uint64_t checked; /* when the newest look at them began */
};

void network_init(struct network *n, const char *root_id);
void network_done(struct network *n);

/* Addresses of lease n, host byte order: the host's end and the sandbox's, a /31. */
uint32_t network_host_address(uint32_t lease);
uint32_t network_sandbox_address(uint32_t lease);

/* True when a program to set rules with is there. */
bool network_possible(void);

/*
 * For a start: notes the run as `open`, then sees to it that the rules are in the kernel (nft, else
 * iptables) and that forwarding is on. Calls that wait for each other share one look.
 */
int network_ensure(struct network *n, const char *id, const struct deadline *by, struct err *err);
/* Removes the rules when no run is `open` any more; one look at a file when there are none. */
int network_tidy(struct network *n, const struct deadline *by, struct err *err);

/* The host's name servers that a sandbox can reach (IPv4, not loopback), as a strv, NULL when there
 * is none; from resolv.conf, or systemd-resolved's own list. */
char **network_resolvers(void);
/* /etc/resolv.conf for a sandbox; owned by the caller. */
char *network_resolv_conf(char *const *resolvers);
/* MTU of the interface with the default route; 0 when it cannot be told. */
uint32_t network_mtu(void);

/* True when another firewall drops what is forwarded unless someone allows it (Docker does, and
 * some distributions). */
bool network_forward_drops(const struct deadline *by);
