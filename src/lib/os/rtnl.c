#include "lib/os/rtnl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>

#include "lib/base/cleanup.h"

enum { RTNL_MSG_MAX = 1024, ALIAS_MAX = 255 /* IFALIASZ of <linux/if.h>, less one */ };

/* A request under construction. Everything put into it is of fixed, small size, so overflow is our
 * bug. */
struct rtnl_request {
    union {
        struct nlmsghdr head;
        char bytes[RTNL_MSG_MAX];
    };
};

int rtnl_open(int *ret, struct err *err)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd < 0)
        return err_sys(err, errno, "open a netlink socket");
    *ret = fd;
    return 0;
}

static void *rtnl_request_begin(struct rtnl_request *q, uint16_t type, uint16_t flags, size_t body)
{
    *q = (struct rtnl_request){0};
    q->head.nlmsg_type = type;
    q->head.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
    q->head.nlmsg_len = (uint32_t)NLMSG_LENGTH(body);
    return NLMSG_DATA(&q->head);
}

static struct rtattr *rtnl_put(struct rtnl_request *q, uint16_t type, const void *data, size_t len)
{
    struct rtattr *a = (struct rtattr *)(q->bytes + NLMSG_ALIGN(q->head.nlmsg_len));

    a->rta_type = type;
    a->rta_len = (uint16_t)RTA_LENGTH(len);
    if (len)
        memcpy(RTA_DATA(a), data, len);
    q->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->head.nlmsg_len) + RTA_ALIGN(a->rta_len));
    return a;
}

static void rtnl_put_str(struct rtnl_request *q, uint16_t type, const char *s)
{
    rtnl_put(q, type, s, strlen(s) + 1);
}

static void rtnl_put_u32(struct rtnl_request *q, uint16_t type, uint32_t v)
{
    rtnl_put(q, type, &v, sizeof(v));
}

/* Closes a nested attribute: its length reaches to the end of what has been put since. */
static void rtnl_nest_end(struct rtnl_request *q, struct rtattr *a)
{
    a->rta_len = (uint16_t)(q->bytes + q->head.nlmsg_len - (char *)a);
}

/* Sends and waits for the acknowledgement: 0 or -errno. */
static int rtnl_request_send(int sock, struct rtnl_request *q)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char more[RTNL_MSG_MAX];
    } reply;
    ssize_t n;

    do
        n = send(sock, q->bytes, q->head.nlmsg_len, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    do
        n = recv(sock, &reply, sizeof(reply), 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if ((size_t)n < sizeof(reply.head) + sizeof(reply.error) ||
        reply.head.nlmsg_type != NLMSG_ERROR)
        return -EPROTO;
    return reply.error.error;
}

static int rtnl_link_index(const char *name, int *ret, struct err *err)
{
    unsigned index = if_nametoindex(name);

    if (!index)
        return err_sys(err, errno, "find network interface '%s'", name);
    *ret = (int)index;
    return 0;
}

int rtnl_add_veth(int sock, const char *name, const char *peer, int peer_netns, uint32_t mtu,
                  struct err *err)
{
    const struct ifinfomsg none = {.ifi_family = AF_UNSPEC};
    struct rtattr *info, *data, *other;
    struct rtnl_request q;
    int r;

    memcpy(rtnl_request_begin(&q, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(none)), &none,
           sizeof(none));
    rtnl_put_str(&q, IFLA_IFNAME, name);
    if (mtu)
        rtnl_put_u32(&q, IFLA_MTU, mtu);
    info = rtnl_put(&q, IFLA_LINKINFO, NULL, 0);
    rtnl_put_str(&q, IFLA_INFO_KIND, "veth");
    data = rtnl_put(&q, IFLA_INFO_DATA, NULL, 0);
    other = rtnl_put(&q, VETH_INFO_PEER, &none, sizeof(none));
    rtnl_put_str(&q, IFLA_IFNAME, peer);
    if (mtu)
        rtnl_put_u32(&q, IFLA_MTU, mtu);
    rtnl_put_u32(&q, IFLA_NET_NS_FD, (uint32_t)peer_netns);
    rtnl_nest_end(&q, other);
    rtnl_nest_end(&q, data);
    rtnl_nest_end(&q, info);
    r = rtnl_request_send(sock, &q);
    return r < 0 ? err_sys(err, -r, "create network interface '%s'", name) : 0;
}

int rtnl_set_alias(int sock, const char *name, const char *alias, struct err *err)
{
    struct ifinfomsg msg = {.ifi_family = AF_UNSPEC};
    struct rtnl_request q;
    int r = rtnl_link_index(name, &msg.ifi_index, err);

    if (r < 0)
        return r;
    memcpy(rtnl_request_begin(&q, RTM_NEWLINK, 0, sizeof(msg)), &msg, sizeof(msg));
    rtnl_put(&q, IFLA_IFALIAS, alias, MIN(strlen(alias), (size_t)ALIAS_MAX));
    r = rtnl_request_send(sock, &q);
    return r < 0 ? err_sys(err, -r, "set the alias of network interface '%s'", name) : 0;
}

int rtnl_set_up(int sock, const char *name, struct err *err)
{
    struct ifinfomsg msg = {.ifi_family = AF_UNSPEC, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    struct rtnl_request q;
    int r = rtnl_link_index(name, &msg.ifi_index, err);

    if (r < 0)
        return r;
    memcpy(rtnl_request_begin(&q, RTM_NEWLINK, 0, sizeof(msg)), &msg, sizeof(msg));
    r = rtnl_request_send(sock, &q);
    return r < 0 ? err_sys(err, -r, "bring network interface '%s' up", name) : 0;
}

int rtnl_add_address(int sock, const char *name, uint32_t address, uint8_t prefix, struct err *err)
{
    struct ifaddrmsg msg = {.ifa_family = AF_INET, .ifa_prefixlen = prefix};
    uint32_t net = htonl(address);
    struct rtnl_request q;
    int index = 0, r = rtnl_link_index(name, &index, err);

    if (r < 0)
        return r;
    msg.ifa_index = (uint32_t)index;
    memcpy(rtnl_request_begin(&q, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof(msg)), &msg,
           sizeof(msg));
    rtnl_put_u32(&q, IFA_LOCAL, net);
    rtnl_put_u32(&q, IFA_ADDRESS, net);
    r = rtnl_request_send(sock, &q);
    return r < 0 ? err_sys(err, -r, "set the address of network interface '%s'", name) : 0;
}

int rtnl_add_default_route(int sock, const char *name, uint32_t gateway, struct err *err)
{
    struct rtmsg msg = {
        .rtm_family = AF_INET,
        .rtm_table = RT_TABLE_MAIN,
        .rtm_protocol = RTPROT_STATIC,
        .rtm_scope = RT_SCOPE_UNIVERSE,
        .rtm_type = RTN_UNICAST,
    };
    struct rtnl_request q;
    int index = 0, r = rtnl_link_index(name, &index, err);

    if (r < 0)
        return r;
    memcpy(rtnl_request_begin(&q, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof(msg)), &msg,
           sizeof(msg));
    rtnl_put_u32(&q, RTA_GATEWAY, htonl(gateway));
    rtnl_put_u32(&q, RTA_OIF, (uint32_t)index);
    r = rtnl_request_send(sock, &q);
    return r < 0 ? err_sys(err, -r, "add the default route through '%s'", name) : 0;
}

int rtnl_del_link(int sock, const char *name, struct err *err)
{
    struct ifinfomsg msg = {.ifi_family = AF_UNSPEC};
    struct rtnl_request q;
    int r;

    memcpy(rtnl_request_begin(&q, RTM_DELLINK, 0, sizeof(msg)), &msg, sizeof(msg));
    rtnl_put_str(&q, IFLA_IFNAME, name);
    r = rtnl_request_send(sock, &q);
    return r < 0 && r != -ENODEV ? err_sys(err, -r, "remove network interface '%s'", name) : 0;
}
