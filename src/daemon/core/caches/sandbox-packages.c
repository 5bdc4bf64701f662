#include "daemon/core/caches/sandbox-packages.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/core/events/events.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/packages/packages-proxy.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

/* Whether the sandbox uses the package cache. A closed engine has not reported its capabilities
 * yet; then the supervisor's answer decides. */
static bool sandbox_packages_is_used(const struct sandbox *sb, const struct sandbox_spec *spec)
{
    bool cannot = engine_is_open(sb->engine) && !(sb->engine->caps & ENGINE_CAP_NET_PACKAGES);

    return sb->m->config.packages && spec->network == SPEC_NETWORK_PACKAGES && !cannot;
}

static void sandbox_packages_on_listener(void *arg, const struct err *err, int fd)
{
    struct sandbox *sb = arg;
    int domain = 0;
    socklen_t len = sizeof(domain);

    if (err && (!sb->conn || supervisor_conn_is_over(sb->conn)))
        return; /* it ended by itself, perhaps at once: nothing is missing */
    if (err || fd < 0) {
        /* A supervisor of an earlier version does not know the request. */
        bool old = !err || err->code == ERR_UNSUPPORTED || err->code == ERR_NOT_FOUND;
        char *text = xasprintf(
            "network 'packages' has no package cache: %s",
            old ? "an earlier version started the sandbox; stop it and start it again" : err->msg);

        manager_warn(sb->m, "sandbox %s: %s", sb->name, text);
        strv_push(&sb->warnings, text);
        return;
    }
    /* A Unix socket leads to the relay, any other socket is in the sandbox's network namespace. */
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
    sb->packages_route = domain == AF_UNIX ? PACKAGES_ROUTE_STREAM : PACKAGES_ROUTE_SOCKET;
    packages_proxy_attach(sb->m->config.packages, sb->id, fd, sandbox_spec_is_confined(&sb->spec));
}

void sandbox_packages_linked(struct sandbox *sb)
{
    if (sandbox_packages_is_used(sb, &sb->spec))
        supervisor_conn_listener(sb->conn, sandbox_packages_on_listener, sb);
}

void sandbox_packages_unlinked(struct sandbox *sb)
{
    sb->packages_route = PACKAGES_ROUTE_NONE;
    if (sb->m->config.packages)
        packages_proxy_forget(sb->m->config.packages, sb->id);
}

void sandbox_packages_build(struct manager *m, const char *id, int fd)
{
    int own = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);

    if (!m->config.packages)
        fd_close(own);
    else if (own >= 0)
        packages_proxy_attach(m->config.packages, id, own, false);
    else
        packages_proxy_forget(m->config.packages, id);
}

const char *sandbox_packages_route(const struct sandbox *sb)
{
    static const char *const names[] = {NULL, "socket", "stream"};

    return names[sb->packages_route];
}

const char *sandbox_packages_trouble(const struct sandbox *sb)
{
    return sandbox_packages_is_used(sb, &sb->spec) ? packages_proxy_trouble(sb->m->config.packages)
                                                   : NULL;
}

static void sandbox_packages_on_answer(void *arg, const struct err *err, const char *json)
{
    struct op *op = arg;

    (void)json; /* any answer shows that it works */
    if (err)
        op_fail(op, err);
    else
        op->then(op);
}

void sandbox_packages_require(struct op *op, void (*then)(struct op *op))
{
    const struct manager_config *c = &op->sb->m->config;

    if (!c->packages_required || !sandbox_packages_is_used(op->sb, &op->want)) {
        then(op);
        return;
    }
    op->then = then;
    packages_proxy_ask(c->packages, &(struct packages_proxy_ask){.what = PACKAGES_PROXY_STATS},
                       sandbox_packages_on_answer, op);
}

void sandbox_packages_event(struct manager *m, const char *json)
{
    _cleanup_free_ char *id = NULL;
    const struct sandbox *sb;
    const char *type;
    char kind[EVENT_KIND_MAX];
    json_t *doc = NULL;

    if (json_parse("event of the package cache", json, strlen(json), &doc, NULL) < 0)
        return;
    type = json_string_value(json_object_get(doc, "type"));
    snprintf(kind, sizeof(kind), "packages.%.20s", type ? type : "unknown");
    if (json_string_length(json_object_get(doc, "sandbox")))
        id = xstrdup(json_string_value(json_object_get(doc, "sandbox")));
    json_object_del(doc, "type");
    json_object_del(doc, "sandbox");
    sb = id ? manager_find_id(m, id) : NULL;
    events_emit_of(m->config.events, kind, id, sb ? sb->name : NULL, NULL, doc);
}
