/*
 * The head, chunk and target parsers and the blocking client, against a peer on a socket pair.
 */
#include "tap.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "lib/http/wire/client.h"
#include "lib/http/wire/http.h"

/* Finds and parses a request; the head's strings live in *mem. */
static int parse(const char *text, size_t len, char **mem, struct http_head *h)
{
    size_t scanned = 0;
    ssize_t n = http_head_find(text, len, &scanned, NULL);

    *mem = NULL;
    if (n <= 0)
        return n < 0 ? (int)n : -ERR_TIMEOUT; /* "more is needed" */
    *mem = xmemdup(text, (size_t)n);
    return http_parse_request(*mem, (size_t)n, h, NULL);
}

static int parse_lines(const char *lines)
{
    _cleanup_free_ char *text = xasprintf("GET / HTTP/1.1\r\nHost: x\r\n%s\r\n", lines),
                        *mem = NULL;
    struct http_head h;

    return parse(text, strlen(text), &mem, &h);
}

static int parse_line(const char *request_line)
{
    _cleanup_free_ char *text = xasprintf("%s\r\nHost: x\r\n\r\n", request_line), *mem = NULL;
    struct http_head h;

    return parse(text, strlen(text), &mem, &h);
}

TEST(request_fields)
{
    static const char text[] =
        "POST /v1/run?a=1 HTTP/1.1\r\nhOsT: localhost:80\r\nContent-Length: 12\r\n"
        "X-Blank: \t a b \t\r\nConnection: keep-alive, Upgrade\r\nUpgrade: ripcord-exec/1\r\n"
        "Expect: 100-Continue\r\nX-Empty:\r\n\r\nrest";
    _cleanup_free_ char *mem = NULL;
    struct http_head h;

    CHECK(parse(text, strlen(text), &mem, &h) == 0);
    CHECK_STR(h.method, "POST");
    CHECK_STR(h.target, "/v1/run?a=1");
    CHECK(h.minor == 1 && h.n_fields == 7);
    CHECK(h.has_length && h.length == 12 && !h.chunked);
    CHECK(h.keep_alive && h.expect_continue);
    CHECK_STR(h.upgrade, "ripcord-exec/1");
    CHECK_STR(http_field_get(&h, "host"), "localhost:80");
    CHECK_STR(http_field_get(&h, "X-BLANK"), "a b");
    CHECK_STR(http_field_get(&h, "x-empty"), "");
    CHECK(!http_field_get(&h, "x"));
}

TEST(head_find_does_not_depend_on_the_cuts)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\nbody";
    size_t scanned = 0, head = strlen(text) - 4;

    for (size_t len = 0; len < head; len++)
        CHECK(http_head_find(text, len, &scanned, NULL) == 0);
    CHECK(http_head_find(text, strlen(text), &scanned, NULL) == (ssize_t)head);
}

TEST(head_find_refuses_at_once)
{
    size_t scanned = 0;

    CHECK(http_head_find("\r\n", 2, &scanned, NULL) == -ERR_INVALID);
    CHECK(http_head_find("\nGET", 4, &scanned, NULL) == -ERR_INVALID);
    CHECK(http_head_find("GET / HTTP/1.1\n", 15, &scanned, NULL) == -ERR_INVALID);
    scanned = 0;
    CHECK(http_head_find("GET / HTTP/1.1\rX", 16, &scanned, NULL) == -ERR_INVALID);
    scanned = 0;
    CHECK(http_head_find("G\0T", 3, &scanned, NULL) == -ERR_INVALID);
    scanned = 0;
    CHECK(http_head_find("GET / HTTP/1.1\r\r\n", 17, &scanned, NULL) == -ERR_INVALID);
}

TEST(head_limit_is_exact)
{
    static char text[HTTP_HEAD_MAX + 1];
    size_t scanned = 0;

    memset(text, 'a', sizeof(text));
    memcpy(text + HTTP_HEAD_MAX - 4, "\r\n\r\n", 4);
    CHECK(http_head_find(text, sizeof(text), &scanned, NULL) == HTTP_HEAD_MAX);
    memset(text, 'a', sizeof(text));
    memcpy(text + HTTP_HEAD_MAX - 3, "\r\n\r\n", 4);
    scanned = 0;
    CHECK(http_head_find(text, sizeof(text), &scanned, NULL) == -ERR_LIMIT);
}

TEST(framing_is_unambiguous)
{
    static const char *const bad[] = {
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\ncontent-length: 2\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: 1 2\r\n",
        "Content-Length: 01\r\n",
        "Content-Length:\r\n",
        "Content-Length: 1a\r\n",
        "Content-Length: 12345678901234567890\r\n",
        "Content-Length: 9999999999999999999\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: Chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\x0b\r\n",
        "Host: x\r\n",
        "Host: y\r\n",
        " folded: 1\r\n",
        "X: 1\r\n folded\r\n",
        "X: 1\r\n\tfolded\r\n",
        "X : 1\r\n",
        "X\t: 1\r\n",
        ": 1\r\n",
        "X\r\n",
        "X(: 1\r\n",
        "X\x80: 1\r\n",
        "X: a\x01\r\n",
        "X: a\x7f\r\n",
        "Expect: 200-ok\r\n",
    };

    CHECK(parse_lines("") == 0);
    CHECK(parse_lines("Content-Length: 9223372036854775807\r\n") == 0);
    CHECK(parse_lines("Transfer-Encoding: chunked\r\n") == 0);
    CHECK(parse_lines("X: \x80\xff\r\n") == 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (parse_lines(bad[i]) != -ERR_INVALID) {
            printf("# accepted: %s\n", bad[i]);
            CHECK(false);
        }
}

TEST(request_line)
{
    static const char *const bad[] = {
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        " GET / HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /",
        "GET",
        "GET\t/ HTTP/1.1",
        "G(T / HTTP/1.1",
        "GET / HTTP/2.0",
        "GET / HTTP/1.2",
        "GET / http/1.1",
        "GET / HTTP/1.10",
        "GET / HTTP/01.1",
        "GET x HTTP/1.1",
        "GET * HTTP/1.1",
        "CONNECT x:1 HTTP/1.1",
        "GET /#f HTTP/1.1",
        "GET /\x01 HTTP/1.1",
        "GET /\xc3\xa4 HTTP/1.1",
        "GET /<> HTTP/1.1",
        "GET http://y/ HTTP/1.1",
        "GET http:///a HTTP/1.1",
        "GET http://u@x/ HTTP/1.1",
        "GET https://x/ HTTP/1.1",
        "GET http://x?q HTTP/1.1",
    };

    CHECK(parse_line("GET / HTTP/1.1") == 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (parse_line(bad[i]) != -ERR_INVALID) {
            printf("# accepted: %s\n", bad[i]);
            CHECK(false);
        }
}

TEST(absolute_form_becomes_origin_form)
{
    static const char *const pairs[][2] = {{"GET http://x/a?b HTTP/1.1\r\nHost: x\r\n\r\n", "/a?b"},
                                           {"GET http://X HTTP/1.1\r\nHost: x\r\n\r\n", "/"}};

    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        _cleanup_free_ char *mem = NULL;
        struct http_head h;

        CHECK(parse(pairs[i][0], strlen(pairs[i][0]), &mem, &h) == 0);
        CHECK_STR(h.target, pairs[i][1]);
    }
}

TEST(host_must_be_there)
{
    static const char *const bad[] = {"GET / HTTP/1.1\r\n\r\n",
                                      "GET / HTTP/1.1\r\nHost:\r\n\r\n",
                                      "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
                                      "GET / HTTP/1.0\r\n\r\n",
                                      "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
                                      "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_free_ char *mem = NULL;
        struct http_head h;

        CHECK(parse(bad[i], strlen(bad[i]), &mem, &h) == -ERR_INVALID);
    }
}

TEST(http10)
{
    static const char text[] =
        "GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive, upgrade\r\nUpgrade: a\r\n\r\n";
    static const char chunked[] = "GET / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    _cleanup_free_ char *mem = NULL, *mem2 = NULL;
    struct http_head h;

    CHECK(parse(text, strlen(text), &mem, &h) == 0);
    CHECK(h.minor == 0 && !h.keep_alive && !h.upgrade);
    CHECK(parse(chunked, strlen(chunked), &mem2, &h) == -ERR_INVALID);
}

TEST(field_and_target_limits)
{
    _cleanup_buf_ struct buf b = BUF_INIT(64 << 10);
    _cleanup_free_ char *mem = NULL, *mem2 = NULL, *mem3 = NULL;
    struct http_head h;

    CHECK(buf_append_str(&b, "GET / HTTP/1.1\r\nHost: x\r\n") == 0);
    for (int i = 0; i < HTTP_FIELDS_MAX - 1; i++)
        CHECK(buf_appendf(&b, "X-%d: 1\r\n", i) == 0);
    CHECK(buf_append_str(&b, "\r\n") == 0);
    CHECK(parse(buf_data(&b), b.len, &mem, &h) == 0 && h.n_fields == HTTP_FIELDS_MAX);
    buf_truncate(&b, b.len - 2);
    CHECK(buf_append_str(&b, "One-More: 1\r\n\r\n") == 0);
    CHECK(parse(buf_data(&b), b.len, &mem2, &h) == -ERR_LIMIT);
    buf_clear(&b);
    CHECK(buf_appendf(&b, "GET /%0*d HTTP/1.1\r\nHost: x\r\n\r\n", HTTP_TARGET_MAX, 0) == 0);
    CHECK(parse(buf_data(&b), b.len, &mem3, &h) == -ERR_LIMIT);
}

static int parse_reply(const char *text, struct http_head *h, char **mem)
{
    *mem = xstrdup(text);
    return http_parse_response(*mem, strlen(text), h, NULL);
}

TEST(response)
{
    static const char *const bad[] = {
        "HTTP/1.1 200\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 600 OK\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 200 O\x01K\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"};
    _cleanup_free_ char *mem = NULL;
    struct http_head h;

    CHECK(parse_reply("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nConnection: close\r\n\r\n",
                      &h, &mem) == 0);
    CHECK(h.status == 404 && h.length == 3 && !h.keep_alive);
    CHECK_STR(h.reason, "Not Found");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_free_ char *m = NULL;

        if (parse_reply(bad[i], &h, &m) != -ERR_INVALID) {
            printf("# accepted: %s\n", bad[i]);
            CHECK(false);
        }
    }
}

/* Decodes in pieces of `step` bytes; the number consumed, or an error. */
static ssize_t dechunk(const char *text, size_t step, struct buf *ret, bool *done)
{
    struct http_chunked c = HTTP_CHUNKED_INIT;
    size_t pos = 0, len = strlen(text), used, off, n;

    while (pos < len && !c.done) {
        int r = http_chunked_decode(&c, text + pos, MIN(step, len - pos), &used, &off, &n, NULL);

        if (r < 0)
            return r;
        if (buf_append(ret, text + pos + off, n) < 0)
            return -ERR_LIMIT;
        pos += used;
    }
    *done = c.done;
    return (ssize_t)pos;
}

TEST(chunked_does_not_depend_on_the_cuts)
{
    static const char text[] = "5\r\nhello\r\n0006;ext=\"1\"\r\n world\r\n0\r\n\r\nNEXT";

    for (size_t step = 1; step < sizeof(text); step++) {
        _cleanup_buf_ struct buf b = BUF_INIT(100);
        bool done = false;

        CHECK(dechunk(text, step, &b, &done) == (ssize_t)strlen(text) - 4);
        CHECK(done);
        CHECK_STR(buf_data(&b), "hello world");
    }
}

TEST(chunked_refuses)
{
    static const char *const bad[] = {
        "\r\n",
        " 5\r\n",
        "0x5\r\nhello\r\n",
        "5 \r\nhello\r\n",
        "5\nhello\r\n",
        "5\r\nhello0\r\n",
        "5\r\nhelloX",
        "5\r\nhello\n",
        "+5\r\n",
        "-1\r\n",
        "g\r\n",
        "00000000000000005\r\n",
        "ffffffffffffffff\r\n",
        "8000000000000000\r\n",
        "0\r\nX: trailer\r\n\r\n",
        "0\r\n\rX",
        "5;a\nb\r\n",
        "5;\x01\r\n",
        ";a\r\n",
        "5\r\rhello",
        "0\n\n",
        "5\r\nhello\r\r",
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(100);
        bool done = false;

        if (dechunk(bad[i], 100, &b, &done) != -ERR_INVALID) {
            printf("# accepted: %s\n", bad[i]);
            CHECK(false);
        }
    }
}

TEST(chunked_extensions_are_bounded_over_the_body)
{
    _cleanup_buf_ struct buf text = BUF_INIT(10000), b = BUF_INIT(1000);
    bool done = false;

    for (int i = 0; i < 9; i++)
        CHECK(buf_appendf(&text, "1;%0120d\r\na\r\n", 0) == 0);
    CHECK(dechunk(buf_data(&text), 10000, &b, &done) == -ERR_INVALID);
}

TEST(target_split)
{
    static const char *const bad[] = {"/%",   "/%2",     "/%zz",        "/%00",   "/a%2fb",
                                      "/..",  "/a/../b", "/a/%2e%2e/b", "/.",     "/%2e",
                                      "//a",  "/a//b",   "/a%0ab",      "/%7f",   "/%c0%af",
                                      "/%ff", "a",       "/a/..",       "/..%2f", "/%2E/x"};
    char good[] = "/v1/a%20b%C3%A4/...?x=%2F..";
    char *path = NULL, *query = NULL;

    CHECK(http_target_split(good, &path, &query, NULL) == 0);
    CHECK_STR(path, "/v1/a b\xc3\xa4/...");
    CHECK_STR(query, "x=%2F..");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_free_ char *t = xstrdup(bad[i]);

        if (http_target_split(t, &path, &query, NULL) != -ERR_INVALID) {
            printf("# accepted: %s\n", bad[i]);
            CHECK(false);
        }
    }
}

TEST(query_get)
{
    static const char q[] = "a=1&b=x%26y+z&flag&e=&%61b=7";
    static const char *const bad[] = {"a=%", "a=%4", "a=%zz", "a=%00", "a=1&a=2", "a=%ff", "%=1"};
    _cleanup_free_ char *a = NULL, *b = NULL, *flag = NULL, *e = NULL, *ab = NULL;
    char *none = (char *)"untouched";

    CHECK(http_query_get(q, "a", &a, NULL) == 0);
    CHECK_STR(a, "1");
    CHECK(http_query_get(q, "b", &b, NULL) == 0);
    CHECK_STR(b, "x&y z");
    CHECK(http_query_get(q, "flag", &flag, NULL) == 0);
    CHECK_STR(flag, "");
    CHECK(http_query_get(q, "e", &e, NULL) == 0);
    CHECK_STR(e, "");
    CHECK(http_query_get(q, "ab", &ab, NULL) == 0);
    CHECK_STR(ab, "7");
    CHECK(http_query_get(q, "none", &none, NULL) == 0 && !none);
    none = (char *)"untouched";
    CHECK(http_query_get(NULL, "a", &none, NULL) == 0 && !none);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char *v = NULL;

        CHECK(http_query_get(bad[i], "a", &v, NULL) == -ERR_INVALID && !v);
    }
}

/* A client whose peer has already answered `reply` and closed. */
static int client_with(struct http_client *c, const char *reply)
{
    int sv[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
        return -1;
    http_client_init(c, sv[0]);
    if (fd_write_all(sv[1], reply, strlen(reply)) < 0)
        return -1;
    shutdown(sv[1], SHUT_WR);
    return sv[1];
}

#define _cleanup_client_ __attribute__((cleanup(http_client_done)))

TEST(client_length_then_chunked_on_one_connection)
{
    static const char replies[] =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
        "HTTP/1.1 201 Created\r\nTransfer-Encoding: "
        "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    _cleanup_client_ struct http_client c;
    _cleanup_close_ _unused_ int peer = client_with(&c, replies);
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    char got[512] = "";

    CHECK(peer >= 0);
    CHECK(http_client_send(&c, "PUT", "/x", "A: b\r\n", "application/json", "{}", 2, NULL) == 0);
    CHECK(recv(peer, got, sizeof(got) - 1, 0) > 0);
    CHECK_STR(got,
              "PUT /x HTTP/1.1\r\nHost: localhost\r\nA: b\r\nContent-Type: application/json\r\n"
              "Content-Length: 2\r\n\r\n{}");
    CHECK(http_client_head(&c, NULL) == 0 && c.head.status == 200);
    CHECK(http_client_send(&c, "GET", "/", NULL, NULL, NULL, 0, NULL) == -ERR_CONFLICT);
    CHECK(http_client_body(&c, 5, &a, NULL) == 0);
    CHECK_STR(buf_data(&a), "hello");
    CHECK(http_client_send(&c, "GET", "/", NULL, NULL, NULL, 0, NULL) == 0);
    CHECK(http_client_head(&c, NULL) == 0 && c.head.status == 201);
    CHECK(http_client_body(&c, 5, &b, NULL) == 0);
    CHECK_STR(buf_data(&b), "abcde");
}

TEST(client_body_in_tiny_reads)
{
    _cleanup_client_ struct http_client c;
    _cleanup_close_ _unused_ int peer = client_with(
        &c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n");
    char all[5] = "";

    CHECK(http_client_head(&c, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(http_client_read(&c, all + i, 1, NULL) == 1);
    CHECK(http_client_read(&c, all, 1, NULL) == 0);
    CHECK_STR(all, "abcd");
}

TEST(client_body_until_close)
{
    _cleanup_client_ struct http_client c;
    _cleanup_close_ _unused_ int peer = client_with(&c, "HTTP/1.0 200 OK\r\n\r\nall of it");
    _cleanup_buf_ struct buf b = BUF_INIT(0);

    CHECK(http_client_head(&c, NULL) == 0);
    CHECK(http_client_body(&c, 100, &b, NULL) == 0);
    CHECK_STR(buf_data(&b), "all of it");
}

TEST(client_sees_cut_and_oversized_bodies)
{
    static const struct {
        const char *reply;
        int r;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", -ERR_SYSTEM},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello", -ERR_SYSTEM},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n", -ERR_SYSTEM},
        {"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n"
         "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
         "xxxxxxxxxxxx",
         -ERR_LIMIT},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", -ERR_INVALID},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_client_ struct http_client c;
        _cleanup_close_ _unused_ int peer = client_with(&c, cases[i].reply);
        _cleanup_buf_ struct buf b = BUF_INIT(0);
        _cleanup_err_ struct err err = ERR_INIT;

        CHECK(http_client_head(&c, NULL) == 0);
        CHECK(http_client_body(&c, 100, &b, &err) == cases[i].r);
        CHECK(err.msg);
    }
}

TEST(client_head_errors)
{
    static const char *const bad[] = {"", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n",
                                      "HTTP/1.1 200 OK\n\n"};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_client_ struct http_client c;
        _cleanup_close_ _unused_ int peer = client_with(&c, bad[i]);

        CHECK(http_client_head(&c, NULL) < 0);
    }
}

TEST(client_deadline)
{
    _cleanup_client_ struct http_client c;
    _cleanup_close_ int peer = -1;
    int sv[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
    peer = sv[1];
    http_client_init(&c, sv[0]);
    c.by = deadline_in(20 * USEC_PER_MSEC);
    CHECK(http_client_head(&c, NULL) == -ERR_TIMEOUT);
}

TEST(client_reads_an_early_answer_after_epipe)
{
    static const char reply[] = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
    _cleanup_free_ char *big = xcalloc(1, 4 << 20);
    _cleanup_client_ struct http_client c;
    int peer = client_with(&c, reply);

    fd_close(peer);
    CHECK(http_client_send(&c, "POST", "/", NULL, NULL, big, 4 << 20, NULL) == 0);
    CHECK(http_client_head(&c, NULL) == 0 && c.head.status == 413);
}

TEST(client_refuses_to_split_a_request)
{
    _cleanup_client_ struct http_client c;
    _cleanup_close_ _unused_ int peer = client_with(&c, "");

    CHECK(http_client_send(&c, "GET", "/a b", NULL, NULL, NULL, 0, NULL) == -ERR_INVALID);
    CHECK(http_client_send(&c, "GET", "/\r\nX: y", NULL, NULL, NULL, 0, NULL) == -ERR_INVALID);
    CHECK(http_client_send(&c, "GET\n", "/", NULL, NULL, NULL, 0, NULL) == -ERR_INVALID);
}

TEST(client_upgrade_hands_over_early_bytes)
{
    _cleanup_client_ struct http_client c;
    _cleanup_close_ _unused_ int peer = client_with(
        &c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\nearly");
    _cleanup_buf_ struct buf early = BUF_INIT(100);
    _cleanup_close_ int fd = -1;

    CHECK(http_client_head(&c, NULL) == 0 && c.head.status == 101);
    CHECK_STR(c.head.upgrade, "a");
    fd = http_client_upgraded(&c, &early);
    CHECK(fd >= 0 && c.fd < 0);
    CHECK_STR(buf_data(&early), "early");
}

TEST(client_head_request_has_no_body)
{
    _cleanup_client_ struct http_client c;
    _cleanup_close_ _unused_ int peer =
        client_with(&c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    char byte;

    CHECK(http_client_send(&c, "HEAD", "/", NULL, NULL, NULL, 0, NULL) == 0);
    CHECK(http_client_head(&c, NULL) == 0);
    CHECK(http_client_read(&c, &byte, 1, NULL) == 0);
}
