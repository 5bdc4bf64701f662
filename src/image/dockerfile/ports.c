#include "image/dockerfile/ports.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { PORTS_MAX = 4096 };

struct port_range {
    uint32_t first, last;
};

static int dockerfile_ports_bad(const char *spec, struct err *err)
{
    err_set(err, ERR_INVALID, "'%.64s' is not a valid port", spec);
    return err_hint(err, "Write a number up to 65535, or a range as in 8000-8010, then optionally "
                         "/tcp, /udp or /sctp.");
}

static int dockerfile_ports_read_range(char *s, struct port_range *ret)
{
    char *dash = strchr(s, '-');
    int r;

    if (dash)
        *dash = 0;
    r = parse_u32(s, 0, 65535, &ret->first, NULL);
    if (r < 0)
        return r;
    ret->last = ret->first;
    return dash ? parse_u32(dash + 1, ret->first, 65535, &ret->last, NULL) : 0;
}

static bool dockerfile_ports_is_address(char *s)
{
    unsigned char out[16];
    size_t n = strlen(s);

    if (n > 1 && s[0] == '[' && s[n - 1] == ']') {
        s[n - 1] = 0;
        s++;
    }
    return !*s || inet_pton(AF_INET, s, out) == 1 || inet_pton(AF_INET6, s, out) == 1;
}

/* [[ADDRESS:]HOST:] is checked and not used. `s` ends before the last colon. */
static bool dockerfile_ports_host_is_valid(char *s, const struct port_range *inner)
{
    char *colon = strrchr(s, ':');
    struct port_range host;
    char *port = colon ? colon + 1 : s;

    if (colon) {
        *colon = 0;
        if (!dockerfile_ports_is_address(s))
            return false;
    }
    if (!*port)
        return true;
    if (dockerfile_ports_read_range(port, &host) < 0)
        return false;
    return inner->first == inner->last || host.last - host.first == inner->last - inner->first;
}

static const char *dockerfile_ports_protocol_of(char *s)
{
    static const char *const names[] = {"tcp", "udp", "sctp"};
    char *slash = strchr(s, '/');

    if (!slash || !slash[1]) {
        if (slash)
            *slash = 0;
        return names[0];
    }
    *slash = 0;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (!strcasecmp(names[i], slash + 1))
            return names[i];
    return NULL;
}

int ports_add(const char *spec, char ***ports, struct err *err)
{
    _cleanup_free_ char *copy = xstrdup(spec);
    char *colon = strrchr(copy, ':'), *inner = colon ? colon + 1 : copy;
    const char *protocol = dockerfile_ports_protocol_of(inner);
    struct port_range r;

    if (!protocol || dockerfile_ports_read_range(inner, &r) < 0)
        return dockerfile_ports_bad(spec, err);
    if (colon) {
        *colon = 0;
        if (!dockerfile_ports_host_is_valid(copy, &r))
            return dockerfile_ports_bad(spec, err);
    }
    if (r.last - r.first + strv_len(*ports) >= PORTS_MAX)
        return err_set(err, ERR_LIMIT, "too many ports (the limit is %d)", PORTS_MAX);
    for (uint32_t port = r.first; port <= r.last; port++) {
        _cleanup_free_ char *text = xasprintf("%u/%s", port, protocol);

        if (!strv_contains(*ports, text))
            strv_push(ports, TAKE_PTR(text));
    }
    return 0;
}
