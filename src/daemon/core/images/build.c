#include "daemon/core/images/build.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/caches/mount-caches.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "image/oci/reference.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { BUILD_TAGS_MAX = 64 };

struct manager_build {
    struct manager *m;
    struct manager_build *next, **self; /* in m->builds */
    struct build *build;
    struct build_events events; /* of the caller; empty: the caller is gone or has got `done` */
    void *arg;
};

char *build_end_line(const struct err *err, const char *json)
{
    _cleanup_json_ json_t *doc = err ? json_from_err(err) : json_object();
    _cleanup_free_ char *text = NULL;

    json_object_set_new(doc, "event", json_string("end"));
    if (!err)
        json_object_set_new(doc, "image", json_loads(json, 0, NULL));
    text = json_to_text(doc, false);
    return xasprintf("%s\n", text);
}

/* ---- the request ---- */

static bool build_is_inside(const char *path)
{
    if (!*path || *path == '/')
        return false;
    for (const char *p = path; *p; p += *p == '/') {
        size_t n = strcspn(p, "/");

        if (n == 2 && p[0] == '.' && p[1] == '.')
            return false;
        p += n;
    }
    return true;
}

static int build_check_tags(const struct build_request *req, struct err *err)
{
    if (strv_len(req->tags) > BUILD_TAGS_MAX)
        return err_set(err, ERR_LIMIT, "too many tags (limit %d)", BUILD_TAGS_MAX);
    for (char **t = req->tags; t && *t; t++) {
        _cleanup_free_ char *name = NULL;
        int r = reference_parse(*t, &name, err);

        if (r < 0)
            return err_wrap(err, "tag '%s'", *t);
    }
    return 0;
}

static int build_check_agents(const struct build_request *req, struct err *err)
{
    if (strv_len(req->agents) > BUILD_AGENTS_MAX)
        return err_set(err, ERR_LIMIT, "too many ssh agents (limit %d)", BUILD_AGENTS_MAX);
    for (char **a = req->agents; a && *a; a++) {
        const char *equals = strchr(*a, '=');
        _cleanup_free_ char *id = xstrndup(*a, equals ? (size_t)(equals - *a) : 0);

        if (!equals || equals[1] != '/' || strlen(equals + 1) >= PATH_MAX)
            return err_set(err, ERR_INVALID, "ssh agent '%.100s' must be ID=/PATH", *a);
        if (parse_secret_name(id, err) < 0)
            return err_wrap(err, "ssh agent '%.100s'", *a);
    }
    return 0;
}

static int build_check_request(const struct build_request *req, struct err *err)
{
    enum spec_network network;
    int r;

    if (!build_is_inside(req->dockerfile))
        return err_set(err, ERR_INVALID, "the Dockerfile '%s' must be a path inside the context",
                       req->dockerfile);
    if (req->target && !*req->target)
        return err_set(err, ERR_INVALID, "the name of the target stage is empty");
    if (req->network && spec_network_parse(req->network, &network, err) < 0)
        return err_wrap(err, "network of a build");
    for (char **a = req->args; a && *a; a++)
        if (!strchr(*a, '=') || **a == '=')
            return err_set(err, ERR_INVALID, "build argument '%s' must be NAME=VALUE", *a);
    r = build_check_agents(req, err);
    return r < 0 ? r : build_check_tags(req, err);
}

/* ---- running builds ---- */

static void build_on_lines(void *arg, const char *text, size_t len)
{
    struct manager_build *mb = arg;

    if (mb->events.lines)
        mb->events.lines(mb->arg, text, len);
}

static void build_report_done(struct manager_build *mb, const struct err *err, const char *json)
{
    struct build_events events = mb->events;

    mb->events = (struct build_events){0};
    if (events.done)
        events.done(mb->arg, err, json);
}

static void build_on_done(void *arg, const struct err *err, const char *json)
{
    struct manager_build *mb = arg;

    mb->m->background_calls--;
    *mb->self = mb->next;
    if (mb->next)
        mb->next->self = mb->self;
    build_report_done(mb, err, json);
    mounts_keep_budget(mb->m);
    free(mb);
}

static struct manager_build *build_add(struct manager *m, const struct build_events *events,
                                       void *arg)
{
    struct manager_build *mb = xnew0(struct manager_build);

    *mb = (struct manager_build){
        .m = m, .next = m->builds, .self = &m->builds, .events = *events, .arg = arg};
    if (mb->next)
        mb->next->self = &mb->next;
    m->builds = mb;
    m->background_calls++;
    return mb;
}

/* Checks the request and the state of the daemon, and chooses the engine. */
static int build_prepare(struct manager *m, const char *engine, const struct build_request *req,
                         struct engine **ret, struct err *err)
{
    int r = build_check_request(req, err);

    if (r < 0)
        return r;
    if (m->closing)
        return err_set(err, ERR_CONFLICT, "the daemon is shutting down");
    r = disk_floor_check(m, err);
    if (r < 0)
        return r;
    *ret = manager_engine(m, engine ? engine : m->config.default_engine, err);
    return *ret ? 0 : -(int)(err ? err->code : ERR_SYSTEM);
}

int manager_build(struct manager *m, const char *engine, struct build_request *req,
                  struct build_body *body, const struct build_events *events, void *arg,
                  struct manager_build **ret, struct err *err)
{
    static const struct build_events own = {build_on_lines, build_on_done};
    struct manager_build *mb;
    struct engine *e = NULL;
    int r = build_prepare(m, engine, req, &e, err);

    if (r < 0) {
        build_request_done(req);
        body->fd = fd_close(body->fd);
        return r;
    }
    mb = build_add(m, events, arg);
    body->dir = m->config.state_dir;
    r = engine_build(e, req, body, &own, mb, &mb->build, err);
    if (r < 0) {
        mb->events = (struct build_events){0};
        build_on_done(mb, NULL, NULL);
        return r;
    }
    *ret = mb;
    return 0;
}

void manager_build_hold(struct manager_build *mb, bool on)
{
    build_hold(mb->build, on);
}

void manager_build_drop(struct manager_build *mb)
{
    mb->events = (struct build_events){0};
    build_cancel(mb->build);
}

void builds_end(struct manager *m)
{
    _cleanup_err_ struct err err = ERR_INIT;

    err_set(&err, ERR_CONFLICT, "the build was cancelled: the daemon is shutting down");
    for (struct manager_build *mb = m->builds; mb; mb = mb->next) {
        build_cancel(mb->build);
        build_report_done(mb, &err, NULL);
    }
}
