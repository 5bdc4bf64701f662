/*
 * The head parser works in two passes. http_head_find() looks for the end as bytes arrive. It
 * already refuses errors that no later byte can repair (bare CR or LF, NUL, a blank first line), so
 * a hostile head is answered at once and not at the timeout. The second pass cuts lines in place;
 * by then every CR is known to be part of a CRLF.
 *
 * Fields that decide the end of a message (Content-Length, Transfer-Encoding) or its destination
 * (Host) may occur once. Two programs could read a repeated field differently, and request
 * smuggling is based on that.
 */
#include "lib/http/wire/http.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "lib/base/guard.h"
#include "lib/base/macro.h"
#include "lib/base/parse.h"

enum { METHOD_MAX = 32, LENGTH_DIGITS_MAX = 19 };

static bool http_is_token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* RFC 3986: unreserved, sub-delims and the delimiters of path and query, and what browsers leave as
 * it is beyond that. '#' is missing: clients do not send fragments. */
static bool http_is_target_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("-._~!$&'()*+,;=:@/?%[]{}|^`", c));
}

static bool http_is_host_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("-._~:[]%", c));
}

static bool http_is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

static bool http_all_of(const char *s, bool (*pred)(char))
{
    while (*s && pred(*s))
        s++;
    return *s == '\0';
}

ssize_t http_head_find(const char *data, size_t len, size_t *scanned, struct err *err)
{
    if (len && (data[0] == '\r' || data[0] == '\n'))
        return err_set(err, ERR_INVALID, "blank line before the first line of an HTTP message");
    for (size_t i = *scanned; i < len; i++) {
        if (i >= HTTP_HEAD_MAX && GUARD("head size"))
            return err_set(err, ERR_LIMIT, "HTTP head is larger than %d bytes", HTTP_HEAD_MAX);
        if (data[i] == '\0')
            return err_set(err, ERR_INVALID, "NUL byte in the HTTP head");
        if (data[i] == '\n' && data[i - 1] != '\r' && GUARD("line ends"))
            return err_set(err, ERR_INVALID, "bare LF in the HTTP head");
        if (data[i] != '\n' && i > 0 && data[i - 1] == '\r')
            return err_set(err, ERR_INVALID, "bare CR in the HTTP head");
        *scanned = i + 1;
        if (data[i] == '\n' && i >= 3 && data[i - 2] == '\n')
            return (ssize_t)(i + 1);
    }
    return 0;
}

/* Cuts off the next line at its CRLF and moves *p after it. The caller has checked that it
 * exists. */
static char *http_next_line(char **p, char *end)
{
    char *line = *p, *lf = memchr(line, '\n', (size_t)(end - line));

    if (!lf || lf == line || lf[-1] != '\r')
        return NULL;
    lf[-1] = '\0';
    *p = lf + 1;
    return line;
}

static int http_parse_version(const char *s, int *ret, struct err *err)
{
    if (!STREQ(s, "HTTP/1.1") && !STREQ(s, "HTTP/1.0"))
        return err_set(err, ERR_INVALID, "HTTP version is not HTTP/1.1 or HTTP/1.0");
    *ret = s[7] - '0';
    return 0;
}

static int http_parse_length(const char *s, uint64_t *ret, struct err *err)
{
    size_t digits = strspn(s, "0123456789");

    /* Some programs read a leading zero as octal. */
    if ((digits == 0 || s[digits] || digits > LENGTH_DIGITS_MAX || (s[0] == '0' && digits > 1)) &&
        GUARD("plain lengths"))
        return err_set(err, ERR_INVALID, "malformed Content-Length");
    if (parse_u64(s, 0, INT64_MAX, ret, NULL) < 0)
        return err_set(err, ERR_INVALID, "Content-Length out of range");
    return 0;
}

/* Whether a comma-separated list names the token. */
static bool http_list_has(const char *list, const char *token)
{
    size_t want = strlen(token);

    assert(list);
    while (*list) {
        size_t n;

        list += strspn(list, ", \t");
        n = strcspn(list, ", \t");
        if (n == want && strncasecmp(list, token, n) == 0)
            return true;
        list += n;
    }
    return false;
}

bool http_connection_has(const struct http_head *h, const char *token)
{
    for (size_t i = 0; i < h->n_fields; i++)
        if (strcasecmp(h->fields[i].name, "Connection") == 0 &&
            http_list_has(h->fields[i].value, token))
            return true;
    return false;
}

const char *http_field_get(const struct http_head *h, const char *name)
{
    for (size_t i = 0; i < h->n_fields; i++)
        if (strcasecmp(h->fields[i].name, name) == 0)
            return h->fields[i].value;
    return NULL;
}

/* Fields that must not be repeated: it would be unclear which one counts. */
static bool http_is_singleton(const char *name)
{
    static const char *const names[] = {"Host",         "Content-Length",   "Transfer-Encoding",
                                        "Content-Type", "Content-Encoding", "Expect",
                                        "Upgrade",      "Authorization",    "Origin",
                                        "Location",     "Idempotency-Key"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

static int http_parse_field(char *line, struct http_head *h, struct err *err)
{
    char *colon = strchr(line, ':'), *value, *end;

    if (line[0] == ' ' || line[0] == '\t')
        return err_set(err, ERR_INVALID, "folded header field (a line that begins with a blank)");
    if (!colon || colon == line)
        return err_set(err, ERR_INVALID, "header field without a name or colon");
    *colon = '\0';
    if (!http_all_of(line, http_is_token_char) && GUARD("field names"))
        return err_set(err, ERR_INVALID,
                       "bad byte in a header field's name (a blank before the colon?)");
    value = colon + 1 + strspn(colon + 1, " \t");
    for (end = value; *end; end++)
        if (http_is_control(*end) && *end != '\t')
            return err_set(err, ERR_INVALID, "control byte in header field '%.64s'", line);
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = '\0';
    if (http_is_singleton(line) && http_field_get(h, line) && GUARD("given once"))
        return err_set(err, ERR_INVALID, "header field '%.64s' given twice", line);
    if (h->n_fields == HTTP_FIELDS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d header fields", HTTP_FIELDS_MAX);
    h->fields[h->n_fields++] = (struct http_field){line, value};
    return 0;
}

static int http_parse_fields(char *p, char *end, struct http_head *h, struct err *err)
{
    for (;;) {
        char *line = http_next_line(&p, end);
        int r;

        if (!line)
            return err_set(err, ERR_INVALID, "malformed line in the HTTP head");
        if (*line == '\0')
            return p == end ? 0 : err_set(err, ERR_INVALID, "bytes after the HTTP head");
        r = http_parse_field(line, h, err);
        if (r < 0)
            return r;
    }
}

/* Finds where the body ends, and whether the connection is kept. */
static int http_parse_framing(struct http_head *h, struct err *err)
{
    const char *length = http_field_get(h, "Content-Length"),
               *te = http_field_get(h, "Transfer-Encoding");
    int r;

    if (length && te && GUARD("one framing"))
        return err_set(err, ERR_INVALID, "both Content-Length and Transfer-Encoding");
    if (te && (!STREQ(te, "chunked") || h->minor == 0) && GUARD("chunked alone"))
        return err_set(err, ERR_INVALID, "Transfer-Encoding is not 'chunked' in HTTP/1.1");
    if (length) {
        r = http_parse_length(length, &h->length, err);
        if (r < 0)
            return r;
    }
    h->chunked = te;
    h->has_length = length;
    h->keep_alive = h->minor == 1 && !http_connection_has(h, "close");
    if (h->minor == 1 && http_connection_has(h, "upgrade"))
        h->upgrade = http_field_get(h, "Upgrade");
    return 0;
}

static int http_parse_expect(struct http_head *h, struct err *err)
{
    const char *expect = http_field_get(h, "Expect");

    if (!expect)
        return 0;
    if (strcasecmp(expect, "100-continue") != 0)
        return err_set(err, ERR_INVALID, "Expect is not '100-continue'");
    h->expect_continue = h->minor == 1;
    return 0;
}

/* "http://authority/path": the authority must equal Host; the rest is the origin form. */
static int http_absolute_to_origin(char *target, const char *host, const char **ret,
                                   struct err *err)
{
    char *authority = target + strlen("http://");
    size_t n = strcspn(authority, "/?");
    char *path = authority + n;

    if (n == 0 ||
        ((n != strlen(host) || strncasecmp(authority, host, n) != 0) && GUARD("one host")))
        return err_set(err, ERR_INVALID,
                       "the host of the request target differs from the Host field");
    if (*path == '?')
        return err_set(err, ERR_INVALID, "request target without a path");
    if (*path == '\0')
        *--path = '/';
    *ret = path;
    return 0;
}

static int http_check_target(struct http_head *h, char *target, struct err *err)
{
    const char *host = http_field_get(h, "Host");

    if (!host || !*host || !http_all_of(host, http_is_host_char))
        return err_set(err, ERR_INVALID, "Host field missing or malformed");
    if (strlen(target) > HTTP_TARGET_MAX)
        return err_set(err, ERR_LIMIT, "request target is longer than %d bytes", HTTP_TARGET_MAX);
    if (!http_all_of(target, http_is_target_char))
        return err_set(err, ERR_INVALID, "request target: a byte must be percent-encoded");
    if (strncasecmp(target, "http://", strlen("http://")) == 0)
        return http_absolute_to_origin(target, host, &h->target, err);
    if (target[0] != '/')
        return err_set(err, ERR_INVALID, "request target does not begin with '/'");
    h->target = target;
    return 0;
}

int http_parse_request(char *data, size_t len, struct http_head *ret, struct err *err)
{
    struct http_head h = {0};
    char *p = data, *line = http_next_line(&p, data + len), *target, *version;
    int r;

    target = line ? strchr(line, ' ') : NULL;
    version = target ? strchr(target + 1, ' ') : NULL;
    if (!version)
        return err_set(err, ERR_INVALID, "request line is not 'METHOD TARGET HTTP/1.1'");
    *target++ = '\0';
    *version++ = '\0';
    if (!*line || strlen(line) > METHOD_MAX || !http_all_of(line, http_is_token_char))
        return err_set(err, ERR_INVALID, "malformed request method");
    h.method = line;
    r = http_parse_version(version, &h.minor, err);
    if (r < 0)
        return r;
    r = http_parse_fields(p, data + len, &h, err);
    if (r < 0)
        return r;
    r = http_check_target(&h, target, err);
    if (r < 0)
        return r;
    r = http_parse_framing(&h, err);
    if (r < 0)
        return r;
    r = http_parse_expect(&h, err);
    if (r < 0)
        return r;
    *ret = h;
    return 0;
}

static int http_parse_status(const char *s, int *ret, struct err *err)
{
    uint32_t status;

    if (strlen(s) != 3 || parse_u32(s, 100, 599, &status, NULL) < 0)
        return err_set(err, ERR_INVALID, "malformed HTTP status");
    *ret = (int)status;
    return 0;
}

int http_parse_response(char *data, size_t len, struct http_head *ret, struct err *err)
{
    struct http_head h = {0};
    char *p = data, *line = http_next_line(&p, data + len), *status, *reason;
    int r;

    status = line ? strchr(line, ' ') : NULL;
    reason = status ? strchr(status + 1, ' ') : NULL;
    if (!reason)
        return err_set(err, ERR_INVALID, "status line is not 'HTTP/1.1 STATUS REASON'");
    *status++ = '\0';
    *reason++ = '\0';
    for (const char *c = reason; *c; c++)
        if (http_is_control(*c) && *c != '\t')
            return err_set(err, ERR_INVALID, "control byte in the HTTP status line");
    h.reason = reason;
    r = http_parse_version(line, &h.minor, err);
    if (r < 0)
        return r;
    r = http_parse_status(status, &h.status, err);
    if (r < 0)
        return r;
    r = http_parse_fields(p, data + len, &h, err);
    if (r < 0)
        return r;
    r = http_parse_framing(&h, err);
    if (r < 0)
        return r;
    *ret = h;
    return 0;
}

const char *http_status_text(int status)
{
    /* clang-format off */
    static const struct { int status; const char *text; } table[] = {
        {100, "Continue"}, {101, "Switching Protocols"},
        {200, "OK"}, {201, "Created"}, {202, "Accepted"}, {204, "No Content"}, {206, "Partial Content"},
        {304, "Not Modified"},
        {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"}, {404, "Not Found"}, {405, "Method Not Allowed"},
        {408, "Request Timeout"}, {409, "Conflict"}, {411, "Length Required"}, {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"}, {416, "Range Not Satisfiable"}, {421, "Misdirected Request"}, {426, "Upgrade Required"},
        {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"}, {501, "Not Implemented"}, {502, "Bad Gateway"}, {503, "Service Unavailable"},
        {504, "Gateway Timeout"}, {507, "Insufficient Storage"},
    };
    /* clang-format on */

    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (table[i].status == status)
            return table[i].text;
    return "Unknown";
}
