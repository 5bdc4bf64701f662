/* The heads that the port proxy writes: what passes to a service, and what of its answer to the
 * client. */
#include <stdlib.h>
#include <string.h>

#include "daemon/api/port-message.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "tap.h"

static const struct port_route in_api = {
    .place = PORT_IN_API, .name = "box", .port = 8000, .target = "/dir/page?q=1"};
static const struct port_route as_origin = {
    .place = PORT_AS_ORIGIN, .name = "box", .port = 8000, .target = "/dir/page?q=1"};

/* Names the row of a table that fails. */
#define CHECK_EACH(cond, what)                                                                     \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fprintf(stderr, "# %s\n", what);                                                       \
        CHECK(cond);                                                                               \
    } while (0)

static char *request(const struct port_route *route, const char *fields,
                     enum port_connection connection)
{
    _cleanup_free_ char *raw = xasprintf("POST /x HTTP/1.1\r\nHost: h:7070\r\n%s\r\n", fields);
    struct buf out = BUF_INIT(PORT_HEAD_MAX);
    struct http_head head;

    if (http_parse_request(raw, strlen(raw), &head, NULL) < 0 ||
        port_request_head(route, &head, connection, &out) < 0)
        abort();
    return buf_steal(&out);
}

static char *answer(const struct port_route *route, const char *fields)
{
    _cleanup_free_ char *raw = xasprintf("HTTP/1.1 200 OK\r\n%s\r\n", fields);
    struct buf out = BUF_INIT(PORT_HEAD_MAX);
    struct http_head head;

    if (http_parse_response(raw, strlen(raw), &head, NULL) < 0 ||
        port_answer_fields(route, &head, &out) < 0)
        abort();
    return buf_steal(&out);
}

static bool answers(const struct port_route *route, const char *fields, const char *want)
{
    _cleanup_free_ char *got = answer(route, fields);
    static const char marks[] =
        "Content-Security-Policy: sandbox\r\nX-Content-Type-Options: nosniff\r\n";
    _cleanup_free_ char *whole = xasprintf("%s%s", want, route->place == PORT_IN_API ? marks : "");

    if (STREQ(got, whole))
        return true;
    fprintf(stderr, "# got %s# want %s", got, whole);
    return false;
}

TEST(targets)
{
    static const char *const others[] = {"/v1/sandboxes/box/ports/8000",
                                         "/v1/sandboxes/box/ports/8000?x",
                                         "/v1/sandboxes/box/ports/",
                                         "/v1/sandboxes/box/ports/0/",
                                         "/v1/sandboxes/box/ports/65536/",
                                         "/v1/sandboxes/box/ports/80a/",
                                         "/v1/sandboxes/Box/ports/80/",
                                         "/v1/sandboxes/../ports/80/",
                                         "/v1/sandboxes/a/b/ports/80/",
                                         "/v1/sandboxes/b%6fx/ports/80/",
                                         "/v1/sandboxes//ports/80/",
                                         "/v2/sandboxes/box/ports/80/",
                                         "/v1/sandboxes/box?/ports/80/",
                                         "/v1/sandboxes/box/ports/-1/",
                                         "/v1/sandboxes/box/ports/+80/",
                                         "/v1/sandboxes/box/ports/00080000/",
                                         "/"};
    struct port_route r;

    CHECK(port_route_parse("/v1/sandboxes/box/ports/8000/", &r));
    CHECK(STREQ(r.name, "box") && r.port == 8000 && STREQ(r.target, "/"));
    CHECK(port_route_parse("/v1/sandboxes/box/ports/1//a/../%2f?b#", &r));
    CHECK(r.port == 1 && STREQ(r.target, "//a/../%2f?b#"));
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        CHECK_EACH(!port_route_parse(others[i], &r), others[i]);
}

TEST(a_request_is_written_anew)
{
    _cleanup_free_ char *plain =
        request(&in_api, "Accept: */*\r\nContent-Length: 3\r\n", PORT_CLOSE);
    _cleanup_free_ char *chunked =
        request(&as_origin, "Transfer-Encoding: chunked\r\n", PORT_CLOSE);
    _cleanup_free_ char *socket =
        request(&in_api, "Connection: Upgrade\r\nUpgrade: websocket\r\n", PORT_WEBSOCKET);

    CHECK(STREQ(plain, "POST /dir/page?q=1 HTTP/1.1\r\nHost: localhost:8000\r\n"
                       "X-Forwarded-Host: h:7070\r\nX-Forwarded-Proto: http\r\n"
                       "X-Forwarded-Prefix: /v1/sandboxes/box/ports/8000\r\nAccept: */*\r\n"
                       "Content-Length: 3\r\nConnection: close\r\n\r\n"));
    CHECK(STREQ(chunked,
                "POST /dir/page?q=1 HTTP/1.1\r\nHost: h:7070\r\nX-Forwarded-Host: h:7070\r\n"
                "X-Forwarded-Proto: http\r\nTransfer-Encoding: chunked\r\n"
                "Connection: close\r\n\r\n"));
    CHECK(strstr(socket, "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"));
}

/* What is for us, or what only we may say. '_' stands for '-' in CGI and WSGI. */
TEST(a_service_does_not_get_what_is_ours)
{
    static const char *const fields[] = {"Authorization: Bearer secret",
                                         "Cookie: a=secret",
                                         "Ripcord-Wake: secret",
                                         "X-Forwarded-For: secret",
                                         "X_Forwarded_For: secret",
                                         "x-forwarded_anything: secret",
                                         "Forwarded: secret",
                                         "X-Real-IP: secret",
                                         "Via: secret",
                                         "Proxy-Authorization: secret",
                                         "Keep-Alive: secret",
                                         "TE: secret",
                                         "Upgrade: secret",
                                         "HTTP2-Settings: secret",
                                         "Content_Length: secret",
                                         "Connection: close, x-mine\r\nX-Mine: secret"};

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        _cleanup_free_ char *lines = xasprintf("%s\r\n", fields[i]);
        _cleanup_free_ char *got = request(&in_api, lines, PORT_CLOSE);

        CHECK_EACH(!(strstr(got, "secret")), fields[i]);
    }
}

TEST(an_origin_has_its_own_credentials)
{
    _cleanup_free_ char *got =
        request(&as_origin, "Authorization: Basic app\r\nCookie: a=1; ripcord-port=secret ;b=2\r\n",
                PORT_CLOSE);

    CHECK(strstr(got, "\r\nAuthorization: Basic app\r\nCookie: a=1; b=2\r\n"));
}

TEST(our_cookie_stays_outside)
{
    static const char *const forms[] = {"ripcord-port=secret",
                                        " ripcord-port = secret",
                                        "a=1;ripcord-port=secret;",
                                        "=ripcord-port=secret",
                                        "ripcord-port=secret; ripcord-port=secret",
                                        "RIPCORD-PORT=secret"};

    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        _cleanup_free_ char *lines = xasprintf("Cookie: %s\r\n", forms[i]);
        _cleanup_free_ char *got = request(&as_origin, lines, PORT_CLOSE);

        CHECK_EACH(!(strstr(got, "secret")), forms[i]);
    }
}

/* One table: the fields of an answer that reach the client in the API, and in an origin. */
TEST(fields_of_an_answer)
{
    static const struct {
        const char *field;
        bool api, origin;
    } rows[] = {
        {"Content-Type: x", true, true},
        {"ETag: x", true, true},
        {"Server: x", true, true},
        {"Connection: x", false, false},
        {"Keep-Alive: x", false, false},
        {"Proxy-Authenticate: x", false, false},
        {"Trailer: x", false, false},
        {"Upgrade: x", false, false},
        {"Set-Cookie: a=x", false, true},
        {"Set-Cookie2: a=x", false, false},
        {"Clear-Site-Data: x", false, false},
        {"Alt-Svc: x", false, false},
        {"Strict-Transport-Security: x", false, false},
        {"Public-Key-Pins: x", false, false},
        {"Service-Worker-Allowed: x", false, true},
        {"Access-Control-Allow-Origin: x", false, true},
        {"Report-To: x", false, true},
        {"NEL: x", false, true},
        {"Accept-CH: x", false, true},
        {"Refresh: x", false, true},
        {"Link: x", false, true},
        {"Content-Location: x", false, true},
        {"Content-Security-Policy: x", false, true},
        {"Content-Security-Policy-Report-Only: x", false, true},
        {"WWW-Authenticate: x", false, true},
        {"X-Request-Id: x", false, false},
        {"Ripcord-Location: x", false, false},
        {"Ripcord-Offset: x", false, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_free_ char *line = xasprintf("%s\r\n", rows[i].field);

        CHECK(answers(&in_api, line, rows[i].api ? line : ""));
        CHECK(answers(&as_origin, line, rows[i].origin ? line : ""));
    }
}

TEST(fields_for_one_connection_stay_there)
{
    CHECK(answers(&as_origin, "Connection: close, X-Mine\r\nX-Mine: x\r\nX-Other: y\r\n",
                  "X-Other: y\r\n"));
}

TEST(a_service_does_not_set_our_cookie)
{
    static const char *const bad[] = {
        "ripcord-port=x", " ripcord-port =x", "Ripcord-Port=x", "=ripcord-port=x", "=x", "x", ""};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_free_ char *line = xasprintf("Set-Cookie: %s\r\n", bad[i]);

        CHECK(answers(&as_origin, line, ""));
    }
}

TEST(cookies_are_for_their_own_host)
{
    CHECK(answers(&as_origin,
                  "Set-Cookie: a=b; Domain=localhost; Path=/x; DOMAIN =.localhost;domain\r\n",
                  "Set-Cookie: a=b; Path=/x\r\n"));
    CHECK(answers(&as_origin, "Set-Cookie: domain=b; HttpOnly; Domainx=1\r\n",
                  "Set-Cookie: domain=b; HttpOnly; Domainx=1\r\n"));
}

/* A client that follows them with its token stays below the port. */
TEST(locations)
{
#define PREFIX "/v1/sandboxes/box/ports/8000"
    static const char *const rows[][2] = {
        {"/", PREFIX "/"},
        {"/a/b?c=/../d#e", PREFIX "/a/b?c=/../d#e"},
        {"", NULL},
        {"next", PREFIX "/dir/next"},
        {"?q=2", PREFIX "/dir/page?q=2"},
        {"../../../../v1/version", PREFIX "/v1/version"},
        {"/../../../../v1/version", PREFIX "/v1/version"},
        {"/a/%2e%2E/.%2e/../b/.", PREFIX "/b/"},
        {"/a/..", PREFIX "/"},
        {"/a/.../b", PREFIX "/a/.../b"},
        {"http://localhost:8000/a", PREFIX "/a"},
        {"HTTP://LOCALHOST:8000", PREFIX "/"},
        {"http://127.0.0.1:8000?x", PREFIX "/?x"},
        {"http://[::1]:8000/", PREFIX "/"},
        {"http://localhost:80001/a", NULL},
        {"http://localhost:8000@evil/", NULL},
        {"http://localhost:7070/v1/version", NULL},
        {"//evil/v1/version", NULL},
        {"/\\evil", NULL},
        {"\\\\evil", NULL},
        {"..\\..\\..\\..\\x", NULL},
        {"/ /x", NULL},
        {"https://example.com/", NULL},
        {"javascript:x", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_free_ char *line = xasprintf("Location: %s\r\n", rows[i][0]);
        _cleanup_free_ char *want = rows[i][1] ? xasprintf("Location: %s\r\n", rows[i][1])
                                               : xasprintf("Ripcord-Location: %s\r\n", rows[i][0]);

        CHECK(answers(&in_api, line, want));
        CHECK(answers(&as_origin, line, line));
    }
}
