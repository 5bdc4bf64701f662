/*
 * The rules as text. Order matters: replies first, then the name servers, then every range that a
 * sandbox must not reach, then all other addresses.
 *
 * The strict reverse-path check (fib, and rp_filter of each interface) drops spoofed source
 * addresses, because the only route back to a sandbox's address is its own interface. IPv6 is off
 * on both ends (supervisor/shim/network.c) and dropped here too.
 *
 * The machine has one table of connections. A sandbox gets a share: a number of connections at a
 * time and a number of new ones per second, because the kernel keeps a closed one for two minutes.
 * A packet that is dropped here leaves no entry. That is at most 4,096 + 2,000 + 200 * 120 = 30,096
 * entries, of 262,144 on a machine with the kernel's default. The sets are keyed by the sandbox's
 * address, which the reverse-path check has proved.
 *
 * Our forward chain comes before those of other firewalls (priority -10): a packet that it drops is
 * gone, whatever they accept. They may still drop a packet that it accepts; network.c handles that.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/engine/native/network-rules.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { RULES_MAX = 16 << 10, FLOWS_MAX = 4096, FLOWS_PER_SECOND = 200, FLOWS_BURST = 2000 };

/* Addresses that a sandbox must not reach: private networks, the host, link-local services. */
static const char *const blocked[] = {
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
    NULL,
};

void network_ifname(const char *root_id, uint32_t lease, char ret[static NETWORK_IFNAME_MAX])
{
    snprintf(ret, NETWORK_IFNAME_MAX, "rc%.8s-%04x", root_id, lease & 0xffff);
}

void network_table(const char *root_id, char ret[static NETWORK_NAME_MAX])
{
    snprintf(ret, NETWORK_NAME_MAX, "ripcord_%.16s", root_id);
}

void network_chain(const char *root_id, const char *which, char ret[static NETWORK_NAME_MAX])
{
    snprintf(ret, NETWORK_NAME_MAX, "RIPCORD-%.8s-%s", root_id, which);
}

void network_pattern(const char *root_id, char wildcard, char ret[static NETWORK_IFNAME_MAX])
{
    snprintf(ret, NETWORK_IFNAME_MAX, "rc%.8s-%c", root_id, wildcard);
}

/* ---- nft ---- */

/* The rule that allows traffic to the name servers, also to those in blocked ranges; empty without
 * name servers. */
static char *network_rules_resolvers_nft(char *const *resolvers)
{
    _cleanup_free_ char *list = resolvers && *resolvers ? strv_join(resolvers, ", ") : NULL;

    if (!list)
        return xstrdup("");
    return xasprintf("    ip daddr { %s } meta l4proto { tcp, udp } th dport 53 accept\n", list);
}

static char *network_rules_shares_nft(bool shares)
{
    if (!shares)
        return xstrdup("");
    return xasprintf("    ct state new add @flows { ip saddr ct count over %d } drop\n"
                     "    ct state new update @starts { ip saddr limit rate over %d/second "
                     "burst %d packets } drop\n",
                     FLOWS_MAX, FLOWS_PER_SECOND, FLOWS_BURST);
}

/* Elements of `flows` go with the last connection, those of `starts` after a minute. */
#define SHARE_SETS                                                                                 \
    "  set flows { type ipv4_addr; size 65535; flags dynamic; }\n"                                 \
    "  set starts { type ipv4_addr; size 65535; flags dynamic, timeout; timeout 60s; }\n"

static int network_rules_append_nft(struct buf *b, const char *table, const char *ifs,
                                    const char *servers, const char *ranges, bool limited)
{
    _cleanup_free_ char *shares = network_rules_shares_nft(limited);

    return buf_appendf(b,
                       "table inet %1$s\n"
                       "delete table inet %1$s\n"
                       "table inet %1$s {\n"
                       "%6$s"
                       "  chain outward {\n"
                       "    oifname \"%2$s\" drop\n"
                       "    meta nfproto ipv6 drop\n"
                       "    fib saddr . iif oif missing drop\n"
                       "    ct state established,related accept\n"
                       "%5$s"
                       "%3$s"
                       "    ip daddr { %4$s } drop\n"
                       "    accept\n"
                       "  }\n"
                       "  chain forwarded {\n"
                       "    type filter hook forward priority -10; policy accept;\n"
                       "    iifname \"%2$s\" jump outward\n"
                       "    oifname \"%2$s\" ct state established,related accept\n"
                       "    oifname \"%2$s\" drop\n"
                       "  }\n"
                       "  chain to_host {\n"
                       "    type filter hook input priority -10; policy accept;\n"
                       "    iifname \"%2$s\" drop\n"
                       "  }\n"
                       "  chain masquerading {\n"
                       "    type nat hook postrouting priority 100; policy accept;\n"
                       "    iifname \"%2$s\" masquerade\n"
                       "  }\n"
                       "}\n",
                       table, ifs, servers, ranges, shares, limited ? SHARE_SETS : "");
}

int network_rules_nft(const char *root_id, char *const *resolvers, bool limited, char **ret,
                      struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(RULES_MAX);
    _cleanup_free_ char *servers = network_rules_resolvers_nft(resolvers);
    _cleanup_free_ char *ranges = strv_join((char *const *)blocked, ", ");
    char table[NETWORK_NAME_MAX], ifs[NETWORK_IFNAME_MAX];

    network_table(root_id, table);
    network_pattern(root_id, '*', ifs);
    if (network_rules_append_nft(&b, table, ifs, servers, ranges, limited) < 0)
        return err_set(err, ERR_LIMIT, "firewall rules are over %d bytes", RULES_MAX);
    *ret = buf_steal(&b);
    return 0;
}

/* ---- iptables ---- */

/*
 * The same for machines without nft: chains of our own, to which a jump at the top of the built-in
 * ones leads (network.c). IPv6 has no rules here, as it is off on both ends.
 */
static int network_rules_append_shares(struct buf *b, const char *chain, const char *ifs)
{
    return buf_appendf(b,
                       "-A %1$s -i %2$s -m conntrack --ctstate NEW -m connlimit --connlimit-above "
                       "%3$d --connlimit-mask 32 --connlimit-saddr -j DROP\n"
                       "-A %1$s -i %2$s -m conntrack --ctstate NEW -m hashlimit --hashlimit-above "
                       "%4$d/second --hashlimit-burst %5$d --hashlimit-mode srcip "
                       "--hashlimit-name %1$.15s -j DROP\n",
                       chain, ifs, FLOWS_MAX, FLOWS_PER_SECOND, FLOWS_BURST);
}

static int network_rules_append_outward(struct buf *b, const char *chain, const char *ifs,
                                        char *const *resolvers, bool limited)
{
    int r;

    r = buf_appendf(b,
                    "-A %1$s -i %2$s -o %2$s -j DROP\n"
                    "-A %1$s -i %2$s -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n",
                    chain, ifs);
    if (r == 0 && limited)
        r = network_rules_append_shares(b, chain, ifs);
    for (; r == 0 && resolvers && *resolvers; resolvers++)
        r = buf_appendf(b,
                        "-A %1$s -i %2$s -d %3$s -p udp --dport 53 -j ACCEPT\n"
                        "-A %1$s -i %2$s -d %3$s -p tcp --dport 53 -j ACCEPT\n",
                        chain, ifs, *resolvers);
    for (const char *const *range = blocked; r == 0 && *range; range++)
        r = buf_appendf(b, "-A %s -i %s -d %s -j DROP\n", chain, ifs, *range);
    if (r == 0)
        r = buf_appendf(b, "-A %s -i %s -j ACCEPT\n", chain, ifs);
    return r;
}

static int network_rules_append_iptables(struct buf *b, const char *root_id, const char *ifs,
                                         char *const *resolvers, bool limited)
{
    char f[NETWORK_NAME_MAX], i[NETWORK_NAME_MAX], n[NETWORK_NAME_MAX];
    int r;

    network_chain(root_id, "F", f);
    network_chain(root_id, "I", i);
    network_chain(root_id, "N", n);
    r = buf_appendf(b, "*filter\n:%s - [0:0]\n:%s - [0:0]\n", f, i);
    if (r == 0)
        r = network_rules_append_outward(b, f, ifs, resolvers, limited);
    if (r == 0)
        r = buf_appendf(b,
                        "-A %1$s -o %3$s -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n"
                        "-A %1$s -o %3$s -j DROP\n"
                        "-A %2$s -i %3$s -j DROP\n"
                        "COMMIT\n",
                        f, i, ifs);
    if (r == 0)
        r = buf_appendf(b,
                        "*nat\n:%1$s - [0:0]\n"
                        "-A %1$s -s 198.18.0.0/15 ! -o %2$s -j MASQUERADE\nCOMMIT\n",
                        n, ifs);
    return r;
}

int network_rules_iptables(const char *root_id, char *const *resolvers, bool limited, char **ret,
                           struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(RULES_MAX);
    char ifs[NETWORK_IFNAME_MAX];

    network_pattern(root_id, '+', ifs);
    if (network_rules_append_iptables(&b, root_id, ifs, resolvers, limited) < 0)
        return err_set(err, ERR_LIMIT, "firewall rules are over %d bytes", RULES_MAX);
    *ret = buf_steal(&b);
    return 0;
}
