/*
 * Network mode `open`: a veth pair between the host and the sandbox's network namespace, with one
 * address on each side (a /31) and a default route inside. The engine has already made the firewall
 * rules for the host's end when it starts us.
 *
 * Nobody removes the pair: the kernel removes it with the sandbox's network namespace, which ends
 * with its last process. That happens with a delay, so the dead pair of a previous run may still
 * have our interface name. We may delete it, because the name belongs to an id lease that we hold.
 *
 * IPv6 is off on both ends: we have no addresses to assign, and a link-local address would bypass
 * the IPv4 rules. ::1 on the loopback interface stays, because programs bind to it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/os/rtnl.h"
#include "supervisor/shim/enter.h"
#include "supervisor/shim/shim.h"

enum { PREFIX_LEN = 31 };

#define INSIDE "eth0"

/* Writes /proc/sys/net/<family>/conf/<interface>/<key>, unless the kernel lacks that family. */
static int shim_network_set_conf(const char *family, const char *ifname, const char *key,
                                 const char *value, struct err *err)
{
    char path[128];

    snprintf(path, sizeof(path), "/proc/sys/net/%s/conf", family);
    if (access(path, F_OK) < 0)
        return 0;
    snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/%s", family, ifname, key);
    return file_write(AT_FDCWD, path, value, err);
}

static int shim_network_make_pair(int rtnl, const struct plan *p, int netns, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    r = rtnl_add_veth(rtnl, p->net_ifname, INSIDE, netns, p->net_mtu, &why);
    if (r >= 0)
        return 0;
    if (why.errnum != EEXIST)
        return err_move(err, &why);
    r = rtnl_del_link(rtnl, p->net_ifname, err);
    return r < 0 ? r : rtnl_add_veth(rtnl, p->net_ifname, INSIDE, netns, p->net_mtu, err);
}

static int shim_network_set_up_outside(int rtnl, const struct plan *p, struct err *err)
{
    char alias[96];
    int r;

    snprintf(alias, sizeof(alias), "ripcord %s %s", p->sandbox_id, p->name);
    r = rtnl_set_alias(rtnl, p->net_ifname, alias, err);
    if (r < 0)
        return r;
    r = shim_network_set_conf("ipv4", p->net_ifname, "rp_filter", "1", err);
    if (r < 0)
        return r;
    r = shim_network_set_conf("ipv6", p->net_ifname, "disable_ipv6", "1", err);
    if (r < 0)
        return r;
    r = rtnl_add_address(rtnl, p->net_ifname, p->net_host, PREFIX_LEN, err);
    if (r < 0)
        return r;
    return rtnl_set_up(rtnl, p->net_ifname, err);
}

/* In the sandbox's network namespace: netlink sockets and /proc/sys/net follow the caller. */
static int shim_network_set_up_inside(const struct plan *p, struct err *err)
{
    _cleanup_close_ int rtnl = -1;
    int r;

    r = shim_network_set_conf("ipv6", "default", "disable_ipv6", "1", err);
    if (r < 0)
        return r;
    r = shim_network_set_conf("ipv6", INSIDE, "disable_ipv6", "1", err);
    if (r < 0)
        return r;
    r = rtnl_open(&rtnl, err);
    if (r < 0)
        return r;
    r = rtnl_add_address(rtnl, INSIDE, p->net_sandbox, PREFIX_LEN, err);
    if (r < 0)
        return r;
    r = rtnl_set_up(rtnl, INSIDE, err);
    if (r < 0)
        return r;
    return rtnl_add_default_route(rtnl, INSIDE, p->net_host, err);
}

/* Enters the sandbox's network namespace and returns to our own. The start fails if we cannot
 * return: a shim must not go on in the sandbox's namespace. */
static int shim_network_visit(int own, int netns, const struct plan *p, struct err *err)
{
    int r;

    if (setns(netns, CLONE_NEWNET) < 0)
        return err_sys(err, errno, "enter the sandbox's network namespace");
    r = shim_network_set_up_inside(p, err);
    if (setns(own, CLONE_NEWNET) < 0 && r >= 0)
        r = err_sys(err, errno, "leave the sandbox's network namespace");
    return r;
}

int network_start(const struct shim *s, struct err *err)
{
    const struct plan *p = &s->plan;
    _cleanup_close_ int own = -1, netns = -1, rtnl = -1;
    int r;

    if (p->network != PLAN_NETWORK_OPEN)
        return 0;
    own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (own < 0)
        return err_sys(err, errno, "open our network namespace");
    r = enter_open_network(s, &netns, err);
    if (r < 0)
        return r;
    if (rtnl_open(&rtnl, err) < 0 || shim_network_make_pair(rtnl, p, netns, err) < 0)
        return err_wrap(err, "network 'open'");
    if (shim_network_set_up_outside(rtnl, p, err) < 0 ||
        shim_network_visit(own, netns, p, err) < 0) {
        rtnl_del_link(rtnl, p->net_ifname, NULL);
        return err_wrap(err, "network 'open'");
    }
    return 0;
}
