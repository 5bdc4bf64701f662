/*
 * Fail closed: the sandbox is started only after the firewall program has acknowledged the whole
 * batch. Order inside the batch matters: replies first, then the name servers, then every range
 * that a sandbox must not reach, then the rest of the world.
 *
 * Spoofed source addresses die at the strict reverse-path check (fib), because the only route back
 * to a sandbox's address is its own interface. IPv6 is off inside (shim/network.c) and dropped here
 * all the same.
 */
#include "engine/native/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/strv.h"
#include "engine/native/program.h"

enum { RULES_MAX = 16 << 10, RESOLV_CONF_MAX = 64 << 10, RESOLVERS_MAX = 3 };

static const uint32_t network_base = 0xc6120000; /* 198.18.0.0/15, RFC 2544: in no one's LAN */

/* What a sandbox must not reach: SECURITY F1-F3. */
static const char blocked[] = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, "
                              "172.16.0.0/12, 192.0.0.0/24, "
                              "192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/3";

uint32_t network_host_address(uint32_t lease)
{
    return network_base + 2 * lease;
}

uint32_t network_box_address(uint32_t lease)
{
    return network_base + 2 * lease + 1;
}

void network_ifname(const char *root_id, const char *id, char ret[static NETWORK_IFNAME_MAX])
{
    snprintf(ret, NETWORK_IFNAME_MAX, "r%.6s-%.7s", root_id, id);
}

/* ---- name servers ---- */

static void take_resolvers(char *text, char ***ret)
{
    char *line, *rest = text;

    while ((line = strsep(&rest, "\n")) && strv_len(*ret) < RESOLVERS_MAX) {
        struct in_addr a;

        if (strncmp(line, "nameserver", 10) != 0)
            continue;
        line += 10;
        line += strspn(line, " \t");
        line[strcspn(line, " \t\r#;")] = '\0';
        if (inet_pton(AF_INET, line, &a) == 1 && ntohl(a.s_addr) >> 24 != 127)
            strv_add(ret, line);
    }
}

int network_resolvers(char ***ret, struct err *err)
{
    /* The stub listener on 127.0.0.53 is the host's own: its upstream servers stand in the second
     * file. */
    static const char *const files[] = {"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"};
    _cleanup_strv_ char **found = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(files) && !found; i++) {
        _cleanup_free_ char *text = NULL;

        if (file_read(AT_FDCWD, files[i], RESOLV_CONF_MAX, &text, NULL, NULL) == 0)
            take_resolvers(text, &found);
    }
    if (!found) {
        err_set(err, ERR_UNSUPPORTED,
                "no name server for network 'open': /etc/resolv.conf names none that is IPv4 and "
                "not on loopback");
        return err_hint(err, "Add a 'nameserver ADDRESS' line, or use --network none.");
    }
    *ret = TAKE_PTR(found);
    return 0;
}

/* ---- rules ---- */

static int append_rules_nft(struct buf *b, const char *table, const char *ifs, const char *servers)
{
    return buf_appendf(b,
                       "table inet %1$s\n"
                       "delete table inet %1$s\n"
                       "table inet %1$s {\n"
                       "  chain forwarded {\n"
                       "    type filter hook forward priority -10; policy accept;\n"
                       "    iifname \"%2$s\" jump outward\n"
                       "    oifname \"%2$s\" ct state established,related accept\n"
                       "    oifname \"%2$s\" drop\n"
                       "  }\n"
                       "  chain outward {\n"
                       "    oifname \"%2$s\" drop\n"
                       "    meta nfproto ipv6 drop\n"
                       "    fib saddr . iif oif missing drop\n"
                       "    ct state established,related accept\n"
                       "    ip daddr { %3$s } meta l4proto { tcp, udp } th dport 53 accept\n"
                       "    ip daddr { %4$s } drop\n"
                       "    accept\n"
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
                       table, ifs, servers, blocked);
}

static void table_name(const char *root_id, char ret[static 32])
{
    snprintf(ret, 32, "ripcord_%.16s", root_id);
}

int network_rules_nft(const char *root_id, char *const *resolvers, char **ret, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(RULES_MAX);
    _cleanup_free_ char *servers = strv_join(resolvers, ", ");
    char table[32], ifs[NETWORK_IFNAME_MAX];

    table_name(root_id, table);
    snprintf(ifs, sizeof(ifs), "r%.6s-*", root_id);
    if (append_rules_nft(&b, table, ifs, servers) < 0)
        return err_set(err, ERR_LIMIT, "firewall rules are over %d bytes", RULES_MAX);
    *ret = buf_steal(&b);
    return 0;
}

/*
 * The same for machines without nft: our own chains, entered from the built-in ones by a jump at
 * the top. `-w`: wait for another user's lock.
 */
static int append_rules_iptables(struct buf *b, const char *tag, const char *ifs,
                                 char *const *resolvers)
{
    _cleanup_free_ char *ranges = strdup(blocked);
    char *range, *rest = ranges;
    int r;

    r = buf_appendf(b,
                    "*filter\n:RC-%1$s-F - [0:0]\n:RC-%1$s-I - [0:0]\n"
                    "-A RC-%1$s-F -i %2$s -o %2$s -j DROP\n"
                    "-A RC-%1$s-F -i %2$s -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n",
                    tag, ifs);
    for (; r == 0 && *resolvers; resolvers++)
        r = buf_appendf(b,
                        "-A RC-%1$s-F -i %2$s -d %3$s -p udp --dport 53 -j ACCEPT\n"
                        "-A RC-%1$s-F -i %2$s -d %3$s -p tcp --dport 53 -j ACCEPT\n",
                        tag, ifs, *resolvers);
    while (r == 0 && (range = strsep(&rest, ", ")))
        if (*range)
            r = buf_appendf(b, "-A RC-%s-F -i %s -d %s -j DROP\n", tag, ifs, range);
    return r < 0 ? r
                 : buf_appendf(
                       b,
                       "-A RC-%1$s-F -i %2$s -j ACCEPT\n"
                       "-A RC-%1$s-F -o %2$s -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n"
                       "-A RC-%1$s-F -o %2$s -j DROP\n"
                       "-A RC-%1$s-I -i %2$s -j DROP\n"
                       "COMMIT\n*nat\n:RC-%1$s-N - [0:0]\n"
                       "-A RC-%1$s-N -s 198.18.0.0/15 ! -o %2$s -j MASQUERADE\nCOMMIT\n",
                       tag, ifs);
}

/* clang-format off */
static const struct { const char *table, *chain, *ours; } jumps[] = {
    { "filter", "FORWARD", "F" }, { "filter", "INPUT", "I" }, { "nat", "POSTROUTING", "N" },
};
/* clang-format on */

static int iptables_jump(const char *verb, size_t i, const char *tag, const struct deadline *by,
                         struct err *err)
{
    char ours[32];
    const char *const argv[] = {"iptables", "-w", "-t", jumps[i].table, verb, jumps[i].chain,
                                "-j",       ours, NULL};

    snprintf(ours, sizeof(ours), "RC-%s-%s", tag, jumps[i].ours);
    return program_run(argv, NULL, by, NULL, err);
}

static int ensure_iptables(const char *root_id, char *const *resolvers, const struct deadline *by,
                           struct err *err)
{
    static const char *const restore[] = {"iptables-restore", "-w", "--noflush", NULL};
    _cleanup_buf_ struct buf b = BUF_INIT(RULES_MAX);
    char tag[8], ifs[NETWORK_IFNAME_MAX];
    int r;

    snprintf(tag, sizeof(tag), "%.6s", root_id);
    snprintf(ifs, sizeof(ifs), "r%.6s-+", root_id);
    if (append_rules_iptables(&b, tag, ifs, resolvers) < 0)
        return err_set(err, ERR_LIMIT, "firewall rules are over %d bytes", RULES_MAX);
    r = program_run(restore, buf_data(&b), by, NULL, err);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(jumps); i++)
        if (iptables_jump("-C", i, tag, by, NULL) < 0)
            r = iptables_jump("-I", i, tag, by, err);
    return r;
}

static int remove_iptables(const char *root_id, const struct deadline *by, struct err *err)
{
    char tag[8], ours[32];
    int r = 0;

    snprintf(tag, sizeof(tag), "%.6s", root_id);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(jumps); i++) {
        const char *const flush[] = {"iptables", "-w", "-t", jumps[i].table, "-F", ours, NULL};
        const char *const drop[] = {"iptables", "-w", "-t", jumps[i].table, "-X", ours, NULL};

        snprintf(ours, sizeof(ours), "RC-%s-%s", tag, jumps[i].ours);
        if (iptables_jump("-D", i, tag, by, NULL) < 0)
            continue; /* never made */
        r = program_run(flush, NULL, by, NULL, err);
        if (r == 0)
            r = program_run(drop, NULL, by, NULL, err);
    }
    return r;
}

int network_ensure(const char *root_id, const struct deadline *by, struct err *err)
{
    static const char *const apply[] = {"nft", "-f", "-", NULL};
    _cleanup_free_ char *rules = NULL;
    _cleanup_strv_ char **resolvers = NULL;
    int r;

    r = network_resolvers(&resolvers, err);
    if (r < 0)
        return r;
    if (program_find("nft")) {
        r = network_rules_nft(root_id, resolvers, &rules, err);
        if (r == 0)
            r = program_run(apply, rules, by, NULL, err);
    } else if (program_find("iptables-restore")) {
        r = ensure_iptables(root_id, resolvers, by, err);
    } else {
        err_set(err, ERR_UNSUPPORTED,
                "network 'open' needs nft or iptables, and this machine has neither");
        return err_hint(err, "Install the package nftables, or use --network none.");
    }
    if (r < 0)
        return err_wrap(err, "firewall rules for network 'open'");
    return file_write(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward", "1", err);
}

int network_remove(const char *root_id, const struct deadline *by, struct err *err)
{
    char table[32];
    /* "table" first: deleting one that is not there would be an error. */
    _cleanup_buf_ struct buf b = BUF_INIT(256);
    static const char *const apply[] = {"nft", "-f", "-", NULL};

    if (!program_find("nft"))
        return program_find("iptables") ? remove_iptables(root_id, by, err) : 0;
    table_name(root_id, table);
    if (buf_appendf(&b, "table inet %1$s\ndelete table inet %1$s\n", table) < 0)
        return err_set(err, ERR_LIMIT, "table name is too long");
    return program_run(apply, buf_data(&b), by, NULL, err);
}
