#include "lib/os/tcp-owner.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/cleanup.h"
#include "lib/base/macro.h"

/* Four words of an address, in the order and byte order of the kernel's table, and the port. */
enum { END_MAX = 48, LINE_SIZE = 512 };

struct tcp_end {
    char v4[END_MAX], v6[END_MAX]; /* "": it has no such form */
};

static void tcp_owner_print_v6(const struct in6_addr *a, unsigned port, char ret[static END_MAX])
{
    uint32_t w[4];

    memcpy(w, a, sizeof(w));
    snprintf(ret, END_MAX, "%08X%08X%08X%08X:%04X", w[0], w[1], w[2], w[3], port);
}

/* An IPv4 connection may be made by an IPv6 socket, and is in that table then. */
static bool tcp_owner_end(const struct sockaddr_storage *at, struct tcp_end *ret)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)at;
    struct in6_addr mapped = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

    *ret = (struct tcp_end){{0}, {0}};
    if (at->ss_family == AF_INET) {
        snprintf(ret->v4, END_MAX, "%08X:%04X", v4->sin_addr.s_addr, ntohs(v4->sin_port));
        memcpy(&mapped.s6_addr[12], &v4->sin_addr, sizeof(v4->sin_addr));
        tcp_owner_print_v6(&mapped, ntohs(v4->sin_port), ret->v6);
        return true;
    }
    if (at->ss_family == AF_INET6)
        tcp_owner_print_v6(&v6->sin6_addr, ntohs(v6->sin6_port), ret->v6);
    return at->ss_family == AF_INET6;
}

/* sl: local remote state queues timer retransmits uid … */
bool tcp_owner_of_line(const char *line, const char *local, const char *remote, uint32_t *ret)
{
    char ends[2][END_MAX];

    return sscanf(line, " %*d: %47s %47s %*x %*x:%*x %*x:%*x %*x %u", ends[0], ends[1], ret) == 3 &&
           STREQ(ends[0], local) && STREQ(ends[1], remote);
}

static bool tcp_owner_find(const char *table, const char *local, const char *remote, uint32_t *ret)
{
    _cleanup_fclose_ FILE *f = *local ? fopen(table, "re") : NULL;
    char line[LINE_SIZE];

    while (f && fgets(line, sizeof(line), f))
        if (tcp_owner_of_line(line, local, remote, ret))
            return true;
    return false;
}

bool tcp_peer_is_user(int fd, uint32_t uid)
{
    struct sockaddr_storage us = {0}, them = {0};
    socklen_t us_len = sizeof(us), them_len = sizeof(them);
    struct tcp_end local, remote;
    uint32_t owner;

    if (getsockname(fd, (struct sockaddr *)&us, &us_len) < 0 ||
        getpeername(fd, (struct sockaddr *)&them, &them_len) < 0 || !tcp_owner_end(&us, &remote) ||
        !tcp_owner_end(&them, &local)) /* its ends are ours the other way round */
        return false;
    return (tcp_owner_find("/proc/net/tcp", local.v4, remote.v4, &owner) ||
            tcp_owner_find("/proc/net/tcp6", local.v6, remote.v6, &owner)) &&
           owner == uid;
}
