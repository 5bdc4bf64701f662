#include "daemon/api/port-message.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { SEGMENTS_MAX = 512 };

/* What happens to a field. Fields that no table names pass. */
enum port_rule {
    PASS,
    DROP,
    COOKIES,  /* of a request: without ours */
    COOKIE,   /* of an answer: only for its own host, and not ours */
    LOCATION, /* a path of the service, below the prefix */
};

struct port_field {
    const char *name; /* with '*' at its end: all names that begin so */
    enum port_rule rules[PORT_PLACES];
};

/* clang-format off */
static const struct port_field request_fields[] = {
    /* written by us, or only for this connection */
    {"Host",              {DROP, DROP}},
    {"Content-Length",    {DROP, DROP}},
    {"Transfer-Encoding", {DROP, DROP}},
    {"Connection",        {DROP, DROP}},
    {"Keep-Alive",        {DROP, DROP}},
    {"Proxy-*",           {DROP, DROP}},
    {"TE",                {DROP, DROP}},
    {"Trailer",           {DROP, DROP}},
    {"Upgrade",           {DROP, DROP}},
    {"HTTP2-Settings",    {DROP, DROP}},
    {"Expect",            {DROP, DROP}},
    /* for us; in an origin, Authorization is the application's own */
    {"Authorization",     {DROP, PASS}},
    {"Cookie",            {DROP, COOKIES}},
    {"Ripcord-*",         {DROP, DROP}},
    /* a service believes these, so only we may say them */
    {"X-Forwarded-*",     {DROP, DROP}},
    {"Forwarded",         {DROP, DROP}},
    {"X-Real-IP",         {DROP, DROP}},
    {"Via",               {DROP, DROP}},
};

static const struct port_field answer_fields[] = {
    {"Content-Length",      {DROP, DROP}},
    {"Transfer-Encoding",   {DROP, DROP}},
    {"Connection",          {DROP, DROP}},
    {"Keep-Alive",          {DROP, DROP}},
    {"Proxy-*",             {DROP, DROP}},
    {"TE",                  {DROP, DROP}},
    {"Trailer",             {DROP, DROP}},
    {"Upgrade",             {DROP, DROP}},
    {"X-Request-Id",        {DROP, DROP}}, /* ours */
    {"Ripcord-*",           {DROP, DROP}},
    /* would change the client's state for our origin, or for the whole host */
    {"Set-Cookie",          {DROP, COOKIE}},
    {"Set-Cookie2",         {DROP, DROP}},
    {"Clear-Site-Data",     {DROP, DROP}},
    {"Alt-Svc",             {DROP, DROP}},
    {"Strict-Transport-Security", {DROP, DROP}},
    {"Public-Key-Pins*",    {DROP, DROP}},
    {"Expect-CT",           {DROP, DROP}},
    {"Service-Worker-Allowed", {DROP, PASS}},
    {"Access-Control-*",    {DROP, PASS}},
    {"Report-To",           {DROP, PASS}},
    {"Reporting-Endpoints", {DROP, PASS}},
    {"NEL",                 {DROP, PASS}},
    {"Accept-CH",           {DROP, PASS}},
    {"Critical-CH",         {DROP, PASS}},
    {"Content-Security-Policy*", {DROP, PASS}}, /* replaced by `sandbox` */
    /* a program would follow these with its token */
    {"Location",            {LOCATION, PASS}},
    {"Content-Location",    {DROP, PASS}},
    {"Refresh",             {DROP, PASS}},
    {"Link",                {DROP, PASS}},
    {"WWW-Authenticate",    {DROP, PASS}}, /* asks for credentials of the application, not for ours */
};
/* clang-format on */

/* Servers that turn names into variables (CGI, WSGI) take '_' for '-'. */
static bool port_message_is_name(const char *pattern, const char *name)
{
    for (; *pattern && *pattern != '*'; pattern++, name++) {
        char c = *name == '_' ? '-' : *name;

        if (strncasecmp(pattern, &c, 1) != 0)
            return false;
    }
    return *pattern == '*' || !*name;
}

static enum port_rule port_message_rule(const struct port_field *table, size_t n,
                                        enum port_place place, const char *name)
{
    for (size_t i = 0; i < n && GUARD("port fields"); i++)
        if (port_message_is_name(table[i].name, name))
            return table[i].rules[place];
    return PASS;
}

static int port_message_put(struct buf *b, const char *name, const char *value)
{
    return buf_appendf(b, "%s: %s\r\n", name, value);
}

/* ---- targets ---- */

bool port_route_parse(const char *target, struct port_route *ret)
{
    static const char start[] = "/v1/sandboxes/", middle[] = "/ports/";
    const char *name = target + sizeof(start) - 1, *port, *rest;
    struct port_route route = {.place = PORT_IN_API};
    char digits[8];
    uint32_t n;

    if (strncmp(target, start, sizeof(start) - 1) != 0)
        return false;
    port = name + strcspn(name, "/?");
    if ((size_t)(port - name) >= sizeof(route.name) ||
        strncmp(port, middle, sizeof(middle) - 1) != 0)
        return false;
    memcpy(route.name, name, (size_t)(port - name));
    port += sizeof(middle) - 1;
    rest = port + strcspn(port, "/?");
    if (*rest != '/' || (size_t)(rest - port) >= sizeof(digits))
        return false;
    snprintf(digits, sizeof(digits), "%.*s", (int)(rest - port), port);
    if (!name_is_valid(route.name) || parse_u32(digits, 1, UINT16_MAX, &n, NULL) < 0)
        return false;
    route.port = (uint16_t)n;
    route.target = rest;
    *ret = route;
    return true;
}

static const char *port_message_prefix(const struct port_route *route,
                                       char b[static PORT_PREFIX_MAX])
{
    snprintf(b, PORT_PREFIX_MAX, "/v1/sandboxes/%s/ports/%u", route->name, route->port);
    return b;
}

/* ---- cookies ---- */

/* The next "name=value" of a Cookie field, without blanks. False at the end. */
static bool port_message_next_pair(const char **p, const char **ret, size_t *ret_len)
{
    *p += strspn(*p, "; \t");
    *ret = *p;
    *ret_len = strcspn(*p, ";");
    *p += *ret_len;
    while (*ret_len && ((*ret)[*ret_len - 1] == ' ' || (*ret)[*ret_len - 1] == '\t'))
        (*ret_len)--;
    return **ret;
}

/* Browsers send a cookie without a name as its bare value, which may look like ours. */
static bool port_message_is_ours(const char *pair, size_t len)
{
    size_t name = sizeof(PORT_COOKIE) - 1, at;

    for (at = 0; at < len && (pair[at] == ' ' || pair[at] == '\t' || pair[at] == '='); at++)
        ;
    if (len - at < name || strncasecmp(pair + at, PORT_COOKIE, name) != 0)
        return false;
    at += name + strspn(pair + at + name, " \t");
    return at >= len || pair[at] == '=';
}

static int port_message_put_cookies(struct buf *b, const char *cookies)
{
    const char *pair, *separator = "Cookie: ";
    size_t len;

    while (port_message_next_pair(&cookies, &pair, &len)) {
        if (port_message_is_ours(pair, len) && GUARD("port cookie inside"))
            continue;
        if (buf_appendf(b, "%s%.*s", separator, (int)len, pair) < 0)
            return -ERR_LIMIT;
        separator = "; ";
    }
    return *separator == ';' ? buf_append_str(b, "\r\n") : 0;
}

static bool port_message_is_domain(const char *attribute, size_t len)
{
    static const char name[] = "domain";
    size_t n = sizeof(name) - 1;

    return len >= n && strncasecmp(attribute, name, n) == 0 &&
           (len == n || strchr("= \t", attribute[n]));
}

/* Set-Cookie without Domain is for the host that set it, and for no other. */
static int port_message_put_set_cookie(struct buf *b, const char *value)
{
    const char *p = value, *part;
    size_t len;

    if (!port_message_next_pair(&p, &part, &len) || *part == '=' || !memchr(part, '=', len) ||
        (port_message_is_ours(part, len) && GUARD("port cookie outside")))
        return 0;
    if (buf_appendf(b, "Set-Cookie: %.*s", (int)len, part) < 0)
        return -ERR_LIMIT;
    while (port_message_next_pair(&p, &part, &len))
        if (!(port_message_is_domain(part, len) && GUARD("port cookie domain")) &&
            buf_appendf(b, "; %.*s", (int)len, part) < 0)
            return -ERR_LIMIT;
    return buf_append_str(b, "\r\n");
}

/* ---- Location ---- */

/* The path of a URL of the service itself; NULL: it is elsewhere, or relative. */
static const char *port_message_own_path(const struct port_route *route, const char *url)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1", "[::1]"};
    char own[64];

    if (url[0] == '/')
        return url[1] != '/' ? url : NULL;
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        size_t n = (size_t)snprintf(own, sizeof(own), "http://%s:%u", hosts[i], route->port);

        if (strncasecmp(url, own, n) == 0 && (!url[n] || strchr("/?#", url[n])))
            return url + n;
    }
    return NULL;
}

static bool port_message_is_relative(const char *url)
{
    return *url && url[0] != '/' && url[strcspn(url, ":/?#")] != ':';
}

/* 1: ".", 2: "..", which clients also write as %2e; else 0. */
static int port_message_dots(const char *segment, size_t len)
{
    int dots = 0;

    while (len) {
        size_t n = *segment == '.' ? 1 : len >= 3 && strncasecmp(segment, "%2e", 3) == 0 ? 3 : 0;

        if (!n || ++dots > 2)
            return 0;
        segment += n;
        len -= n;
    }
    return dots;
}

/* Appends a path as clients resolve it, so that no ".." climbs above the prefix. */
static int port_message_put_path(struct buf *b, const char *path, size_t len)
{
    const char *end = path + len;
    size_t starts[SEGMENTS_MAX], n = 0;
    bool folder = true;

    while (path < end) {
        size_t m;

        path += *path == '/';
        m = strcspn(path, "/?#");
        m = MIN(m, (size_t)(end - path));
        switch (port_message_dots(path, m)) {
        case 0:
            if (n == SEGMENTS_MAX)
                return -ERR_LIMIT;
            starts[n++] = b->len;
            if (buf_appendf(b, "/%.*s", (int)m, path) < 0)
                return -ERR_LIMIT;
            folder = false;
            break;
        case 2:
            if (n)
                buf_truncate(b, starts[--n]);
            folder = true;
            break;
        default:
            folder = true;
        }
        path += m;
    }
    return folder ? buf_append_str(b, "/") : 0;
}

/* "dir/" of the request and a relative path, or an absolute path. */
static char *port_message_join(const char *from, const char *path, bool relative)
{
    size_t dir = strcspn(from, "?#");

    while (relative && dir && from[dir - 1] != '/')
        dir--;
    if (relative && (*path == '?' || *path == '#'))
        dir = strcspn(from, "?#");
    return relative ? xasprintf("%.*s%s", (int)dir, from, path) : xstrdup(path);
}

bool port_location(const struct port_route *route, const char *from, const char *location,
                   struct buf *ret)
{
    bool relative = port_message_is_relative(location);
    const char *own = relative ? location : port_message_own_path(route, location);
    _cleanup_free_ char *whole = NULL;
    char prefix[PORT_PREFIX_MAX];
    size_t len;

    /* Browsers read a backslash as a slash, and drop blanks and line breaks. */
    if (!own || strpbrk(location, "\\ \t"))
        return false;
    whole = port_message_join(from, own, relative);
    len = strcspn(whole, "?#");
    return buf_append_str(ret, port_message_prefix(route, prefix)) >= 0 &&
           (GUARD("port location") ? port_message_put_path(ret, whole, len)
                                   : buf_append(ret, whole, len)) >= 0 &&
           buf_append_str(ret, whole + len) >= 0;
}

/* A program reads where else it leads from a field that no client follows. */
static int port_message_put_location(const struct port_route *route, const char *value,
                                     struct buf *b)
{
    _cleanup_buf_ struct buf own = BUF_INIT(PORT_HEAD_MAX);

    if (port_location(route, route->target, value, &own))
        return port_message_put(b, "Location", buf_data(&own));
    return port_message_put(b, GUARD("port location") ? "Ripcord-Location" : "Location", value);
}

/* ---- heads ---- */

static int port_message_put_field(const struct port_route *route, enum port_rule rule,
                                  const struct http_field *f, struct buf *b)
{
    switch (rule) {
    case DROP:
        return 0;
    case COOKIES:
        return port_message_put_cookies(b, f->value);
    case COOKIE:
        return port_message_put_set_cookie(b, f->value);
    case LOCATION:
        return port_message_put_location(route, f->value, b);
    case PASS:
        break;
    }
    return port_message_put(b, f->name, f->value);
}

static int port_message_put_fields(const struct port_route *route, const struct http_head *head,
                                   const struct port_field *table, size_t n, struct buf *b)
{
    for (size_t i = 0; i < head->n_fields; i++) {
        const struct http_field *f = &head->fields[i];
        enum port_rule rule = port_message_rule(table, n, route->place, f->name);

        if (http_connection_has(head, f->name))
            continue; /* only for that connection */
        if (port_message_put_field(route, rule, f, b) < 0)
            return -ERR_LIMIT;
    }
    return 0;
}

static int port_message_put_origin(const struct port_route *route, const struct http_head *head,
                                   struct buf *b)
{
    const char *host = http_field_get(head, "Host");
    char prefix[PORT_PREFIX_MAX];

    if (route->place == PORT_AS_ORIGIN)
        return buf_appendf(b, "Host: %s\r\nX-Forwarded-Host: %s\r\nX-Forwarded-Proto: http\r\n",
                           host, host);
    return buf_appendf(b,
                       "Host: localhost:%u\r\nX-Forwarded-Host: %s\r\nX-Forwarded-Proto: http\r\n"
                       "X-Forwarded-Prefix: %s\r\n",
                       route->port, host, port_message_prefix(route, prefix));
}

static int port_message_put_framing(const struct http_head *head, enum port_connection what,
                                    struct buf *b)
{
    static const char *const lines[] = {
        [PORT_CLOSE] = "Connection: close\r\n\r\n",
        [PORT_KEEP] = "Connection: keep-alive\r\n\r\n",
        [PORT_WEBSOCKET] = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    };

    if (head->chunked)
        return buf_appendf(b, "Transfer-Encoding: chunked\r\n%s", lines[what]);
    if (head->has_length)
        return buf_appendf(b, "Content-Length: %llu\r\n%s", (unsigned long long)head->length,
                           lines[what]);
    return buf_append_str(b, lines[what]);
}

int port_request_head(const struct port_route *route, const struct http_head *head,
                      enum port_connection what, struct buf *ret)
{
    const char *slash = *route->target == '/' ? "" : "/";

    if (buf_appendf(ret, "%s %s%s HTTP/1.1\r\n", head->method, slash, route->target) < 0 ||
        port_message_put_origin(route, head, ret) < 0 ||
        port_message_put_fields(route, head, request_fields, ARRAY_SIZE(request_fields), ret) < 0)
        return -ERR_LIMIT;
    return port_message_put_framing(head, what, ret);
}

int port_answer_fields(const struct port_route *route, const struct http_head *head,
                       struct buf *ret)
{
    if (port_message_put_fields(route, head, answer_fields, ARRAY_SIZE(answer_fields), ret) < 0)
        return -ERR_LIMIT;
    if (route->place == PORT_AS_ORIGIN)
        return 0;
    return buf_append_str(ret, "Content-Security-Policy: sandbox\r\n"
                               "X-Content-Type-Options: nosniff\r\n");
}
