/*
 * Network `open` without a sandbox: names, addresses, the text of the rules, and rtnetlink in a
 * network namespace of our own (skipped where none may be made).
 */
#include "daemon/engine/native/network.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/os/rtnl.h"
#include "tap.h"

#define ROOT "0123456789abcdef"

static const char *const ranges[] = {
    "0.0.0.0/8",     "10.0.0.0/8",   "100.64.0.0/10",  "127.0.0.0/8",   "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3"};

/* True when `first` stands in the text, and `second` after it. */
static bool in_order(const char *text, const char *first, const char *second)
{
    const char *at = strstr(text, first);

    return at && strstr(at + strlen(first), second);
}

TEST(names_fit_and_carry_the_root)
{
    char name[NETWORK_IFNAME_MAX], table[NETWORK_NAME_MAX], chain[NETWORK_NAME_MAX];

    network_ifname(ROOT, 0xffe, name);
    CHECK_STR(name, "rc01234567-0ffe");
    CHECK(strlen(name) < IFNAMSIZ);
    network_pattern(ROOT, '*', name);
    CHECK_STR(name, "rc01234567-*");
    network_table(ROOT, table);
    CHECK_STR(table, "ripcord_0123456789abcdef");
    network_chain(ROOT, "F", chain);
    CHECK_STR(chain, "RIPCORD-01234567-F");
}

TEST(each_lease_has_its_own_pair_of_addresses)
{
    for (uint32_t lease = 0; lease < 4095; lease++) {
        CHECK((network_host_address(lease) ^ network_sandbox_address(lease)) == 1);
        CHECK(network_host_address(lease) >> 17 == 0xc6120000 >> 17); /* in 198.18.0.0/15 */
        CHECK(network_host_address(lease) < network_host_address(lease + 1));
    }
}

TEST(nft_rules_drop_before_they_accept)
{
    char *resolvers[] = {(char *)"192.0.2.53", (char *)"10.1.2.3", NULL};
    _cleanup_free_ char *rules = NULL;
    const char *outward;

    CHECK(network_rules_nft(ROOT, resolvers, true, &rules, NULL) == 0);
    outward = strstr(rules, "chain outward");
    CHECK(outward != NULL);
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
        CHECK(strstr(outward, ranges[i]) != NULL);
    CHECK(in_order(outward, "oifname \"rc01234567-*\" drop", "established,related accept"));
    CHECK(in_order(outward, "meta nfproto ipv6 drop", "established,related accept"));
    /* A false source address is dropped before anything is accepted. */
    CHECK(in_order(outward, "fib saddr . iif oif missing drop", "accept"));
    CHECK(in_order(outward, "{ 192.0.2.53, 10.1.2.3 } meta l4proto { tcp, udp } th dport 53 accept",
                   "10.0.0.0/8"));
    /* Also a question to a name server takes an entry. */
    CHECK(in_order(outward, "ct count over 4096 } drop", "dport 53 accept"));
    CHECK(in_order(outward, "limit rate over 200/second burst 2000 packets } drop",
                   "dport 53 accept"));
    CHECK(in_order(outward, "224.0.0.0/3 } drop", "\n    accept\n"));
    CHECK(in_order(rules, "hook input", "iifname \"rc01234567-*\" drop"));
}

TEST(nft_rules_without_name_servers)
{
    _cleanup_free_ char *rules = NULL;

    CHECK(network_rules_nft(ROOT, NULL, false, &rules, NULL) == 0);
    CHECK(!strstr(rules, "dport 53") && !strstr(rules, "{  }"));
    CHECK(!strstr(rules, "ct count") && !strstr(rules, "limit rate") && !strstr(rules, "set "));
}

TEST(iptables_rules_say_the_same)
{
    char *resolvers[] = {(char *)"10.1.2.3", NULL};
    _cleanup_free_ char *rules = NULL;

    CHECK(network_rules_iptables(ROOT, resolvers, true, &rules, NULL) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        char line[128];

        snprintf(line, sizeof(line), "-A RIPCORD-01234567-F -i rc01234567-+ -d %s -j DROP\n",
                 ranges[i]);
        CHECK(in_order(rules, line, "-A RIPCORD-01234567-F -i rc01234567-+ -j ACCEPT\n"));
    }
    CHECK(in_order(rules, "-d 10.1.2.3 -p udp --dport 53 -j ACCEPT", "-d 10.0.0.0/8 -j DROP"));
    CHECK(in_order(rules, "--connlimit-above 4096", "--dport 53"));
    CHECK(in_order(rules, "--hashlimit-above 200/second --hashlimit-burst 2000", "--dport 53"));
    CHECK(in_order(rules, "-A RIPCORD-01234567-I -i rc01234567-+ -j DROP", "COMMIT"));
}

TEST(resolv_conf_lists_name_servers_or_a_reason)
{
    char *resolvers[] = {(char *)"192.0.2.1", (char *)"192.0.2.2", NULL};
    _cleanup_free_ char *two = network_resolv_conf(resolvers), *none = network_resolv_conf(NULL);

    CHECK_STR(two, "nameserver 192.0.2.1\nnameserver 192.0.2.2\n");
    CHECK(none[0] == '#' && !strstr(none, "nameserver"));
}

/* ---- rtnetlink ---- */

static int pair_in_namespaces(void)
{
    _cleanup_close_ int first = -1, second = -1, rtnl = -1, inner = -1;
    _cleanup_err_ struct err err = ERR_INIT;

    if (unshare(CLONE_NEWNET) < 0)
        return 77;
    first = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (unshare(CLONE_NEWNET) < 0)
        return 77;
    second = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (setns(first, CLONE_NEWNET) < 0 || rtnl_open(&rtnl, &err) < 0 ||
        rtnl_add_veth(rtnl, "outer", "eth0", second, 1400, &err) < 0 ||
        rtnl_set_alias(rtnl, "outer", "for people", &err) < 0 ||
        rtnl_add_address(rtnl, "outer", 0xc6120000, 31, &err) < 0 ||
        rtnl_set_up(rtnl, "outer", &err) < 0)
        return 1;
    /* The name is taken, and the error says so. */
    if (rtnl_add_veth(rtnl, "outer", "eth1", second, 0, &err) >= 0 || err.errnum != EEXIST)
        return 2;
    if (if_nametoindex("eth0") || setns(second, CLONE_NEWNET) < 0 || !if_nametoindex("eth0"))
        return 3;
    err_done(&err);
    if (rtnl_open(&inner, &err) < 0 || rtnl_add_address(inner, "eth0", 0xc6120001, 31, &err) < 0 ||
        rtnl_set_up(inner, "eth0", &err) < 0 ||
        rtnl_add_default_route(inner, "eth0", 0xc6120000, &err) < 0)
        return 4;
    /* Each socket stays in the namespace of its birth. */
    if (rtnl_del_link(rtnl, "outer", &err) < 0 || if_nametoindex("eth0"))
        return 5;
    return rtnl_del_link(rtnl, "outer", &err) < 0 ? 6 : 0; /* fine when there is none */
}

TEST(a_pair_between_two_namespaces)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(pair_in_namespaces());
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        SKIP("no network namespace may be made here");
    CHECK(WEXITSTATUS(status) == 0);
}
