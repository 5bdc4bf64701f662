#include "dockerapi/endpoint.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"

enum { TEXT_MAX = 4096, HOST_MAX = 253, PORT_TCP = 2375, PORT_TLS = 2376 };

void docker_endpoint_done(struct docker_endpoint *e)
{
    free(e->path);
    free(e->host);
    free(e->certs);
    *e = (struct docker_endpoint){0};
}

void docker_endpoint_use_tls(struct docker_endpoint *e, const char *certs)
{
    if (e->transport == DOCKER_UNIX)
        return;
    free(e->certs);
    e->certs = xstrdup(certs);
    e->transport = DOCKER_TLS;
}

/* Foreign text for a message: one line, no control bytes, not too long. */
static char *endpoint_shown(const char *s)
{
    struct buf b = BUF_INIT(1024);

    if (text_escape(&b, s, strnlen(s, 200)) < 0)
        buf_clear(&b);
    return buf_steal(&b);
}

static int endpoint_bad(const char *text, const char *why, struct err *err)
{
    _cleanup_free_ char *safe = endpoint_shown(text);

    err_set(err, ERR_INVALID, "engine address '%s': %s", safe, why);
    return err_hint(
        err, "Use the form unix:///path/to/docker.sock, tcp://host:2375 or tls://host:2376.");
}

static bool endpoint_is_clean(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s <= 0x20 || *s == 0x7f)
            return false;
    return true;
}

/* Letters, digits, '.', '-', '_'; for an address in brackets also ':' and '%' (a zone). */
static bool endpoint_is_host(const char *s, bool brackets)
{
    const char *extra = brackets ? ":%." : ".-_";
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') ||
              (s[i] >= 'A' && s[i] <= 'Z') || strchr(extra, s[i])))
            return false;
    return n > 0 && n <= HOST_MAX && (brackets ? strchr(s, ':') != NULL : s[0] != '-');
}

/* Cuts "host:port" or "[v6]:port" in place. */
static const char *endpoint_cut_authority(char *s, char **ret_host, const char **ret_port)
{
    bool brackets = s[0] == '[';
    char *end = brackets ? strchr(s, ']') : s + strcspn(s, ":");
    char *host = brackets ? s + 1 : s;

    if (!end)
        return "the closing bracket is missing";
    if (brackets)
        *end++ = '\0';
    if (*end != '\0' && *end != ':')
        return "unexpected text between host and port";
    *ret_port = *end == ':' ? end + 1 : NULL;
    *end = '\0';
    if (!endpoint_is_host(host, brackets))
        return "invalid host name or address";
    *ret_host = host;
    return NULL;
}

static int endpoint_parse_network(const char *text, const char *rest, bool tls,
                                  struct docker_endpoint *ret, struct err *err)
{
    _cleanup_free_ char *copy = xstrdup(rest);
    char *query = strchr(copy, '?'), *slash, *host = NULL;
    const char *port = NULL, *why;
    uint32_t number = tls ? PORT_TLS : PORT_TCP;

    if (query)
        *query++ = '\0';
    slash = strchr(copy, '/');
    if (slash && slash[1])
        return endpoint_bad(text, "a path behind the host is not supported", err);
    if (slash)
        *slash = '\0';
    why = endpoint_cut_authority(copy, &host, &port);
    if (why)
        return endpoint_bad(text, why, err);
    if (port && parse_u32(port, 1, UINT16_MAX, &number, NULL) < 0)
        return endpoint_bad(text, "the port must be between 1 and 65535", err);
    if (query && (!tls || strncmp(query, "certs=/", strlen("certs=/")) != 0))
        return endpoint_bad(text, "only tls:// may have a query, and only ?certs=/folder", err);
    *ret = (struct docker_endpoint){
        .transport = tls ? DOCKER_TLS : DOCKER_TCP,
        .host = xstrdup(host),
        .port = (uint16_t)number,
        .certs = query ? xstrdup(query + strlen("certs=")) : NULL,
    };
    return 0;
}

static int endpoint_parse_unix(const char *text, const char *path, struct docker_endpoint *ret,
                               struct err *err)
{
    size_t len = strlen(path);

    if (path[0] != '/')
        return endpoint_bad(text, "the path of the socket must be absolute", err);
    if (len < 2 || path[len - 1] == '/')
        return endpoint_bad(text, "the path is a folder, not a socket", err);
    *ret = (struct docker_endpoint){.transport = DOCKER_UNIX, .path = xstrdup(path)};
    return 0;
}

static int endpoint_unsupported(const char *scheme, const char *hint, struct err *err)
{
    err_set(err, ERR_UNSUPPORTED, "engine address: %s is not supported", scheme);
    return err_hint(err, "%s", hint);
}

static int endpoint_parse_scheme(const char *text, struct docker_endpoint *ret, struct err *err)
{
    const char *sep = strstr(text, "://");
    size_t n = sep ? (size_t)(sep - text) : 0;
    const char *rest = sep ? sep + 3 : NULL;

    if (text[0] == '/')
        return endpoint_parse_unix(text, text, ret, err);
    if (!sep)
        return endpoint_bad(text, "the scheme is missing", err);
    if (n == 4 && strncmp(text, "unix", n) == 0)
        return endpoint_parse_unix(text, rest, ret, err);
    if (n == 3 && strncmp(text, "tcp", n) == 0)
        return endpoint_parse_network(text, rest, false, ret, err);
    if (n == 3 && strncmp(text, "tls", n) == 0)
        return endpoint_parse_network(text, rest, true, ret, err);
    if (n == 3 && strncmp(text, "ssh", n) == 0)
        return endpoint_unsupported(
            "ssh://",
            "Forward the socket: 'ssh -N -L /run/user/ID/engine.sock:"
            "/var/run/docker.sock HOST', and use unix:///run/user/ID/engine.sock.",
            err);
    if (n == 5 && strncmp(text, "npipe", n) == 0)
        return endpoint_unsupported("npipe:// (Windows pipes)",
                                    "In WSL 2 use Docker Desktop's unix:///var/run/docker.sock.",
                                    err);
    return endpoint_bad(text, "the scheme must be unix, tcp or tls", err);
}

int docker_endpoint_parse(const char *text, struct docker_endpoint *ret, struct err *err)
{
    if (strnlen(text, TEXT_MAX + 1) > TEXT_MAX)
        return endpoint_bad(text, "too long", err);
    if (!endpoint_is_clean(text))
        return endpoint_bad(text, "must not have blanks or control bytes", err);
    return endpoint_parse_scheme(text, ret, err);
}

char *docker_endpoint_text(const struct docker_endpoint *e)
{
    bool v6 = e->host && strchr(e->host, ':');

    if (e->transport == DOCKER_UNIX)
        return xasprintf("unix://%s", e->path);
    return xasprintf("%s://%s%s%s:%u%s%s", e->transport == DOCKER_TLS ? "tls" : "tcp",
                     v6 ? "[" : "", e->host, v6 ? "]" : "", e->port, e->certs ? "?certs=" : "",
                     e->certs ? e->certs : "");
}
