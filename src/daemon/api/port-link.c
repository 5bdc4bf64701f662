/*
 * The key is the API token, so a new token ends all links. HMAC keeps the token secret, and what is
 * signed begins with its use, so that no other text of ours can be taken for it.
 */
#include "daemon/api/port-link.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/guard.h"
#include "lib/base/parse.h"

enum { MAC_LEN = 32, MAC_HEX = 2 * MAC_LEN, EXPIRES_DIGITS_MAX = 20 };

bool port_host_parse(const char *host, struct port_host *ret)
{
    static const char end[] = ".localhost", hex[] = "0123456789abcdef";
    size_t digits = host ? strspn(host, "0123456789") : 0;
    char port[8];
    const char *id, *rest;
    uint32_t n;

    if (!digits || digits >= sizeof(port) || host[digits] != '-')
        return false;
    snprintf(port, sizeof(port), "%.*s", (int)digits, host);
    id = host + digits + 1;
    if (strspn(id, hex) != SANDBOX_ID_LEN ||
        strncmp(id + SANDBOX_ID_LEN, end, sizeof(end) - 1) != 0)
        return false;
    rest = id + SANDBOX_ID_LEN + sizeof(end) - 1;
    if ((*rest && *rest != ':') || port[0] == '0' || parse_u32(port, 1, UINT16_MAX, &n, NULL) < 0)
        return false;
    ret->port = (uint16_t)n;
    memcpy(ret->id, id, SANDBOX_ID_LEN);
    ret->id[SANDBOX_ID_LEN] = '\0';
    return true;
}

static void port_link_mac(const char *key, enum port_link_use use, const struct port_host *host,
                          const struct port_grant *grant, char ret[static MAC_HEX + 1])
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned mac_len = 0;
    char text[160];
    int len = snprintf(text, sizeof(text), "ripcord port %s %s %u %llu %d",
                       use == PORT_LINK_URL ? "link" : "cookie", host->id, host->port,
                       (unsigned long long)grant->expires, grant->wake);

    /* It fails only without memory. */
    if (!HMAC(EVP_sha256(), key, (int)strlen(key), (const unsigned char *)text, (size_t)len, mac,
              &mac_len) ||
        mac_len != MAC_LEN)
        abort();
    for (size_t i = 0; i < MAC_LEN; i++)
        snprintf(ret + 2 * i, 3, "%02x", mac[i]);
}

void port_link_sign(const char *key, enum port_link_use use, const struct port_host *host,
                    const struct port_grant *grant, char ret[static PORT_LINK_SIZE])
{
    char mac[MAC_HEX + 1];

    port_link_mac(key, use, host, grant, mac);
    snprintf(ret, PORT_LINK_SIZE, "%llu-%d-%s", (unsigned long long)grant->expires, grant->wake,
             mac);
}

/* In constant time. */
static bool port_link_equal(const char *a, const char *b)
{
    volatile unsigned char differs = 0;

    for (size_t i = 0; i < MAC_HEX; i++)
        differs |= (unsigned char)(a[i] ^ b[i]);
    return differs == 0;
}

bool port_link_check(const char *key, enum port_link_use use, const struct port_host *host,
                     uint64_t now, const char *text, struct port_grant *ret)
{
    size_t digits = strspn(text, "0123456789");
    const char *rest = text + digits;
    char expires[EXPIRES_DIGITS_MAX], want[MAC_HEX + 1];
    struct port_grant grant;

    if (!digits || digits >= sizeof(expires) || rest[0] != '-' ||
        (rest[1] != '0' && rest[1] != '1') || rest[2] != '-' || strlen(rest + 3) != MAC_HEX)
        return false;
    snprintf(expires, sizeof(expires), "%.*s", (int)digits, text);
    if (parse_u64(expires, 0, INT64_MAX, &grant.expires, NULL) < 0)
        return false;
    grant.wake = rest[1] == '1';
    port_link_mac(key, use, host, &grant, want);
    if (!port_link_equal(rest + 3, want) && GUARD("link signature"))
        return false;
    if (now >= grant.expires && GUARD("link expiry"))
        return false;
    *ret = grant;
    return true;
}
