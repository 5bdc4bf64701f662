/*
 * What somebody set is never second-guessed: a DOCKER_HOST that does not answer is an error, not a
 * reason to look elsewhere and work on another engine than the one meant.
 */
#include "docker/endpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/strv.h"
#include "base/text.h"
#include "base/xalloc.h"
#include "docker/connect.h"

enum { TEXT_MAX = 4096, HOST_MAX = 253, PORT_TCP = 2375, PORT_TLS = 2376, PROBE_SECONDS = 2 };

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

/* Foreign words in a message: one line, no control bytes, not too long. */
static char *shown(const char *s)
{
    struct buf b = BUF_INIT(1024);

    if (text_escape(&b, s, strnlen(s, 200)) < 0)
        buf_clear(&b);
    return buf_steal(&b);
}

static int bad(const char *text, const char *why, struct err *err)
{
    _cleanup_free_ char *safe = shown(text);

    err_set(err, ERR_INVALID, "'%s' is not an engine's address: %s", safe, why);
    return err_hint(err, "Write unix:///path/to/docker.sock, tcp://host:2375 or tls://host:2376.");
}

static bool is_clean(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s <= 0x20 || *s == 0x7f)
            return false;
    return true;
}

/* Letters, digits, '.', '-', '_'; for an address in brackets also ':' and '%' (a zone). */
static bool is_host(const char *s, bool brackets)
{
    const char *extra = brackets ? ":%." : ".-_";
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') ||
              (s[i] >= 'A' && s[i] <= 'Z') || strchr(extra, s[i])))
            return false;
    return n > 0 && n <= HOST_MAX && (brackets || s[0] != '-');
}

/* Cuts "host:port" or "[v6]:port" in place. */
static const char *cut_authority(char *s, char **ret_host, const char **ret_port)
{
    bool brackets = s[0] == '[';
    char *end = brackets ? strchr(s, ']') : s + strcspn(s, ":");
    char *host = brackets ? s + 1 : s;

    if (!end)
        return "the bracket of the address is not closed";
    if (brackets)
        *end++ = '\0';
    if (*end != '\0' && *end != ':')
        return "there is something between the host and the port";
    *ret_port = *end == ':' ? end + 1 : NULL;
    *end = '\0';
    if (!is_host(host, brackets))
        return "the host is not a name or address";
    *ret_host = host;
    return NULL;
}

static int parse_network(const char *text, const char *rest, bool tls, struct docker_endpoint *ret,
                         struct err *err)
{
    _cleanup_free_ char *copy = xstrdup(rest);
    char *query = strchr(copy, '?'), *slash, *host = NULL;
    const char *port = NULL, *why;
    uint32_t number = tls ? PORT_TLS : PORT_TCP;

    if (query)
        *query++ = '\0';
    slash = strchr(copy, '/');
    if (slash && slash[1])
        return bad(text, "a path on the engine's host is not supported", err);
    if (slash)
        *slash = '\0';
    why = cut_authority(copy, &host, &port);
    if (why)
        return bad(text, why, err);
    if (port && parse_u32(port, 1, UINT16_MAX, &number, NULL) < 0)
        return bad(text, "the port is not a number from 1 to 65535", err);
    if (query && (!tls || strncmp(query, "certs=/", strlen("certs=/")) != 0))
        return bad(text, "only tls:// takes something behind a '?': certs=/folder", err);
    *ret = (struct docker_endpoint){
        .transport = tls ? DOCKER_TLS : DOCKER_TCP,
        .host = xstrdup(host),
        .port = (uint16_t)number,
        .certs = query ? xstrdup(query + strlen("certs=")) : NULL,
    };
    return 0;
}

static int parse_unix(const char *text, const char *path, struct docker_endpoint *ret,
                      struct err *err)
{
    size_t len = strlen(path);

    if (path[0] != '/')
        return bad(text, "the path of the socket is not absolute", err);
    if (len < 2 || path[len - 1] == '/')
        return bad(text, "the path names a folder, not a socket", err);
    *ret = (struct docker_endpoint){.transport = DOCKER_UNIX, .path = xstrdup(path)};
    return 0;
}

static int unsupported(const char *scheme, const char *hint, struct err *err)
{
    err_set(err, ERR_UNSUPPORTED, "ripcord does not reach engines over %s", scheme);
    return err_hint(err, "%s", hint);
}

static int parse_scheme(const char *text, struct docker_endpoint *ret, struct err *err)
{
    const char *sep = strstr(text, "://");
    size_t n = sep ? (size_t)(sep - text) : 0;
    const char *rest = sep ? sep + 3 : NULL;

    if (text[0] == '/')
        return parse_unix(text, text, ret, err);
    if (!sep)
        return bad(text, "there is no scheme", err);
    if (n == 4 && strncmp(text, "unix", n) == 0)
        return parse_unix(text, rest, ret, err);
    if (n == 3 && strncmp(text, "tcp", n) == 0)
        return parse_network(text, rest, false, ret, err);
    if (n == 3 && strncmp(text, "tls", n) == 0)
        return parse_network(text, rest, true, ret, err);
    if (n == 3 && strncmp(text, "ssh", n) == 0)
        return unsupported("ssh://",
                           "Forward its socket: 'ssh -N -L /run/user/ID/engine.sock:"
                           "/var/run/docker.sock HOST', and use unix:///run/user/ID/engine.sock.",
                           err);
    if (n == 5 && strncmp(text, "npipe", n) == 0)
        return unsupported("npipe:// (Windows pipes)",
                           "In WSL 2 use Docker Desktop's unix:///var/run/docker.sock.", err);
    return bad(text, "the scheme is not unix, tcp or tls", err);
}

int docker_endpoint_parse(const char *text, struct docker_endpoint *ret, struct err *err)
{
    if (strnlen(text, TEXT_MAX + 1) > TEXT_MAX)
        return bad(text, "it is too long", err);
    if (!is_clean(text))
        return bad(text, "it holds a blank or control byte", err);
    return parse_scheme(text, ret, err);
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

/* A variable that is set and not empty. */
static const char *env_get(docker_env_fn env, const char *name)
{
    const char *v = env(name);

    return v && *v ? v : NULL;
}

/* The CLI's rule for where certificates lie, but for one thing: here they are always verified. */
static int add_tls(struct docker_endpoint *e, docker_env_fn env, struct err *err)
{
    const char *certs = env_get(env, "DOCKER_CERT_PATH"), *home = env_get(env, "HOME");
    _cleanup_free_ char *folder = NULL;

    if (e->transport == DOCKER_UNIX || e->certs)
        return 0;
    if (e->transport == DOCKER_TCP && !certs && !env_get(env, "DOCKER_TLS_VERIFY"))
        return 0;
    if (certs)
        folder = xstrdup(certs);
    else if (home)
        folder = xasprintf("%s/.docker", home);
    if (!folder || folder[0] != '/') {
        err_set(err, ERR_INVALID, "TLS is asked for, but not where its certificates lie");
        return err_hint(err, "Set DOCKER_CERT_PATH to the folder with ca.pem, cert.pem, key.pem.");
    }
    docker_endpoint_use_tls(e, folder);
    return 0;
}

static int take(const char *text, const char *source, docker_env_fn env,
                struct docker_endpoint *ret, struct err *err)
{
    _cleanup_endpoint_ struct docker_endpoint e = {0};
    int r;

    r = docker_endpoint_parse(text, &e, err);
    if (r >= 0)
        r = add_tls(&e, env, err);
    if (r < 0)
        return err_wrap(err, "%s", source);
    *ret = e;
    e = (struct docker_endpoint){0};
    return 0;
}

static char **usual_sockets(docker_env_fn env)
{
    const char *run = env_get(env, "XDG_RUNTIME_DIR");
    char **v = NULL;

    strv_add(&v, "/var/run/docker.sock");
    if (run && run[0] == '/')
        strv_push(&v, xasprintf("%s/docker.sock", run));
    strv_add(&v, "/run/podman/podman.sock");
    if (run && run[0] == '/')
        strv_push(&v, xasprintf("%s/podman/podman.sock", run));
    return v;
}

static bool accepts(const char *path, char ***tried)
{
    struct docker_endpoint e = {.transport = DOCKER_UNIX, .path = (char *)path};
    struct deadline by = deadline_in(PROBE_SECONDS * USEC_PER_SEC);
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_close_ int fd = -1;

    if (docker_dial(&e, &by, &fd, &err) >= 0)
        return true;
    strv_push(tried, xasprintf("%s (%s)", path, err.errnum ? strerror(err.errnum) : err.msg));
    return false;
}

static int find_usual(docker_env_fn env, struct docker_endpoint *ret, struct err *err)
{
    _cleanup_strv_ char **sockets = usual_sockets(env), **tried = NULL;
    _cleanup_free_ char *list = NULL;

    for (char **s = sockets; *s; s++)
        if (accepts(*s, &tried)) {
            *ret = (struct docker_endpoint){.transport = DOCKER_UNIX, .path = xstrdup(*s)};
            return 0;
        }
    list = strv_join(tried, ", ");
    err_set(err, ERR_ENGINE, "no Docker or Podman engine found; tried %s", list);
    return err_hint(err, "Start one ('systemctl start docker', 'systemctl --user start "
                         "podman.socket'), join its group, or set DOCKER_HOST.");
}

int docker_endpoint_find(const char *configured, docker_env_fn env, struct docker_endpoint *ret,
                         struct err *err)
{
    static const char *const names[] = {"DOCKER_HOST", "CONTAINER_HOST"};

    if (configured && *configured)
        return take(configured, "configured engine", env, ret, err);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (env_get(env, names[i]))
            return take(env_get(env, names[i]), names[i], env, ret, err);
    return find_usual(env, ret, err);
}
