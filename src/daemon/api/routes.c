#include "daemon/api/routes.h"

#include <string.h>

#include "daemon/api/call.h"

/* clang-format off */
static const struct route routes[] = {
    {"GET",    "/healthz",                          handle_health,         0},
    {"GET",    "/readyz",                           handle_ready,          0},
    {"GET",    "/v1/version",                       handle_version,        0},
    {"GET",    "/v1/config",                        handle_config,         0},
    {"GET",    "/v1/engines",                       handle_engines,        0},
    {"GET",    "/v1/caches",                        handle_caches,         0},
    {"GET",    "/v1/caches/tools",                  handle_tool_caches,    0},
    {"POST",   "/v1/caches/tools/warm",             handle_cache_warm,     ROUTE_BODY},
    {"POST",   "/v1/caches/tools/prune",            handle_tool_prune,     ROUTE_BODY},
    {"GET",    "/v1/caches/mounts",                 handle_mount_caches,   0},
    {"DELETE", "/v1/caches/mounts",                 handle_mount_cache_remove, 0},
    {"POST",   "/v1/caches/mounts/prune",           handle_mount_cache_prune, ROUTE_BODY},
    {"GET",    "/v1/caches/packages",               handle_cache_list,     0},
    {"GET",    "/v1/caches/packages/show",          handle_cache_show,     0},
    {"POST",   "/v1/caches/packages/verify",        handle_cache_verify,   ROUTE_BODY},
    {"POST",   "/v1/caches/packages/prune",         handle_cache_prune,    ROUTE_BODY},
    {"GET",    "/v1/events",                        handle_events,         ROUTE_LIVE},
    {"GET",    "/v1/execs",                         handle_exec_list_all,  ROUTE_FRESH_STATE},
    {"GET",    "/v1/images",                        handle_image_list,     0},
    {"POST",   "/v1/images",                        handle_image_import,   ROUTE_STREAM | ROUTE_LIVE},
    {"DELETE", "/v1/images",                        handle_image_remove,   ROUTE_FRESH_STATE},
    {"GET",    "/v1/images/export",                 handle_image_export,   ROUTE_LIVE},
    {"POST",   "/v1/images/build",                  handle_image_build,    ROUTE_STREAM | ROUTE_LIVE},
    {"POST",   "/v1/images/pull",                   handle_image_pull,     ROUTE_BODY | ROUTE_LIVE},
    {"POST",   "/v1/images/push",                   handle_image_push,     ROUTE_BODY | ROUTE_LIVE},
    {"GET",    "/v1/images/show",                   handle_image_show,     0},
    {"POST",   "/v1/images/prune",                  handle_image_prune,    ROUTE_BODY | ROUTE_FRESH_STATE},
    {"GET",    "/v1/reconcile",                     handle_reconcile_get,  0},
    {"POST",   "/v1/reconcile",                     handle_reconcile,      ROUTE_BODY},
    {"GET",    "/v1/sandboxes",                     handle_sandbox_list,   ROUTE_FRESH_STATE | ROUTE_SOON},
    {"PUT",    "/v1/sandboxes/*",                   handle_sandbox_ensure, ROUTE_BODY},
    {"GET",    "/v1/sandboxes/*",                   handle_sandbox_get,    ROUTE_FRESH_STATE | ROUTE_SOON},
    {"PATCH",  "/v1/sandboxes/*",                   handle_sandbox_lease,  ROUTE_BODY | ROUTE_FRESH_STATE},
    {"DELETE", "/v1/sandboxes/*",                   handle_sandbox_remove, 0},
    {"POST",   "/v1/sandboxes/*/stop",              handle_sandbox_stop,   ROUTE_BODY},
    {"POST",   "/v1/sandboxes/*/pause",             handle_sandbox_pause,  ROUTE_BODY},
    {"POST",   "/v1/sandboxes/*/resume",            handle_sandbox_resume, ROUTE_BODY},
    {"POST",   "/v1/sandboxes/*/execs",             handle_exec_start,     ROUTE_BODY | ROUTE_MAY_UPGRADE},
    {"GET",    "/v1/sandboxes/*/execs",             handle_exec_list,      ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/execs/*",           handle_exec_get,       ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/execs/*/stdout",    handle_exec_stdout,    ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/execs/*/stderr",    handle_exec_stderr,    ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/execs/*/attach",    handle_exec_attach,    ROUTE_BODY | ROUTE_UPGRADE | ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/execs/*/signal",    handle_exec_signal,    ROUTE_BODY | ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/execs/*/kill",      handle_exec_kill,      ROUTE_BODY | ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/execs/*/stream",    handle_exec_stream,    ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/execs/*/stdin",     handle_exec_stdin,     ROUTE_STREAM | ROUTE_LIVE | ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/execs/*/stdin/close", handle_exec_stdin_close, ROUTE_BODY | ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/execs/*/resize",    handle_exec_resize,    ROUTE_BODY | ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/sessions",          handle_session_start,  ROUTE_BODY | ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/sessions",          handle_session_list,   ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/sessions/*",        handle_session_get,    ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/sessions/*/events", handle_session_events, ROUTE_LIVE | ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/sessions/*/cancel", handle_session_cancel, ROUTE_BODY | ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/files",             handle_files_get,      ROUTE_LIVE | ROUTE_FRESH_STATE},
    {"PUT",    "/v1/sandboxes/*/files",             handle_files_put,      ROUTE_STREAM | ROUTE_LIVE | ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/ports/*",           handle_port,           ROUTE_TUNNEL | ROUTE_LIVE | ROUTE_FRESH_STATE},
    {"POST",   "/v1/run",                           handle_run,            ROUTE_BODY | ROUTE_MAY_UPGRADE},
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

const struct route *routes_find(const char *method, const char *path, bool *ret_path_known)
{
    *ret_path_known = false;
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        if (!routes_match(routes[i].pattern, path))
            continue;
        *ret_path_known = true;
        if (STREQ(routes[i].method, method))
            return &routes[i];
    }
    return NULL;
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

const struct route_rename *routes_renamed(const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(renames); i++) {
        size_t len = strlen(renames[i].old);

        if (strncmp(path, renames[i].old, len) == 0 && (path[len] == '\0' || path[len] == '/'))
            return &renames[i];
    }
    return NULL;
}
