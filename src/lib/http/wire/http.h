/*
 * Strict HTTP/1.1: one head parser and one chunk decoder for the server on the loop and the
 * blocking client. Both work incrementally and allocate nothing. They refuse everything ambiguous:
 * both Content-Length and Transfer-Encoding, repeated or malformed lengths, a missing or repeated
 * Host, bare CR or LF, obs-fold, a blank before the colon, NUL and other control bytes, a
 * Transfer-Encoding other than `chunked`, absolute-form targets that disagree with Host, …
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

enum {
    HTTP_HEAD_MAX = 16 << 10,
    HTTP_FIELDS_MAX = 64,
    HTTP_TARGET_MAX = 8 << 10,
    HTTP_COOKIE_MAX = 256,
};

struct http_field {
    const char *name,
        *value; /* borrowed from the head's bytes, NUL-terminated in place, value trimmed */
};

struct http_head {
    const char *method, *target; /* requests */
    int status;                  /* responses */
    const char *reason;
    int minor; /* HTTP/1.minor: 0 or 1 */
    struct http_field fields[HTTP_FIELDS_MAX];
    size_t n_fields;
    bool chunked;
    bool has_length;
    uint64_t length;
    bool keep_alive;
    const char *upgrade; /* value of Upgrade if Connection also names it, else NULL */
    bool expect_continue;
};

/*
 * Finds the end of the head in data[0..len). Returns its length with the final CRLFCRLF, 0 when
 * more bytes are needed, or -ERR_INVALID / -ERR_LIMIT. Call it again with more bytes; `*scanned` (0
 * at first) remembers the position.
 */
ssize_t http_head_find(const char *data, size_t len, size_t *scanned, struct err *err);
/* Parses a complete head in place (it writes NULs). The strings of *ret live as long as `data`. */
int http_parse_request(char *data, size_t len, struct http_head *ret, struct err *err);
int http_parse_response(char *data, size_t len, struct http_head *ret, struct err *err);
const char *http_field_get(const struct http_head *h,
                           const char *name); /* case-insensitive; NULL when absent */

/* Calls fn with the value of each cookie of this name that is shorter than HTTP_COOKIE_MAX, until
 * it returns true. Returns that. */
bool http_cookie_any(const struct http_head *h, const char *name,
                     bool (*fn)(void *arg, const char *value), void *arg);
/* Whether a Connection field names the token. */
bool http_connection_has(const struct http_head *h, const char *token);

/* Splits and percent-decodes a target in place: path (must start with '/', no NUL, no "." or ".."
 * segments after decoding) and query. */
int http_target_split(char *target, char **ret_path, char **ret_query, struct err *err);
/* The percent-decoded value of `key` in a query string, malloc'd. Absent: 0 with *ret NULL. */
int http_query_get(const char *query, const char *key, char **ret, struct err *err);
/* Adds all values of a key that may be repeated to a strv. */
int http_query_all(const char *query, const char *key, char ***ret, struct err *err);
/* Adds the names of all parameters to a strv. */
int http_query_names(const char *query, char ***ret, struct err *err);

struct http_chunked {
    int state;
    uint64_t left;
    size_t ext;
    bool done;
};
#define HTTP_CHUNKED_INIT                                                                          \
    {                                                                                              \
        0                                                                                          \
    }
/*
 * Consumes *used bytes of data. Of these, data[*body_off .. +*body_len) are body bytes (at most one
 * run per call). c->done is set after the final chunk; trailers must be empty. Call it until *used
 * is 0 or c->done is set.
 */
int http_chunked_decode(struct http_chunked *c, const char *data, size_t len, size_t *used,
                        size_t *body_off, size_t *body_len, struct err *err);

const char *http_status_text(int status);
