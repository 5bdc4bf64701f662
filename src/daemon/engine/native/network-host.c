/* The machine's network settings that a sandbox gets: name servers and MTU. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "daemon/engine/native/network.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { FILE_MAX = 64 << 10, RESOLVERS_MAX = 3 /* MAXNS of resolv.h */ };

static void network_host_take_resolvers(char *text, char ***ret)
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

char **network_resolvers(void)
{
    /* The stub on 127.0.0.53 is only for the host: the second file has its upstream servers. */
    static const char *const files[] = {"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"};
    char **found = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(files) && !found; i++) {
        _cleanup_free_ char *text = NULL;

        if (file_read(AT_FDCWD, files[i], FILE_MAX, &text, NULL, NULL) >= 0)
            network_host_take_resolvers(text, &found);
    }
    return found;
}

char *network_resolv_conf(char *const *resolvers)
{
    char *text;

    if (!resolvers || !*resolvers)
        return xstrdup("# none of the machine's name servers can be reached from a sandbox\n");
    text = xstrdup("");
    for (; *resolvers; resolvers++) {
        char *more = xasprintf("%snameserver %s\n", text, *resolvers);

        free(text);
        text = more;
    }
    return text;
}

/* The first route to 0.0.0.0/0 in /proc/net/route: "eth0 00000000 gateway flags ... mask ...". */
static bool network_host_default_interface(char *text, char ret[static IFNAMSIZ])
{
    for (char *line, *rest = text; (line = strsep(&rest, "\n"));) {
        const char *name = strsep(&line, "\t");
        const char *to = line ? strsep(&line, "\t") : NULL;

        if (to && STREQ(to, "00000000") && strlen(name) < IFNAMSIZ) {
            memcpy(ret, name, strlen(name) + 1);
            return true;
        }
    }
    return false;
}

uint32_t network_mtu(void)
{
    _cleanup_free_ char *routes = NULL, *path = NULL, *text = NULL;
    char name[IFNAMSIZ];
    uint64_t mtu;

    if (file_read(AT_FDCWD, "/proc/net/route", FILE_MAX, &routes, NULL, NULL) < 0 ||
        !network_host_default_interface(routes, name))
        return 0;
    path = xasprintf("/sys/class/net/%s/mtu", name);
    if (file_read(AT_FDCWD, path, FILE_MAX, &text, NULL, NULL) < 0)
        return 0;
    text[strcspn(text, "\n")] = '\0';
    return parse_u64(text, 68, 65535, &mtu, NULL) < 0 ? 0 : (uint32_t)mtu;
}
