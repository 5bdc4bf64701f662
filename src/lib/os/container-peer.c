#include "lib/os/container-peer.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/macro.h"

/* The bytes of an address. An IPv4-mapped IPv6 address becomes an IPv4 address. */
struct bare {
    int family;
    size_t len;
    uint8_t bytes[sizeof(struct in6_addr)];
    uint32_t scope; /* link-local addresses: the interface */
};

static struct bare container_peer_bare_of(const struct sockaddr *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
    struct bare b = {.family = a ? a->sa_family : AF_UNSPEC};

    if (b.family == AF_INET) {
        b.len = sizeof(v4->sin_addr);
        memcpy(b.bytes, &v4->sin_addr, b.len);
    } else if (b.family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        b.family = AF_INET;
        b.len = sizeof(v4->sin_addr);
        memcpy(b.bytes, v6->sin6_addr.s6_addr + 12, b.len);
    } else if (b.family == AF_INET6) {
        b.len = sizeof(v6->sin6_addr);
        memcpy(b.bytes, &v6->sin6_addr, b.len);
        b.scope = IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ? v6->sin6_scope_id : 0;
    }
    return b;
}

/* The length of the mask when both addresses are in one subnet, else -1. */
static int container_peer_subnet_bits(const struct bare *a, const struct bare *b,
                                      const struct bare *mask)
{
    int bits = 0;

    if (a->family != b->family || a->family != mask->family || a->scope != b->scope || !a->len)
        return -1;
    for (size_t i = 0; i < a->len; i++) {
        if ((a->bytes[i] ^ b->bytes[i]) & mask->bytes[i])
            return -1;
        bits += __builtin_popcount(mask->bytes[i]);
    }
    return bits;
}

static bool container_peer_is_veth(int sock, const char *name)
{
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq req = {.ifr_data = (char *)&info};

    memcpy(req.ifr_name, name, strnlen(name, sizeof(req.ifr_name) - 1));
    return ioctl(sock, SIOCETHTOOL, &req) == 0 && STREQ(info.driver, "veth");
}

static bool container_peer_is_for_containers(const char *name)
{
    char path[64 + IFNAMSIZ];
    _cleanup_closedir_ DIR *ports = NULL;
    _cleanup_close_ int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const struct dirent *e;
    bool any = false;

    snprintf(path, sizeof(path), "/sys/class/net/%s/brif", name);
    ports = opendir(path);
    while (ports && (e = readdir(ports))) {
        if (e->d_name[0] == '.')
            continue;
        if (!container_peer_is_veth(sock, e->d_name))
            return false;
        any = true;
    }
    return any;
}

/* The interface whose subnet contains the peer. NULL: no interface, or the peer is this machine. */
static const char *container_peer_interface_of(const struct bare *peer, const struct ifaddrs *all)
{
    const char *found = NULL;
    int best = 0;

    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct bare own = container_peer_bare_of(i->ifa_addr),
                    mask = container_peer_bare_of(i->ifa_netmask);
        int bits = container_peer_subnet_bits(peer, &own, &mask);

        if (peer->family == own.family && peer->len &&
            memcmp(peer->bytes, own.bytes, peer->len) == 0)
            return NULL;
        if (bits > best) {
            best = bits;
            found = i->ifa_name;
        }
    }
    return found;
}

bool container_peer_is_local(int fd)
{
    struct sockaddr_storage from = {0};
    socklen_t len = sizeof(from);
    struct ifaddrs *all = NULL;
    struct bare peer;
    const char *name;
    bool container;

    if (getpeername(fd, (struct sockaddr *)&from, &len) < 0 || getifaddrs(&all) < 0)
        return false; /* the peer has gone, or its address is not an IP address */
    peer = container_peer_bare_of((struct sockaddr *)&from);
    name = container_peer_interface_of(&peer, all);
    container = name && container_peer_is_for_containers(name) && GUARD("containers");
    freeifaddrs(all);
    return container;
}
