/*
 * Links that open a port of a sandbox to a person's browser: the name of its origin,
 * PORT-ID.localhost, and signed texts, which a link and its cookie carry. The daemon stores none of
 * them: a text is valid because of its signature, until it expires or the API token changes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/sandbox/sandbox.h"

enum { PORT_LINK_SIZE = 96 };

struct port_host {
    uint16_t port;
    char id[SANDBOX_ID_LEN + 1]; /* of the sandbox */
};

/* Whether a Host field names an origin of this form, on any port of ours. */
bool port_host_parse(const char *host, struct port_host *ret);

/* What a text is for: that of a link does not pass as that of a cookie. */
enum port_link_use { PORT_LINK_URL, PORT_LINK_COOKIE };

struct port_grant {
    uint64_t expires; /* wall clock, in seconds */
    bool wake;        /* requests start a stopped sandbox */
};

void port_link_sign(const char *key, enum port_link_use use, const struct port_host *host,
                    const struct port_grant *grant, char ret[static PORT_LINK_SIZE]);
/* False: not signed by us for this use and host, or expired. now: in seconds. */
bool port_link_check(const char *key, enum port_link_use use, const struct port_host *host,
                     uint64_t now, const char *text, struct port_grant *ret);
