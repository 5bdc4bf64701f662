/*
 * Answers of a hostile service: what the client gets of them parses again, has no field that is for
 * us or for our origin, and leads nowhere but below the port. Requests are written so that they
 * parse as one request, without the client's credentials.
 */
#include <string.h>
#include <strings.h>

#include "daemon/api/port-message.h"
#include "fuzz.h"
#include "lib/base/macro.h"

static const struct port_route places[] = {
    {.place = PORT_IN_API, .name = "box", .port = 8000, .target = "/a/b?c"},
    {.place = PORT_AS_ORIGIN, .name = "box", .port = 8000, .target = "/a/b?c"},
};

/* After the prefix no ".." is left before the query. */
static void must_stay_below(const char *location)
{
    static const char prefix[] = "/v1/sandboxes/box/ports/8000/";
    size_t path = strcspn(location, "?#");

    MUST(strncmp(location, prefix, sizeof(prefix) - 1) == 0);
    MUST(!memmem(location, path, "/../", 4) && !strchr(location, '\\'));
    MUST(path < 3 || memcmp(location + path - 3, "/..", 3) != 0);
}

static void check_answer(const struct port_route *route, const struct http_head *given)
{
    struct buf b = BUF_INIT(2 * PORT_HEAD_MAX), fields = BUF_INIT(PORT_HEAD_MAX);
    struct http_head h;

    if (port_answer_fields(route, given, &fields) >= 0) {
        MUST(buf_appendf(&b, "HTTP/1.1 200 OK\r\n%s\r\n", buf_data(&fields)) == 0);
        if (http_parse_response(buf_data(&b), b.len, &h, NULL) >= 0) {
            const char *location = http_field_get(&h, "Location");

            MUST(!h.chunked && !h.has_length && !h.upgrade && !http_field_get(&h, "Connection"));
            if (route->place == PORT_IN_API) {
                MUST(!http_field_get(&h, "Set-Cookie") && !http_field_get(&h, "Refresh"));
                if (location)
                    must_stay_below(location);
            }
        }
    }
    buf_done(&b);
    buf_done(&fields);
}

static void check_request(const struct port_route *route, const struct http_head *given)
{
    struct buf b = BUF_INIT(PORT_HEAD_MAX);
    struct http_head h;
    size_t scanned = 0;

    if (port_request_head(route, given, PORT_CLOSE, &b) >= 0) {
        MUST(http_head_find(buf_data(&b), b.len, &scanned, NULL) == (ssize_t)b.len);
        if (http_parse_request(buf_data(&b), b.len, &h, NULL) >= 0) {
            MUST(h.chunked == given->chunked && h.has_length == given->has_length);
            MUST(h.length == given->length && STREQ(h.target, route->target));
            MUST(route->place == PORT_AS_ORIGIN ||
                 (!http_field_get(&h, "Authorization") && !http_field_get(&h, "Cookie")));
        }
    }
    buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *request = fuzz_copy(data, size), *response = fuzz_copy(data, size);
    size_t scanned = 0;
    ssize_t n = http_head_find(request, size, &scanned, NULL);
    struct http_head h;

    if (n > 0 && http_parse_request(request, (size_t)n, &h, NULL) >= 0)
        for (size_t i = 0; i < ARRAY_SIZE(places); i++)
            check_request(&places[i], &h);
    if (n > 0 && http_parse_response(response, (size_t)n, &h, NULL) >= 0)
        for (size_t i = 0; i < ARRAY_SIZE(places); i++)
            check_answer(&places[i], &h);
    free(request);
    free(response);
    return 0;
}
