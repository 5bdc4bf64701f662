#include "daemon/api/routes.h"

#include <string.h>

#include "daemon/api/call.h"
#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/http/server/http-server.h"

/* clang-format off */
static const struct route routes[] = {
    {"GET",    "/healthz",                                handle_health,              0, {NULL}},
    {"GET",    "/readyz",                                 handle_ready,               0, {NULL}},
    {"GET",    "/v1/version",                             handle_version,             0, {NULL}},
    {"GET",    "/v1/config",                              handle_config,              0, {NULL}},
    {"GET",    "/v1/openapi.json",                        handle_openapi,             0, {NULL}},
    {"GET",    "/v1/engines",                             handle_engines,             0, {NULL}},
    {"GET",    "/v1/caches",                              handle_caches,              0, {NULL}},
    {"GET",    "/v1/caches/tools",                        handle_tool_caches,         0, {NULL}},
    {"POST",   "/v1/caches/tools/warm",                   handle_cache_warm,          ROUTE_BODY | ROUTE_KEY, {NULL}},
    {"POST",   "/v1/caches/tools/prune",                  handle_tool_prune,          ROUTE_BODY, {NULL}},
    {"GET",    "/v1/caches/mounts",                       handle_mount_caches,        0, {NULL}},
    {"DELETE", "/v1/caches/mounts",                       handle_mount_cache_remove,  0, {"id"}},
    {"POST",   "/v1/caches/mounts/prune",                 handle_mount_cache_prune,   ROUTE_BODY, {NULL}},
    {"GET",    "/v1/caches/packages",                     handle_cache_list,          0, {NULL}},
    {"GET",    "/v1/caches/packages/show",                handle_cache_show,          0, {"of"}},
    {"POST",   "/v1/caches/packages/verify",              handle_cache_verify,        ROUTE_BODY, {NULL}},
    {"POST",   "/v1/caches/packages/prune",               handle_cache_prune,         ROUTE_BODY, {NULL}},
    {"POST",   "/v1/doctor",                              handle_doctor,              ROUTE_BODY, {NULL}},
    {"GET",    "/v1/events",                              handle_events,              ROUTE_LIVE | ROUTE_FOLLOW, {"since", "follow", "sandbox", "kind"}},
    {"GET",    "/v1/execs",                               handle_exec_list_all,       ROUTE_FRESH_STATE, {"all", "limit", "after"}},
    {"GET",    "/v1/images",                              handle_image_list,          0, {"engine"}},
    {"POST",   "/v1/images",                              handle_image_import,        ROUTE_STREAM | ROUTE_LIVE, {"engine", "name"}},
    {"DELETE", "/v1/images",                              handle_image_remove,        ROUTE_FRESH_STATE, {"engine", "name"}},
    {"GET",    "/v1/images/export",                       handle_image_export,        ROUTE_LIVE | ROUTE_FOLLOW, {"engine", "name", "format"}},
    {"POST",   "/v1/images/build",                        handle_image_build,         ROUTE_STREAM | ROUTE_LIVE, {"dockerfile", "tag", "arg", "target", "platform", "engine", "network", "no_cache", "pull", "secrets", "logins", "ssh"}},
    {"POST",   "/v1/images/pull",                         handle_image_pull,          ROUTE_BODY | ROUTE_LIVE, {"engine"}},
    {"POST",   "/v1/images/push",                         handle_image_push,          ROUTE_BODY | ROUTE_LIVE, {NULL}},
    {"GET",    "/v1/images/show",                         handle_image_show,          0, {"engine", "name"}},
    {"POST",   "/v1/images/prune",                        handle_image_prune,         ROUTE_BODY | ROUTE_FRESH_STATE, {"engine"}},
    {"GET",    "/v1/reconcile",                           handle_reconcile_get,       0, {"run", "brief"}},
    {"POST",   "/v1/reconcile",                           handle_reconcile,           ROUTE_BODY, {NULL}},
    {"GET",    "/v1/sandboxes",                           handle_sandbox_list,        ROUTE_FRESH_STATE | ROUTE_SOON, {"limit", "after", "label", "state", "engine", "prefix"}},
    {"PUT",    "/v1/sandboxes/*",                         handle_sandbox_ensure,      ROUTE_BODY, {NULL}},
    {"GET",    "/v1/sandboxes/*",                         handle_sandbox_get,         ROUTE_FRESH_STATE | ROUTE_SOON, {NULL}},
    {"PATCH",  "/v1/sandboxes/*",                         handle_sandbox_lease,       ROUTE_BODY | ROUTE_FRESH_STATE, {NULL}},
    {"DELETE", "/v1/sandboxes/*",                         handle_sandbox_remove,      0, {"force"}},
    {"POST",   "/v1/sandboxes/*/stop",                    handle_sandbox_stop,        ROUTE_BODY, {NULL}},
    {"POST",   "/v1/sandboxes/*/pause",                   handle_sandbox_pause,       ROUTE_BODY, {NULL}},
    {"POST",   "/v1/sandboxes/*/resume",                  handle_sandbox_resume,      ROUTE_BODY, {NULL}},
    {"POST",   "/v1/sandboxes/*/execs",                   handle_exec_start,          ROUTE_BODY | ROUTE_MAY_UPGRADE | ROUTE_KEY | ROUTE_EXEC, {"wait"}},
    {"GET",    "/v1/sandboxes/*/execs",                   handle_exec_list,           ROUTE_FRESH_STATE, {"limit", "after"}},
    {"GET",    "/v1/sandboxes/*/execs/*",                 handle_exec_get,            ROUTE_FRESH_STATE, {"wait", "output", "output_max"}},
    {"GET",    "/v1/sandboxes/*/execs/*/stdout",          handle_exec_stdout,         ROUTE_FRESH_STATE | ROUTE_FOLLOW, {"offset", "follow"}},
    {"GET",    "/v1/sandboxes/*/execs/*/times",           handle_exec_times,          ROUTE_FRESH_STATE, {NULL}},
    {"GET",    "/v1/sandboxes/*/execs/*/stderr",          handle_exec_stderr,         ROUTE_FRESH_STATE | ROUTE_FOLLOW, {"offset", "follow"}},
    {"POST",   "/v1/sandboxes/*/execs/*/attach",          handle_exec_attach,         ROUTE_BODY | ROUTE_UPGRADE | ROUTE_FRESH_STATE, {"stdout_offset", "stderr_offset"}},
    {"GET",    "/v1/sandboxes/*/execs/*/attach",          handle_exec_socket,         ROUTE_WEBSOCKET | ROUTE_LIVE | ROUTE_FRESH_STATE, {"stdout_offset", "stderr_offset", "ticket"}},
    {"POST",   "/v1/sandboxes/*/execs/*/signal",          handle_exec_signal,         ROUTE_BODY | ROUTE_FRESH_STATE, {NULL}},
    {"POST",   "/v1/sandboxes/*/execs/*/kill",            handle_exec_kill,           ROUTE_BODY | ROUTE_FRESH_STATE, {NULL}},
    {"GET",    "/v1/sandboxes/*/execs/*/stream",          handle_exec_stream,         ROUTE_FRESH_STATE | ROUTE_FOLLOW, {"stdout_offset", "stderr_offset"}},
    {"POST",   "/v1/sandboxes/*/execs/*/stdin",           handle_exec_stdin,          ROUTE_STREAM | ROUTE_LIVE | ROUTE_FRESH_STATE, {"offset"}},
    {"POST",   "/v1/sandboxes/*/execs/*/stdin/close",     handle_exec_stdin_close,    ROUTE_BODY | ROUTE_FRESH_STATE, {NULL}},
    {"POST",   "/v1/sandboxes/*/execs/*/resize",          handle_exec_resize,         ROUTE_BODY | ROUTE_FRESH_STATE, {NULL}},
    {"POST",   "/v1/sandboxes/*/sessions",                handle_session_start,       ROUTE_BODY | ROUTE_FRESH_STATE | ROUTE_KEY | ROUTE_EXEC, {NULL}},
    {"GET",    "/v1/sandboxes/*/sessions",                handle_session_list,        ROUTE_FRESH_STATE, {"limit", "after"}},
    {"GET",    "/v1/sandboxes/*/sessions/*",              handle_session_get,         ROUTE_FRESH_STATE, {NULL}},
    {"GET",    "/v1/sandboxes/*/sessions/*/events",       handle_session_events,      ROUTE_LIVE | ROUTE_FRESH_STATE | ROUTE_FOLLOW, {"since", "follow"}},
    {"POST",   "/v1/sandboxes/*/sessions/*/cancel",       handle_session_cancel,      ROUTE_BODY | ROUTE_FRESH_STATE, {NULL}},
    {"GET",    "/v1/sandboxes/*/files",                   handle_files_get,           ROUTE_LIVE | ROUTE_FRESH_STATE, {"path", "path_base64", "user"}},
    {"PUT",    "/v1/sandboxes/*/files",                   handle_files_put,           ROUTE_STREAM | ROUTE_LIVE | ROUTE_FRESH_STATE, {"path", "path_base64", "user", "owner", "mode", "parents", "atomic"}},
    {"POST",   "/v1/sandboxes/*/files/stat",                  handle_file_op,             ROUTE_BODY | ROUTE_FRESH_STATE, {NULL}},
    {"POST",   "/v1/sandboxes/*/files/list",                  handle_file_op,             ROUTE_BODY | ROUTE_FRESH_STATE, {NULL}},
    {"POST",   "/v1/sandboxes/*/files/mkdir",                 handle_file_op,             ROUTE_BODY | ROUTE_FRESH_STATE | ROUTE_KEY, {NULL}},
    {"POST",   "/v1/sandboxes/*/files/remove",                handle_file_op,             ROUTE_BODY | ROUTE_FRESH_STATE | ROUTE_KEY, {NULL}},
    {"POST",   "/v1/sandboxes/*/files/move",                  handle_file_op,             ROUTE_BODY | ROUTE_FRESH_STATE | ROUTE_KEY, {NULL}},
    {"POST",   "/v1/sandboxes/*/files/copy",                  handle_file_op,             ROUTE_BODY | ROUTE_FRESH_STATE | ROUTE_KEY, {NULL}},
    {"POST",   "/v1/sandboxes/*/files/chmod",                 handle_file_op,             ROUTE_BODY | ROUTE_FRESH_STATE | ROUTE_KEY, {NULL}},
    {"POST",   "/v1/sandboxes/*/files/find",                  handle_file_op,             ROUTE_BODY | ROUTE_FRESH_STATE, {NULL}},
    {"POST",   "/v1/sandboxes/*/files/grep",                  handle_file_op,             ROUTE_BODY | ROUTE_FRESH_STATE, {NULL}},
    {"POST",   "/v1/sandboxes/*/files/edit",                  handle_file_op,             ROUTE_BODY | ROUTE_FRESH_STATE | ROUTE_KEY, {NULL}},
    {"GET",    "/v1/sandboxes/*/files/watch",                 handle_file_watch,          ROUTE_LIVE | ROUTE_FRESH_STATE | ROUTE_FOLLOW, {"path", "path_base64", "user", "recursive"}},
    {"POST",   "/v1/sandboxes/*/links",                   handle_port_link,           ROUTE_BODY | ROUTE_FRESH_STATE, {NULL}},
    {"GET",    "/v1/sandboxes/*/ports",                   handle_port_list,           ROUTE_LIVE | ROUTE_FRESH_STATE, {NULL}},
    {"GET",    "/v1/sandboxes/*/ports/*",                 handle_port,                ROUTE_TUNNEL | ROUTE_LIVE | ROUTE_FRESH_STATE, {NULL}},
    {"POST",   "/v1/session",                             handle_web_session_begin,   ROUTE_BODY, {NULL}},
    {"DELETE", "/v1/session",                             handle_web_session_end,     0, {NULL}},
    {"POST",   "/v1/tickets",                             handle_web_ticket,          ROUTE_BODY, {NULL}},
    {"POST",   "/v1/run",                                 handle_run,                 ROUTE_BODY | ROUTE_MAY_UPGRADE | ROUTE_KEY | ROUTE_EXEC, {"wait"}},
};
/* clang-format on */

/* Paths that were renamed. The old ones work for one more version, and the answer says so. */
static const struct route_rename renames[] = {
    {"/v1/caches/registry", "/v1/caches/packages"},
};

/* The length of the segment at p; p points behind a '/'. */
static size_t routes_segment_len(const char *p)
{
    return strcspn(p, "/");
}

static bool routes_match(const char *pattern, const char *path)
{
    while (*pattern == '/' && *path == '/') {
        size_t want = routes_segment_len(++pattern), have = routes_segment_len(++path);
        bool any = want == 1 && *pattern == '*';

        if (!have || (!any && (want != have || memcmp(pattern, path, want) != 0)))
            return false;
        pattern += want;
        path += have;
    }
    return !*pattern && !*path;
}

/* HEAD is GET without the body. An answer that goes on for ever has no head alone. */
static bool routes_accept(const struct route *r, const char *method)
{
    return STREQ(r->method, method) ||
           (STREQ(method, "HEAD") && STREQ(r->method, "GET") &&
            !(r->flags & (ROUTE_FOLLOW | ROUTE_TUNNEL | ROUTE_WEBSOCKET)));
}

const struct route *routes_find(const char *method, const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
        if (routes_accept(&routes[i], method) && routes_match(routes[i].pattern, path))
            return &routes[i];
    return NULL;
}

char *routes_allowed(const char *path)
{
    _cleanup_strv_ char **methods = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        if (!routes_match(routes[i].pattern, path))
            continue;
        strv_push(&methods, xstrdup(routes[i].method));
        if (routes_accept(&routes[i], "HEAD"))
            strv_push(&methods, xstrdup("HEAD"));
    }
    return methods ? strv_join(methods, ", ") : NULL;
}

static int routes_check_parameter(const struct route *route, const char *name, struct err *err)
{
    const char *near;
    size_t n = 0;

    for (; n < ROUTE_QUERY_MAX && route->query[n]; n++)
        if (STREQ(route->query[n], name))
            return 0;
    err_set(err, ERR_INVALID, "unknown query parameter '%.60s'", name);
    near = strv_nearest(name, route->query, n);
    return near ? err_hint(err, "Did you mean '%s'?", near) : -ERR_INVALID;
}

int routes_check_query(const struct route *route, const char *query, struct err *err)
{
    _cleanup_strv_ char **given = NULL;
    int r = query ? http_query_names(query, &given, err) : 0;

    for (char **p = given; r >= 0 && p && *p; p++)
        r = routes_check_parameter(route, *p, err);
    return r;
}

bool routes_admits_pages(const struct route *route)
{
    static const char ports[] = "/v1/sandboxes/*/ports/";

    return strncmp(route->pattern, ports, sizeof(ports) - 1) != 0 || !GUARD("ports by token");
}

void routes_split(const struct route *route, char *path, const char **ret_params, size_t max)
{
    const char *pattern = route->pattern;
    size_t n = 0;

    while (*pattern == '/' && *path == '/') {
        size_t want = routes_segment_len(++pattern), have;

        *path++ = '\0';
        have = routes_segment_len(path);
        if (*pattern == '*' && n < max)
            ret_params[n++] = path;
        pattern += want;
        path += have;
    }
}

const char *routes_param_name(const struct route *route, size_t i)
{
    static const struct {
        const char *segment, *name;
    } names[] = {{"sandboxes/", "sandbox"},
                 {"execs/", "exec"},
                 {"sessions/", "session"},
                 {"ports/", "port"}};
    const char *p = strchr(route->pattern, '*');

    for (; p && i > 0; i--)
        p = strchr(p + 1, '*');
    for (size_t k = 0; p && k < ARRAY_SIZE(names); k++) {
        size_t len = strlen(names[k].segment);

        if ((size_t)(p - route->pattern) >= len && memcmp(p - len, names[k].segment, len) == 0)
            return names[k].name;
    }
    return "name";
}

const struct route_rename *routes_renamed(const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(renames); i++) {
        size_t len = strlen(renames[i].old);

        if (strncmp(path, renames[i].old, len) == 0 && (path[len] == '\0' || path[len] == '/'))
            return &renames[i];
    }
    return NULL;
}
