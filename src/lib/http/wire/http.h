/*
 * Strict HTTP/1.1: one head parser and one chunk decoder, shared by the server on the loop and by
 * the blocking client. Incremental, allocation-free, refuses everything ambiguous (SECURITY E3):
 * both Content-Length and Transfer-Encoding, repeated or malformed lengths, two Hosts or none, bare
 * CR or LF, obs-fold, blank before the colon, NUL and other control bytes, TE other than exactly
 * `chunked`, absolute-form targets that disagree with Host, …
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
    const char *upgrade; /* value of Upgrade when Connection names it too, else NULL */
    bool expect_continue;
};

/*
 * Finds the end of the head in data[0..len): its length with the final CRLFCRLF, 0 when more bytes
 * are needed, or -ERR_INVALID / -ERR_LIMIT. Call again with more; `*scanned` (0 at first) remembers
 * how far it looked.
 */
ssize_t http_head_find(const char *data, size_t len, size_t *scanned, struct err *err);
/* Parses a whole head found above, in place (NULs are written). The head's strings live as long as
 * `data`. */
int http_parse_request(char *data, size_t len, struct http_head *ret, struct err *err);
int http_parse_response(char *data, size_t len, struct http_head *ret, struct err *err);
const char *http_field_get(const struct http_head *h,
                           const char *name); /* case-insensitive; NULL when absent */

/* Splits and percent-decodes a target in place: path (must start with '/', no NUL, no "." or ".."
 * segments after decoding) and query. */
int http_target_split(char *target, char **ret_path, char **ret_query, struct err *err);
/* The value of `key` in a query string, percent-decoded into a new string; 0 with *ret NULL when
 * absent. */
int http_query_get(const char *query, const char *key, char **ret, struct err *err);
/* All values of a key that may come more than once, added to a strv. */
int http_query_all(const char *query, const char *key, char ***ret, struct err *err);

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
 * Consumes from data: *used bytes, of which body bytes are data[*body_off .. +*body_len) (at most
 * one run a call). c->done after the final chunk and trailers (which must be empty). Call until
 * *used is 0 or done.
 */
int http_chunked_decode(struct http_chunked *c, const char *data, size_t len, size_t *used,
                        size_t *body_off, size_t *body_len, struct err *err);

const char *http_status_text(int status);
