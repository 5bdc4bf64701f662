/*
 * The head parser: a head cut anywhere is found at the same place, and what is accepted keeps the
 * promises that the server builds on.
 */
#include <strings.h>

#include "fuzz.h"
#include "lib/http/wire/http.h"

static size_t count_field(const struct http_head *h, const char *name)
{
    size_t n = 0;

    for (size_t i = 0; i < h->n_fields; i++)
        n += strcasecmp(h->fields[i].name, name) == 0;
    return n;
}

static void check_common(const struct http_head *h)
{
    MUST(h->n_fields <= HTTP_FIELDS_MAX);
    MUST(!(h->chunked && h->has_length));
    MUST(count_field(h, "Content-Length") == h->has_length);
    MUST(count_field(h, "Transfer-Encoding") == h->chunked);
    for (size_t i = 0; i < h->n_fields; i++) {
        MUST(h->fields[i].name[0] && !strpbrk(h->fields[i].name, " \t\r\n:"));
        MUST(!strpbrk(h->fields[i].value, "\r\n"));
    }
}

static bool check_cookie(void *arg, const char *value)
{
    (void)arg;
    MUST(strlen(value) < HTTP_COOKIE_MAX && !strchr(value, ';'));
    return false;
}

static void check_request(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size), *target, *path, *query;
    struct http_head h;

    if (http_parse_request(copy, size, &h, NULL) >= 0) {
        check_common(&h);
        MUST(count_field(&h, "Host") == 1);
        MUST(h.target[0] == '/' && strlen(h.target) <= HTTP_TARGET_MAX);
        target = strdup(h.target);
        if (http_target_split(target, &path, &query, NULL) >= 0)
            MUST(path[0] == '/' && !strstr(path, "/../") && !strstr(path, "//"));
        free(target);
        http_cookie_any(&h, "a", check_cookie, &h);
    }
    free(copy);
}

static void check_response(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct http_head h;

    if (http_parse_response(copy, size, &h, NULL) >= 0) {
        check_common(&h);
        MUST(h.status >= 100 && h.status <= 599);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    size_t scanned = 0;
    ssize_t whole = http_head_find(copy, size, &scanned, NULL), step = 0;

    scanned = 0;
    for (size_t len = 0; len <= size && step == 0; len++)
        step = http_head_find(copy, len, &scanned, NULL);
    MUST(step == whole);
    free(copy);
    if (whole <= 0)
        return 0;
    check_request(data, (size_t)whole);
    check_response(data, (size_t)whole);
    return 0;
}
