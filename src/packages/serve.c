/*
 * Routes requests of sandboxes. Only the paths below exist: a sandbox cannot reach an address that
 * the configuration or an index page has not named.
 *
 *   GET /pypi/simple/                              an empty list
 *   GET /pypi/simple/<name>/                       HTML or JSON, by the Accept field
 *   GET /pypi/files/<name>/<sha256>/<file>[.metadata]
 *   GET /npm/<name>, /npm/@scope/<name>, /npm/@scope%2f<name>
 *   GET /npm/<name>/-/<file>.tgz
 *   GET /npm/-/ping, /npm/-/whoami, /npm/-/v1/search
 *   POST /npm/-/npm/v1/security/…                  an empty list of advisories
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
#include "packages/npm-page.h"
#include "packages/packages.h"
#include "packages/pypi-page.h"

enum { MESSAGE_MAX = 2 << 10, REASON_MAX = 160 };

/* -- requests -- */

static struct packages_counters dummy_counters;

struct packages_counters *request_counters(struct packages_request *q)
{
    return q->client ? &q->client->counters[q->eco] : &dummy_counters;
}

void request_free(struct packages_request *q)
{
    struct packages_client *client = q->client;

    q->pkgs->open_requests--;
    fd_close(q->fd);
    err_done(&q->fetch_err);
    free(q->name);
    free(q->path);
    free(q->other_path);
    free(q->file);
    free(q->host);
    free(q);
    if (client)
        fetch_slot_next(client);
}

static void packages_serve_on_gone(struct http_req *req)
{
    struct packages_request *q = http_req_user(req);
    struct packages_client *client = q->client;

    q->req = NULL;
    q->client = NULL;
    if (q->state == REQUEST_PARKED)
        fetch_slot_leave(client, q);
    if (q->state == REQUEST_FETCH)
        page_fetch_leave(q);
    if (q->state == REQUEST_DOWNLOAD)
        package_download_leave(q);
    if (q->state != REQUEST_LOOKUP) /* page-lookup.c frees it when the worker is done */
        request_free(q);
    fetch_slot_next(client);
}

static struct packages_request *packages_serve_new_request(struct packages_client *client,
                                                           struct http_req *req, enum ecosystem eco)
{
    struct packages_request *q = xnew0(struct packages_request);

    q->pkgs = client->pkgs;
    q->client = client;
    q->req = req;
    q->eco = eco;
    q->fd = -1;
    q->head = STREQ(http_req_head(req)->method, "HEAD");
    q->pkgs->open_requests++;
    q->pkgs->counters[eco].requests++;
    client->counters[eco].requests++;
    http_req_set_user(req, q);
    http_req_on_gone(req, packages_serve_on_gone);
    return q;
}

/* -- errors: pip shows the reason phrase, npm shows "error" of the body -- */

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

static void packages_serve_count_failure(struct packages_request *q, enum err_code code)
{
    bool denied = code == ERR_DENIED;

    if (code == ERR_NOT_FOUND)
        return;
    q->pkgs->counters[q->eco].denials += denied;
    q->pkgs->counters[q->eco].errors += !denied;
    request_counters(q)->denials += denied;
    request_counters(q)->errors += !denied;
}

static void packages_serve_fail(struct packages_request *q, int status, enum err_code code,
                                const char *msg)
{
    if (q->state == REQUEST_DOWNLOAD)
        package_download_leave(q); /* reading the file failed during its download */
    packages_serve_count_failure(q, code);
    if (code == ERR_DENIED && q->client && packages_may_report(q->client))
        packages_event(q->pkgs, "denied", "{s:s, s:s, s:s, s:s}", "sandbox", q->client->id,
                       "ecosystem", ecosystem_name(q->eco), "name", q->name ? q->name : "",
                       "message", msg);
    if (q->started)
        http_stream_abort(q->req);
    else
        packages_serve_reply_message(q->req, status, err_code_name(code), msg,
                                     status == 503 ? "Retry-After: 1\r\n" : NULL);
    request_free(q);
}

/* Wrong data of an upstream is "bad gateway" for the client. */
void request_fail(struct packages_request *q, const struct err *err)
{
    int status =
        err->code == ERR_INVALID || err->code == ERR_LIMIT ? 502 : err_code_http(err->code);

    packages_serve_fail(q, status, err->code, err->msg);
}

void request_fail_status(struct packages_request *q, int status, enum err_code code,
                         const char *fmt, ...)
{
    _cleanup_free_ char *msg = NULL;
    va_list ap;

    va_start(ap, fmt);
    msg = xvasprintf(fmt, ap);
    va_end(ap);
    packages_serve_fail(q, status, code, msg);
}

/* -- routes -- */

static bool packages_serve_take_token(struct packages_client *client)
{
    uint64_t rate = client->pkgs->config.requests_per_second, now = time_mono();
    uint64_t max = rate * 10 * 1000;

    if (rate == 0)
        return true;
    client->tokens = MIN(max, client->tokens + (now - client->tokens_at) * rate / 1000);
    client->tokens_at = now;
    if (client->tokens < 1000)
        return false;
    client->tokens -= 1000;
    return true;
}

/* The weight of a media type in an Accept field, in thousandths; -1: not listed. */
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

static char *packages_serve_page_path(const struct packages_request *q, bool full)
{
    const char *slash = strchr(q->name, '/');
    const char *eco = q->eco == ECO_NPM && full ? "npm-full" : ecosystem_name(q->eco);

    if (!slash)
        return xasprintf("pages/%s/%s/%s", eco, q->upstream->name, q->name);
    return xasprintf("pages/%s/%s/%.*s%%2f%s", eco, q->upstream->name, (int)(slash - q->name),
                     q->name, slash + 1);
}

static void packages_serve_start(struct packages_request *q)
{
    q->upstream = config_route(&q->pkgs->config, q->eco, q->name);
    if (!q->upstream) {
        request_fail_status(q, 404, ERR_NOT_FOUND, "no upstream is configured for '%s'", q->name);
        return;
    }
    q->path = packages_serve_page_path(q, q->full);
    /* The client has read the full or the abbreviated document; npm today reads the full one. */
    if (q->eco == ECO_NPM && q->kind == REQUEST_FILE)
        q->other_path = packages_serve_page_path(q, !q->full);
    page_lookup_start(q);
}

static void packages_serve_redirect(struct http_req *req, const char *to)
{
    _cleanup_free_ char *extra = xasprintf("Location: %s\r\n", to);

    http_reply_with(req, &(struct http_answer){.status = 301, .extra = extra}, "", 0);
}

static void packages_serve_pypi_page(struct packages_client *client, struct http_req *req,
                                     const char *name, bool slash)
{
    char normal[NAME_MAX_LEN + 1];
    bool json = packages_serve_wants_json(packages_serve_field(req, "accept"));
    struct packages_request *q;

    if (!name_pypi(name, normal)) {
        packages_serve_reply_message(req, 400, "invalid", "not a valid name of a Python project",
                                     NULL);
        return;
    }
    if (!slash || !STREQ(name, normal)) {
        char to[NAME_MAX_LEN + 32];

        snprintf(to, sizeof(to), "/pypi/simple/%s/", normal);
        packages_serve_redirect(req, to);
        return;
    }
    q = packages_serve_new_request(client, req, ECO_PYPI);
    q->name = xstrdup(normal);
    q->section = json ? "json" : "html";
    q->content_type = json ? PYPI_JSON : "text/html; charset=utf-8";
    packages_serve_start(q);
}

static void packages_serve_pypi_file(struct packages_client *client, struct http_req *req,
                                     const char *name, const char *hex, const char *file)
{
    static const char suffix[] = ".metadata";
    size_t len = strlen(file), n = sizeof(suffix) - 1;
    char normal[NAME_MAX_LEN + 1];
    struct digest want;
    struct packages_request *q;

    if (!name_pypi(name, normal) || !STREQ(name, normal) || !name_file(file) ||
        !digest_from_hex(DIGEST_SHA256, hex, &want)) {
        packages_serve_reply_message(req, 400, "invalid",
                                     "not a valid file name of a Python project", NULL);
        return;
    }
    q = packages_serve_new_request(client, req, ECO_PYPI);
    q->kind = REQUEST_FILE;
    q->name = xstrdup(normal);
    q->want = want;
    q->metadata = len > n && STREQ(file + len - n, suffix);
    q->file = xstrndup(file, q->metadata ? len - n : len);
    packages_serve_start(q);
}

static void packages_serve_pypi(struct packages_client *client, struct http_req *req, char **s,
                                size_t n)
{
    static const char empty_json[] = "{\"meta\":{\"api-version\":\"1.0\"},\"projects\":[]}";
    static const char empty_html[] =
        "<!DOCTYPE html>\n<html><head><title>Simple index</title></head>"
        "<body>This package cache does not list projects.</body></html>\n";
    bool json = packages_serve_wants_json(packages_serve_field(req, "accept"));

    if (n == 4 && STREQ(s[1], "files"))
        packages_serve_reply_message(req, 404, "not_found", "no such path", NULL);
    else if (n == 5 && STREQ(s[1], "files"))
        packages_serve_pypi_file(client, req, s[2], s[3], s[4]);
    else if (n == 3 && STREQ(s[1], "simple") && !*s[2])
        http_reply(req, 200, json ? PYPI_JSON : "text/html; charset=utf-8",
                   json ? empty_json : empty_html, strlen(json ? empty_json : empty_html));
    else if ((n == 3 || (n == 4 && !*s[3])) && STREQ(s[1], "simple"))
        packages_serve_pypi_page(client, req, s[2], n == 4);
    else if (n == 2 && STREQ(s[1], "simple"))
        packages_serve_redirect(req, "/pypi/simple/");
    else
        packages_serve_reply_message(req, 404, "not_found", "no such path", NULL);
}

static void packages_serve_npm_page(struct packages_client *client, struct http_req *req,
                                    const char *name)
{
    const char *host = packages_serve_field(req, "host"),
               *accept = packages_serve_field(req, "accept");
    struct packages_request *q;

    if (!host || !name_host(host)) {
        packages_serve_reply_message(req, 400, "invalid",
                                     "the Host field is missing or not usable in links", NULL);
        return;
    }
    q = packages_serve_new_request(client, req, ECO_NPM);
    q->name = xstrdup(name);
    q->full = packages_serve_accept_weight(accept, NPM_ABBREVIATED) < 0;
    q->section = "json";
    q->content_type = q->full ? "application/json" : NPM_ABBREVIATED;
    q->host = xstrdup(host);
    if (policy_denies_name(&q->pkgs->config.policy, ECO_NPM, name))
        request_fail_status(q, 403, ERR_DENIED, "Denied by policy: '%s' is on the deny list", name);
    else
        packages_serve_start(q);
}

static void packages_serve_npm_file(struct packages_client *client, struct http_req *req,
                                    const char *name, const char *file)
{
    struct packages_request *q;

    if (!name_file(file)) {
        packages_serve_reply_message(req, 400, "invalid", "not a valid file name of an npm package",
                                     NULL);
        return;
    }
    q = packages_serve_new_request(client, req, ECO_NPM);
    q->kind = REQUEST_FILE;
    q->name = xstrdup(name);
    q->file = xstrdup(file);
    packages_serve_start(q);
}

struct fixed {
    const char *path, *method;
    int status;
    const char *body;
};

/* Requests of npm besides packages. The cache has no advisories; docs/packages.md explains it. */
static const struct fixed fixed_answers[] = {
    {"ping", "GET", 200, "{}"},
    {"whoami", "GET", 401, "{\"error\":\"this package cache has no users\"}"},
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
    packages_serve_reply_message(req, 405, "unsupported", "this package cache is read-only",
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
                                 "this package cache does not have this service", NULL);
}

/* Reads "@scope", "name" as two segments or "@scope/name" as one, and removes them from the
 * list. */
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

static void packages_serve_npm(struct packages_client *client, struct http_req *req, char **s,
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
        packages_serve_reply_message(req, 400, "invalid", "not a valid name of an npm package",
                                     NULL);
    else if (n == 0)
        packages_serve_npm_page(client, req, name);
    else if (n == 2 && STREQ(s[0], "-"))
        packages_serve_npm_file(client, req, name, s[1]);
    else
        packages_serve_reply_message(req, 404, "not_found", "no such path", NULL);
}

void serve_request(void *arg, struct http_req *req)
{
    struct packages_client *client = arg;
    _cleanup_free_ char *target = xstrdup(http_req_head(req)->target);
    _cleanup_err_ struct err err = ERR_INIT;
    char *s[NAME_SEGMENTS_MAX];
    size_t n = 0;

    if (!packages_serve_take_token(client))
        packages_serve_reply_message(req, 429, "limit", "too many requests from this sandbox",
                                     "Retry-After: 1\r\n");
    else if (name_split_target(target, s, &n, &err) < 0)
        packages_serve_reply_message(req, err_code_http(err.code), err_code_name(err.code), err.msg,
                                     NULL);
    else if (STREQ(s[0], "npm"))
        packages_serve_npm(client, req, s, n);
    else if (!packages_serve_is_get(req))
        packages_serve_refuse_method(req);
    else if (STREQ(s[0], "pypi"))
        packages_serve_pypi(client, req, s, n);
    else
        packages_serve_reply_message(
            req, 404, "not_found",
            "no such path (this package cache serves /pypi/simple/ and /npm/)", NULL);
}
