/*
 * Requests of sandboxes. What is not one of the paths below does not exist: there is no way through
 * here to any address that the configuration or an index page has not named.
 *
 *   GET /pypi/simple/                              an empty list
 *   GET /pypi/simple/<name>/                       HTML or JSON, as asked
 *   GET /pypi/files/<name>/<sha256>/<file>[.metadata]
 *   GET /npm/<name>, /npm/@scope/<name>, /npm/@scope%2f<name>
 *   GET /npm/<name>/-/<file>.tgz
 *   GET /npm/-/ping, /npm/-/whoami, /npm/-/v1/search
 *   POST /npm/-/npm/v1/security/…                  no known problem
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/text.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "packages/npm.h"
#include "packages/packages.h"
#include "packages/pypi.h"

enum { MESSAGE_MAX = 2 << 10, REASON_MAX = 160 };

/* -- asks -- */

static struct packages_counters nobody;

struct packages_counters *ask_counters(struct ask *a)
{
    return a->box ? &a->box->counters[a->eco] : &nobody;
}

void ask_free(struct ask *a)
{
    struct packages_client *box = a->box;

    a->reg->asks--;
    fd_close(a->fd);
    err_done(&a->fetch_err);
    free(a->name);
    free(a->path);
    free(a->other_path);
    free(a->file);
    free(a->host);
    free(a);
    if (box)
        fetch_slot_next(box);
}

static void packages_serve_on_gone(struct http_req *req)
{
    struct ask *a = http_req_user(req);
    struct packages_client *box = a->box;

    a->req = NULL;
    a->box = NULL;
    if (a->state == ASK_PARKED)
        fetch_slot_leave(box, a);
    if (a->state == ASK_FETCH)
        page_fetch_leave(a);
    if (a->state == ASK_DOWNLOAD)
        package_download_leave(a);
    if (a->state != ASK_JOB) /* that one is freed when it comes back */
        ask_free(a);
    fetch_slot_next(box);
}

static struct ask *packages_serve_ask_new(struct packages_client *box, struct http_req *req,
                                          enum ecosystem eco)
{
    struct ask *a = xnew0(struct ask);

    a->reg = box->reg;
    a->box = box;
    a->req = req;
    a->eco = eco;
    a->fd = -1;
    a->head = STREQ(http_req_head(req)->method, "HEAD");
    a->reg->asks++;
    a->reg->counters[eco].requests++;
    box->counters[eco].requests++;
    http_req_set_user(req, a);
    http_req_on_gone(req, packages_serve_on_gone);
    return a;
}

/* -- errors: pip shows the reason phrase, npm the body's "error" -- */

static void packages_serve_reply_message(struct http_req *req, int status, const char *code,
                                         const char *msg, const char *extra)
{
    _cleanup_buf_ struct buf body = BUF_INIT(8 * MESSAGE_MAX);
    char reason[REASON_MAX];
    size_t n = 0;

    for (const char *p = msg; *p && n < sizeof(reason) - 1; p++)
        reason[n++] = (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f ? *p : '?';
    reason[n] = '\0';
    if (buf_append_str(&body, "{\"error\":\"") < 0 || text_escape_json(&body, msg) < 0 ||
        buf_appendf(&body, "\",\"code\":\"%s\"}\n", code) < 0)
        buf_clear(&body);
    http_reply_with(
        req,
        &(struct http_answer){
            .status = status, .reason = reason, .content_type = "application/json", .extra = extra},
        buf_data(&body), body.len);
}

static void packages_serve_count_failure(struct ask *a, enum err_code code)
{
    bool denied = code == ERR_DENIED;

    if (code == ERR_NOT_FOUND)
        return;
    a->reg->counters[a->eco].denials += denied;
    a->reg->counters[a->eco].errors += !denied;
    ask_counters(a)->denials += denied;
    ask_counters(a)->errors += !denied;
}

static void packages_serve_tell_denial(struct ask *a, const char *msg)
{
    if (!a->box || !packages_may_tell(a->box))
        return;
    packages_event(a->reg, "denied", "{s:s, s:s, s:s, s:s}", "sandbox", a->box->id, "ecosystem",
                   ecosystem_name(a->eco), "name", a->name ? a->name : "", "message", msg);
}

static void packages_serve_fail(struct ask *a, int status, enum err_code code, const char *msg)
{
    if (a->state == ASK_DOWNLOAD)
        package_download_leave(a); /* a file that is being written could not be read */
    packages_serve_count_failure(a, code);
    if (code == ERR_DENIED)
        packages_serve_tell_denial(a, msg);
    if (a->started)
        http_stream_abort(a->req);
    else
        packages_serve_reply_message(a->req, status, err_code_name(code), msg,
                                     status == 503 ? "Retry-After: 1\r\n" : NULL);
    ask_free(a);
}

/* An upstream's fault is a bad gateway, whatever we call it ourselves. */
void ask_fail(struct ask *a, const struct err *err)
{
    int status =
        err->code == ERR_INVALID || err->code == ERR_LIMIT ? 502 : err_code_http(err->code);

    packages_serve_fail(a, status, err->code, err->msg);
}

void ask_fail_status(struct ask *a, int status, enum err_code code, const char *fmt, ...)
{
    _cleanup_free_ char *msg = NULL;
    va_list ap;

    va_start(ap, fmt);
    msg = xvasprintf(fmt, ap);
    va_end(ap);
    packages_serve_fail(a, status, code, msg);
}

/* -- routes -- */

static bool packages_serve_take_token(struct packages_client *box)
{
    uint64_t rate = box->reg->config.requests_per_second, now = time_mono();
    uint64_t max = rate * 10 * 1000;

    if (rate == 0)
        return true;
    box->tokens = MIN(max, box->tokens + (now - box->tokens_at) * rate / 1000);
    box->tokens_at = now;
    if (box->tokens < 1000)
        return false;
    box->tokens -= 1000;
    return true;
}

/* The weight of a media type in an Accept field, in thousandths; -1 when it is not named. */
static int packages_serve_accept_weight(const char *accept, const char *type)
{
    const char *p = accept ? strcasestr(accept, type) : NULL;
    const char *q, *end;

    if (!p)
        return -1;
    end = p + strcspn(p, ",");
    q = memmem(p, (size_t)(end - p), "q=", 2);
    return q ? (int)(strtod(q + 2, NULL) * 1000) : 1000;
}

static bool packages_serve_wants_json(const char *accept)
{
    int json = MAX(packages_serve_accept_weight(accept, PYPI_JSON),
                   packages_serve_accept_weight(accept, "application/vnd.pypi.simple.latest+json"));
    int html = MAX(packages_serve_accept_weight(accept, "application/vnd.pypi.simple.v1+html"),
                   packages_serve_accept_weight(accept, "text/html"));

    return json > 0 && json >= html;
}

static const char *packages_serve_field(const struct http_req *req, const char *name)
{
    return http_field_get(http_req_head(req), name);
}

static bool packages_serve_route_upstream(struct ask *a)
{
    a->upstream = config_route(&a->reg->config, a->eco, a->name);
    if (a->upstream)
        return true;
    ask_fail_status(a, 404, ERR_NOT_FOUND, "no upstream is configured for '%s'", a->name);
    return false;
}

static char *packages_serve_page_path(const struct ask *a, bool full)
{
    const char *slash = strchr(a->name, '/');
    const char *eco = a->eco == ECO_NPM && full ? "npm-full" : ecosystem_name(a->eco);

    if (!slash)
        return xasprintf("pages/%s/%s/%s", eco, a->upstream->name, a->name);
    return xasprintf("pages/%s/%s/%.*s%%2f%s", eco, a->upstream->name, (int)(slash - a->name),
                     a->name, slash + 1);
}

static void packages_serve_ask_go(struct ask *a)
{
    if (!packages_serve_route_upstream(a))
        return;
    a->path = packages_serve_page_path(a, a->full);
    /* Who asks for a tarball has read one of the two documents; current npm reads the long one. */
    if (a->eco == ECO_NPM && a->kind == ASK_FILE)
        a->other_path = packages_serve_page_path(a, !a->full);
    pages_look(a);
}

static void packages_serve_redirect(struct http_req *req, const char *to)
{
    _cleanup_free_ char *extra = xasprintf("Location: %s\r\n", to);

    http_reply_with(req, &(struct http_answer){.status = 301, .extra = extra}, "", 0);
}

static void packages_serve_pypi_page(struct packages_client *box, struct http_req *req,
                                     const char *name, bool slash)
{
    char normal[NAME_MAX_LEN + 1];
    bool json = packages_serve_wants_json(packages_serve_field(req, "accept"));
    struct ask *a;

    if (!name_pypi(name, normal)) {
        packages_serve_reply_message(req, 400, "invalid", "not a name of a Python project", NULL);
        return;
    }
    if (!slash || !STREQ(name, normal)) {
        char to[NAME_MAX_LEN + 32];

        snprintf(to, sizeof(to), "/pypi/simple/%s/", normal);
        packages_serve_redirect(req, to);
        return;
    }
    a = packages_serve_ask_new(box, req, ECO_PYPI);
    a->name = xstrdup(normal);
    a->section = json ? "json" : "html";
    a->content_type = json ? PYPI_JSON : "text/html; charset=utf-8";
    packages_serve_ask_go(a);
}

static void packages_serve_pypi_file(struct packages_client *box, struct http_req *req,
                                     const char *name, const char *hex, const char *file)
{
    static const char suffix[] = ".metadata";
    size_t len = strlen(file), n = sizeof(suffix) - 1;
    char normal[NAME_MAX_LEN + 1];
    struct digest want;
    struct ask *a;

    if (!name_pypi(name, normal) || !STREQ(name, normal) || !name_file(file) ||
        !digest_from_hex(DIGEST_SHA256, hex, &want)) {
        packages_serve_reply_message(req, 400, "invalid", "not a file of a Python project", NULL);
        return;
    }
    a = packages_serve_ask_new(box, req, ECO_PYPI);
    a->kind = ASK_FILE;
    a->name = xstrdup(normal);
    a->want = want;
    a->metadata = len > n && STREQ(file + len - n, suffix);
    a->file = xstrndup(file, a->metadata ? len - n : len);
    packages_serve_ask_go(a);
}

static void packages_serve_pypi(struct packages_client *box, struct http_req *req, char **s,
                                size_t n)
{
    static const char empty_json[] = "{\"meta\":{\"api-version\":\"1.0\"},\"projects\":[]}";
    static const char empty_html[] =
        "<!DOCTYPE html>\n<html><head><title>Simple index</title></head>"
        "<body>This cache answers for single projects.</body></html>\n";
    bool json = packages_serve_wants_json(packages_serve_field(req, "accept"));

    if (n == 4 && STREQ(s[1], "files"))
        packages_serve_reply_message(req, 404, "not_found", "no such path", NULL);
    else if (n == 5 && STREQ(s[1], "files"))
        packages_serve_pypi_file(box, req, s[2], s[3], s[4]);
    else if (n == 3 && STREQ(s[1], "simple") && !*s[2])
        http_reply(req, 200, json ? PYPI_JSON : "text/html; charset=utf-8",
                   json ? empty_json : empty_html, strlen(json ? empty_json : empty_html));
    else if ((n == 3 || (n == 4 && !*s[3])) && STREQ(s[1], "simple"))
        packages_serve_pypi_page(box, req, s[2], n == 4);
    else if (n == 2 && STREQ(s[1], "simple"))
        packages_serve_redirect(req, "/pypi/simple/");
    else
        packages_serve_reply_message(req, 404, "not_found", "no such path", NULL);
}

static void packages_serve_npm_page(struct packages_client *box, struct http_req *req,
                                    const char *name)
{
    const char *host = packages_serve_field(req, "host"),
               *accept = packages_serve_field(req, "accept");
    struct ask *a;

    if (!host || !name_host(host)) {
        packages_serve_reply_message(req, 400, "invalid",
                                     "a Host field that can be used in links is needed", NULL);
        return;
    }
    a = packages_serve_ask_new(box, req, ECO_NPM);
    a->name = xstrdup(name);
    a->full = packages_serve_accept_weight(accept, NPM_ABBREVIATED) < 0;
    a->section = "json";
    a->content_type = a->full ? "application/json" : NPM_ABBREVIATED;
    a->host = xstrdup(host);
    if (policy_denies_name(&a->reg->config.policy, ECO_NPM, name))
        ask_fail_status(a, 403, ERR_DENIED, "Denied by policy: '%s' is on the deny list", name);
    else
        packages_serve_ask_go(a);
}

static void packages_serve_npm_file(struct packages_client *box, struct http_req *req,
                                    const char *name, const char *file)
{
    struct ask *a;

    if (!name_file(file)) {
        packages_serve_reply_message(req, 400, "invalid", "not a file of an npm package", NULL);
        return;
    }
    a = packages_serve_ask_new(box, req, ECO_NPM);
    a->kind = ASK_FILE;
    a->name = xstrdup(name);
    a->file = xstrdup(file);
    packages_serve_ask_go(a);
}

struct fixed {
    const char *path, *method;
    int status;
    const char *body;
};

/* What npm asks of a registry beside packages. We know of no advisories: said in docs/registry.md.
 */
static const struct fixed fixed_answers[] = {
    {"ping", "GET", 200, "{}"},
    {"whoami", "GET", 401, "{\"error\":\"this registry cache has no users\"}"},
    {"v1/search", "GET", 200, "{\"objects\":[],\"total\":0}"},
    {"npm/v1/security/advisories/bulk", "POST", 200, "{}"},
    {"npm/v1/security/audits/quick", "POST", 200,
     "{\"actions\":[],\"advisories\":{},\"muted\":[],\"metadata\":{\"vulnerabilities\":{\"info\":0,"
     "\"low\":0,\"moderate\":0,\"high\":0,\"critical\":0},\"dependencies\":0,\"devDependencies\":0,"
     "\"optionalDependencies\":0,\"totalDependencies\":0}}"},
    {"npm/v1/security/audits", "POST", 200,
     "{\"actions\":[],\"advisories\":{},\"muted\":[],\"metadata\":{\"vulnerabilities\":{\"info\":0,"
     "\"low\":0,\"moderate\":0,\"high\":0,\"critical\":0},\"dependencies\":0,\"devDependencies\":0,"
     "\"optionalDependencies\":0,\"totalDependencies\":0}}"},
};

static bool packages_serve_is_get(const struct http_req *req)
{
    const char *m = http_req_head(req)->method;

    return STREQ(m, "GET") || STREQ(m, "HEAD");
}

static void packages_serve_refuse_method(struct http_req *req)
{
    packages_serve_reply_message(req, 405, "unsupported", "this registry cache can only be read",
                                 "Allow: GET, HEAD\r\n");
}

static void packages_serve_npm_service(struct http_req *req, char **s, size_t n)
{
    char path[128] = "";

    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(path);

        snprintf(path + len, sizeof(path) - len, "%s%s", i ? "/" : "", s[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(fixed_answers); i++) {
        const struct fixed *f = &fixed_answers[i];

        if (!STREQ(path, f->path))
            continue;
        if (STREQ(f->method, "GET") ? packages_serve_is_get(req)
                                    : STREQ(http_req_head(req)->method, f->method))
            http_reply(req, f->status, "application/json", f->body, strlen(f->body));
        else
            packages_serve_refuse_method(req);
        return;
    }
    packages_serve_reply_message(req, packages_serve_is_get(req) ? 404 : 405, "not_found",
                                 "this registry cache has no such service", NULL);
}

/* "@scope", "name" as two segments, or "@scope/name" as one. Uses up what it takes. */
static bool packages_serve_take_npm_name(char ***s, size_t *n, char name[static NAME_MAX_LEN + 2])
{
    bool two = *n >= 2 && (*s)[0][0] == '@' && !strchr((*s)[0], '/');

    if (*n == 0 || strlen((*s)[0]) > NAME_MAX_LEN || (two && strlen((*s)[1]) > NAME_MAX_LEN))
        return false;
    if (two) {
        _cleanup_free_ char *full = xasprintf("%s/%s", (*s)[0], (*s)[1]);

        if (strlen(full) > NAME_MAX_LEN || strchr((*s)[1], '/'))
            return false;
        snprintf(name, NAME_MAX_LEN + 2, "%s", full);
    } else {
        snprintf(name, NAME_MAX_LEN + 2, "%s", (*s)[0]);
    }
    *s += two ? 2 : 1;
    *n -= two ? 2 : 1;
    return name_npm(name);
}

static void packages_serve_npm(struct packages_client *box, struct http_req *req, char **s,
                               size_t n)
{
    char name[NAME_MAX_LEN + 2];

    s++;
    n--;
    if (n >= 2 && STREQ(s[0], "-"))
        packages_serve_npm_service(req, s + 1, n - 1);
    else if (!packages_serve_is_get(req))
        packages_serve_refuse_method(req);
    else if (n == 0 || (n == 1 && !*s[0]))
        http_reply(req, 200, "application/json", "{}", 2);
    else if (!packages_serve_take_npm_name(&s, &n, name))
        packages_serve_reply_message(req, 400, "invalid", "not a name of an npm package", NULL);
    else if (n == 0)
        packages_serve_npm_page(box, req, name);
    else if (n == 2 && STREQ(s[0], "-"))
        packages_serve_npm_file(box, req, name, s[1]);
    else
        packages_serve_reply_message(req, 404, "not_found", "no such path", NULL);
}

void serve_request(void *arg, struct http_req *req)
{
    struct packages_client *box = arg;
    _cleanup_free_ char *target = xstrdup(http_req_head(req)->target);
    _cleanup_err_ struct err err = ERR_INIT;
    char *s[NAME_SEGMENTS_MAX];
    size_t n = 0;

    if (!packages_serve_take_token(box))
        packages_serve_reply_message(req, 429, "limit", "too many requests from this sandbox",
                                     "Retry-After: 1\r\n");
    else if (name_split_target(target, s, &n, &err) < 0)
        packages_serve_reply_message(req, err_code_http(err.code), err_code_name(err.code), err.msg,
                                     NULL);
    else if (STREQ(s[0], "npm"))
        packages_serve_npm(box, req, s, n);
    else if (!packages_serve_is_get(req))
        packages_serve_refuse_method(req);
    else if (STREQ(s[0], "pypi"))
        packages_serve_pypi(box, req, s, n);
    else
        packages_serve_reply_message(req, 404, "not_found",
                                     "this is a package registry cache: /pypi/simple/ and /npm/",
                                     NULL);
}
