/*
 * The server on a real unix socket. Its loop runs in a thread; the test is the blocking client.
 * Handlers are chosen by path. Every read of the client has a timeout, so a hang is a failure.
 */
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/http/server/http-server.h"
#include "lib/http/wire/client.h"
#include "lib/loop/loop.h"

enum { BODY_MAX = 1 << 20, REPLY_MAX = 64 << 20, FLOOD = 24 << 20, PIECE = 64 << 10 };

struct server {
    struct loop *loop;
    struct http_server *http;
    struct loop_watch *stop_watch;
    pthread_t thread;
    int stop_fd[2];
    struct sockaddr_un addr;
    socklen_t addr_len;
    atomic_int requests, gone, raw_bytes, raw_eof;
    atomic_size_t pending_max;
    atomic_ullong body_sum;
};

static struct server *the_server; /* handlers know it by name: one at a time */

/* -- handlers -- */

struct later {
    struct http_req *req;
    struct loop_timer *timer;
    size_t sent;
    char *block; /* what a flood repeats */
    int step;
};

static struct later *later_new(struct http_req *r, loop_fn fn)
{
    struct later *l = xnew0(struct later);

    l->req = r;
    l->timer = fn ? loop_timer_new(the_server->loop, fn, l) : NULL;
    http_req_set_user(r, l);
    return l;
}

static void later_free(struct later *l)
{
    loop_timer_free(l->timer);
    free(l->block);
    free(l);
}

static void count_gone(struct http_req *r)
{
    the_server->gone++;
    if (http_req_user(r))
        later_free(http_req_user(r));
}

static void reply_later(void *arg)
{
    struct later *l = arg;

    http_reply(l->req, 200, "text/plain", "later", 5);
    later_free(l);
}

static void note_pending(struct http_req *r)
{
    size_t now = http_stream_pending(r);

    if (now > the_server->pending_max)
        the_server->pending_max = now;
}

static void pump_stream(struct http_req *r)
{
    struct later *l = http_req_user(r);

    while (l->sent < FLOOD && http_stream_pending(r) <= 256 << 10) {
        http_stream_write(r, l->block, PIECE);
        l->sent += PIECE;
        note_pending(r);
    }
    if (l->sent == FLOOD && http_stream_pending(r) == 0) {
        later_free(l);
        http_stream_end(r);
    }
}

static void pump_raw(struct http_req *r)
{
    struct later *l = http_req_user(r);

    while (l->sent < FLOOD && http_stream_pending(r) <= 256 << 10) {
        http_raw_take(r, xmemdup(l->block, PIECE), PIECE);
        l->sent += PIECE;
        note_pending(r);
    }
    if (l->sent == FLOOD) {
        later_free(l);
        http_raw_close(r);
    }
}

/* Writes one byte per on_drain, so each call must come, also after writes that the kernel took at
 * once. */
static void drip(struct http_req *r)
{
    struct later *l = http_req_user(r);

    if (l->step++ < 5) {
        http_stream_write(r, "x", 1);
        return;
    }
    later_free(l);
    http_stream_end(r);
}

static void raw_echo(struct http_req *r, const char *data, size_t len)
{
    the_server->raw_bytes += (int)len;
    http_raw_write(r, data, len);
}

static void raw_close_at_eof(struct http_req *r)
{
    the_server->raw_eof++;
    if (http_req_user(r))
        later_free(http_req_user(r));
    http_raw_write(r, "bye", 3);
    http_raw_close(r);
}

static void raw_count(struct http_req *r, const char *data _unused_, size_t len)
{
    the_server->raw_bytes += (int)len;
    http_raw_read(r, false);
}

static void raw_resume(void *arg)
{
    struct later *l = arg;

    http_raw_read(l->req, true);
}

static void no_drain(struct http_req *r _unused_)
{
}

static void start_flood(struct http_req *r, bool raw)
{
    struct later *l = later_new(r, NULL);
    static const struct http_raw_events events = {.on_data = raw_echo, .on_drain = pump_raw};

    l->block = xmalloc(PIECE);
    for (int i = 0; i < PIECE; i++)
        l->block[i] = (char)(i * 7);
    http_req_on_gone(r, count_gone);
    if (raw)
        http_upgrade(r, "flood", &events);
    else
        http_stream_start(r, 200, "application/octet-stream", pump_stream);
}

static void raw_half_close(struct http_req *r, const char *data _unused_, size_t len _unused_)
{
    static char block[PIECE];

    if (the_server->raw_bytes == 0) {
        for (int i = 0; i < 4; i++)
            http_raw_write(r, block, sizeof(block));
        http_raw_end(r);
    }
    the_server->raw_bytes += (int)len;
}

static void raw_eof_after_end(struct http_req *r)
{
    the_server->raw_eof++;
    http_raw_close(r);
}

static void start_upgrade(struct http_req *r, const char *path)
{
    static const struct http_raw_events echo = {
        .on_data = raw_echo, .on_eof = raw_close_at_eof, .on_drain = no_drain};
    static const struct http_raw_events deaf = {.on_data = raw_echo, .on_drain = no_drain};
    static const struct http_raw_events ending = {
        .on_data = raw_half_close, .on_eof = raw_eof_after_end, .on_drain = no_drain};
    static const struct http_raw_events paused = {
        .on_data = raw_count, .on_eof = raw_close_at_eof, .on_drain = no_drain};

    http_req_on_gone(r, count_gone);
    if (STREQ(path, "/raw/echo"))
        http_upgrade(r, "echo", &echo);
    else if (STREQ(path, "/raw/ending"))
        http_upgrade(r, "echo", &ending);
    else if (STREQ(path, "/raw/no-eof"))
        http_upgrade(r, "echo", &deaf);
    else if (STREQ(path, "/raw/paused")) {
        struct later *l = later_new(r, raw_resume);

        http_upgrade(r, "echo", &paused);
        loop_timer_set(l->timer, 20000, true);
    } else
        start_flood(r, true);
}

/* -- streamed bodies: /body/count counts, /body/paused pauses after each piece, /body/refuse
 * answers at the first one, /body/unread without reading -- */

static bool want_stream(void *arg _unused_, const struct http_head *head _unused_, const char *path)
{
    return strncmp(path, "/body/", 6) == 0;
}

static void body_count(struct http_req *r _unused_, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        the_server->body_sum += (unsigned char)data[i];
    the_server->raw_bytes += (int)len;
}

static void body_pause(struct http_req *r, const char *data, size_t len)
{
    body_count(r, data, len);
    http_body_read(r, false);
}

static void body_resume(void *arg)
{
    struct later *l = arg;

    http_body_read(l->req, true);
}

static void body_refuse(struct http_req *r, const char *data _unused_, size_t len _unused_)
{
    http_reply(r, 400, "text/plain", "enough", 6);
}

static void body_end(struct http_req *r)
{
    char text[64];
    int n = snprintf(text, sizeof(text), "%d %llu", (int)the_server->raw_bytes,
                     (unsigned long long)the_server->body_sum);

    if (http_req_user(r))
        later_free(http_req_user(r));
    http_reply(r, 200, "text/plain", text, (size_t)n);
}

static void start_body(struct http_req *r, const char *path)
{
    static const struct http_body_events count = {body_count, body_end};
    static const struct http_body_events paused = {body_pause, body_end};
    static const struct http_body_events refuse = {body_refuse, body_end};

    the_server->raw_bytes = 0;
    the_server->body_sum = 0;
    http_req_on_gone(r, count_gone);
    if (STREQ(path, "/body/unread")) {
        http_reply(r, 403, "text/plain", "no", 2);
    } else if (STREQ(path, "/body/paused")) {
        struct later *l = later_new(r, body_resume);

        http_body_start(r, &paused);
        loop_timer_set(l->timer, 20000, true);
    } else if (STREQ(path, "/body/refuse")) {
        http_body_start(r, &refuse);
    } else {
        http_body_start(r, &count);
    }
}

static void on_request(void *arg _unused_, struct http_req *r)
{
    const char *path = http_req_path(r), *body;
    _cleanup_err_ struct err err = ERR_INIT;
    size_t len;

    the_server->requests++;
    body = http_req_body(r, &len);
    if (STREQ(path, "/hello"))
        http_reply(r, 200, "text/plain", "hello", 5);
    else if (STREQ(path, "/echo"))
        http_reply(r, 200, http_field_get(http_req_head(r), "Content-Type"), body, len);
    else if (STREQ(path, "/empty"))
        http_reply(r, 204, NULL, NULL, 0);
    else if (STREQ(path, "/later") || STREQ(path, "/later-deaf")) {
        if (STREQ(path, "/later"))
            http_req_on_gone(r, count_gone);
        loop_timer_set(later_new(r, reply_later)->timer, 30000, false);
    } else if (STREQ(path, "/never"))
        http_req_on_gone(r, count_gone);
    else if (STREQ(path, "/stream"))
        start_flood(r, false);
    else if (STREQ(path, "/abort")) {
        http_stream_start(r, 200, "text/plain", no_drain);
        http_stream_write(r, "half", 4);
        http_stream_abort(r);
    } else if (STREQ(path, "/events")) {
        http_stream_start(r, 200, "text/event-stream", no_drain);
        http_stream_write(r, "data: 1\n\n", 9);
        http_req_on_gone(r, count_gone);
    } else if (want_stream(NULL, NULL, path))
        start_body(r, path);
    else if (STREQ(path, "/drip")) {
        later_new(r, NULL);
        http_stream_start(r, 200, "text/plain", drip);
    } else if (strncmp(path, "/raw/", 5) == 0)
        start_upgrade(r, path);
    else {
        err_set(&err, ERR_NOT_FOUND, "no such path '%s'", path);
        err_hint(&err, "Ask for \"/hello\".");
        http_reply_err(r, NULL, &err);
    }
}

/* -- the server's thread -- */

static void on_stop(void *arg, int events _unused_)
{
    struct server *s = arg;

    http_server_stop_accepting(s->http);
    http_server_free(s->http);
    loop_watch_free(s->stop_watch);
    loop_stop(s->loop);
}

static void *server_main(void *arg)
{
    struct server *s = arg;

    loop_run(s->loop);
    return NULL;
}

static struct server *server_start(const struct http_server_config *custom)
{
    struct http_server_config config = custom ? *custom : (struct http_server_config){0};
    struct server *s = the_server = xnew0(struct server);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    s->addr.sun_family = AF_UNIX;
    s->addr_len = sizeof(sa_family_t);
    config.on_request = on_request;
    config.want_stream = want_stream;
    if (!config.body_max)
        config.body_max = BODY_MAX;
    if (!config.connections_max)
        config.connections_max = 64;
    /* an address of the kernel's choice in the abstract name space */
    if (bind(fd, (struct sockaddr *)&s->addr, s->addr_len) < 0 || listen(fd, 128) < 0)
        abort();
    s->addr_len = sizeof(s->addr);
    getsockname(fd, (struct sockaddr *)&s->addr, &s->addr_len);
    if (loop_new(&s->loop, NULL) < 0 || http_server_new(s->loop, &config, &s->http, NULL) < 0 ||
        http_server_listen(s->http, fd, NULL) < 0 || pipe2(s->stop_fd, O_CLOEXEC) < 0)
        abort();
    s->stop_watch = loop_watch_new(s->loop, s->stop_fd[0], on_stop, s);
    loop_watch_set(s->stop_watch, LOOP_READ);
    if (pthread_create(&s->thread, NULL, server_main, s) != 0)
        abort();
    return s;
}

/* Ends the thread; what was counted stays. */
static void server_stop(struct server *s)
{
    if (!s->loop)
        return;
    (void)!write(s->stop_fd[1], "x", 1);
    pthread_join(s->thread, NULL);
    loop_free(TAKE_PTR(s->loop));
    close(s->stop_fd[0]);
    close(s->stop_fd[1]);
}

static void server_free(struct server *s)
{
    server_stop(s);
    free(s);
}
DEFINE_CLEANUP(struct server *, server_free);

#define SERVER(custom) _cleanup_(server_freep) struct server *s = server_start(custom)

/* -- the client -- */

static int dial(struct server *s)
{
    struct timeval tv = {.tv_sec = 10};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&s->addr, s->addr_len) < 0)
        return fd_close(fd);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    return fd;
}

static bool send_text(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

        if (n <= 0)
            return false; /* refused early: the answer says why */
        text += n;
        len -= (size_t)n;
    }
    return true;
}

/* All until the server closes; false when it does not, or resets instead. */
static bool read_all(int fd, struct buf *b)
{
    for (;;) {
        char piece[16 << 10];
        ssize_t n = recv(fd, piece, sizeof(piece), 0);

        if (n < 0)
            return errno == ECONNRESET && b->len > 0;
        if (n == 0)
            return true;
        if (buf_append(b, piece, (size_t)n) < 0)
            return false;
    }
}

/* Sends, reads to the end; the text is in *b. */
static bool exchange(struct server *s, const char *text, struct buf *b)
{
    _cleanup_close_ int fd = dial(s);

    send_text(fd, text, strlen(text));
    shutdown(fd, SHUT_WR);
    return read_all(fd, b);
}

static bool wait_until(atomic_int *counter, int value)
{
    struct deadline by = deadline_in(10 * USEC_PER_SEC);

    while (*counter < value && !deadline_passed(&by))
        usleep(1000);
    return *counter >= value;
}

#define REQ(line) line " HTTP/1.1\r\nHost: x\r\n"
#define _cleanup_client_ __attribute__((cleanup(http_client_done)))

/* -- plain requests -- */

TEST(reply_bytes)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    SERVER(NULL);

    CHECK(exchange(s, REQ("GET /hello") "Connection: close\r\n\r\n", &b));
    CHECK_STR(buf_data(&b), "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n"
                            "Content-Length: 5\r\n\r\nhello");
}

TEST(reply_error_is_json)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    SERVER(NULL);

    CHECK(exchange(s, REQ("GET /%22x") "\r\n", &b));
    CHECK(strstr(buf_data(&b), "HTTP/1.1 404 Not Found\r\n"));
    CHECK(strstr(buf_data(&b),
                 "{\"error\":{\"code\":\"not_found\",\"message\":\"no such path '/\\\"x'\","
                 "\"hint\":\"Ask for \\\"/hello\\\".\"}}"));
}

TEST(keep_alive_and_bodies)
{
    static const char *const bodies[] = {"", "one", "another body"};
    _cleanup_client_ struct http_client c;
    SERVER(NULL);

    http_client_init(&c, dial(s));
    c.by = deadline_in(10 * USEC_PER_SEC);
    for (int i = 0; i < 300; i++) {
        const char *body = bodies[i % 3];
        _cleanup_buf_ struct buf b = BUF_INIT(0);

        CHECK(http_client_send(&c, "POST", "/echo", NULL, "text/plain", body, strlen(body), NULL) ==
              0);
        CHECK(http_client_head(&c, NULL) == 0 && c.head.status == 200 && c.head.keep_alive);
        CHECK(http_client_body(&c, 100, &b, NULL) == 0);
        CHECK_STR(buf_data(&b), body);
    }
    CHECK(s->requests == 300);
}

TEST(chunked_body_byte_by_byte)
{
    static const char text[] = REQ(
        "POST /echo") "Content-Type: a/b\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                      "3\r\nabc\r\n02;x=y\r\nde\r\n0\r\n\r\n";
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    _cleanup_close_ int fd = -1;
    SERVER(NULL);

    fd = dial(s);
    for (const char *p = text; *p; p++)
        CHECK(send_text(fd, p, 1));
    CHECK(read_all(fd, &b));
    CHECK(strstr(buf_data(&b), "Content-Length: 5\r\n\r\nabcde"));
}

TEST(pipelined_requests_are_answered_in_order)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    SERVER(NULL);

    CHECK(exchange(
        s,
        REQ("GET /later") "\r\n" REQ("POST /echo") "Content-Length: 3\r\n\r\none" REQ(
            "GET /hello") "\r\n" REQ("GET /drip") "\r\n" REQ("GET /later") "Connection: "
                                                                           "close\r\n\r"
                                                                           "\n" REQ("GET "
                                                                                    "/hell"
                                                                                    "o") "\r\n",
        &b));
    CHECK(s->requests == 5);
    {
        const char *later = strstr(buf_data(&b), "\r\n\r\nlater"),
                   *one = later ? strstr(later, "\r\n\r\none") : NULL;
        const char *hello = one ? strstr(one, "\r\n\r\nhello") : NULL;
        const char *drip_end = hello ? strstr(hello, "1\r\nx\r\n0\r\n\r\n") : NULL;

        CHECK(drip_end && strstr(drip_end, "Connection: close\r\nContent-Length: 5\r\n\r\nlater"));
    }
}

TEST(pipelined_flood_is_answered_whole)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX), text = BUF_INIT(REPLY_MAX);
    SERVER(NULL);

    for (int i = 0; i < 2000; i++)
        CHECK(buf_append_str(&text, REQ("GET /hello") "\r\n") == 0);
    CHECK(exchange(s, buf_data(&text), &b));
    CHECK(s->requests == 2000);
    CHECK(b.len ==
          2000 *
              strlen(
                  "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"));
}

TEST(expect_continue)
{
    static const char head[] =
        REQ("POST /echo") "Expect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n";
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    _cleanup_close_ int fd = -1;
    char interim[26] = "";
    SERVER(NULL);

    fd = dial(s);
    CHECK(send_text(fd, head, strlen(head)));
    CHECK(recv(fd, interim, 25, MSG_WAITALL) == 25);
    CHECK_STR(interim, "HTTP/1.1 100 Continue\r\n\r\n");
    CHECK(send_text(fd, "{}", 2));
    CHECK(read_all(fd, &b) && strstr(buf_data(&b), "\r\n\r\n{}"));
}

TEST(expect_continue_is_refused_over_the_limit)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    SERVER(NULL);

    CHECK(exchange(s, REQ("POST /echo") "Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n",
                   &b));
    CHECK(strncmp(buf_data(&b), "HTTP/1.1 413 ", 13) == 0);
}

TEST(largest_body)
{
    _cleanup_free_ char *big = xcalloc(1, BODY_MAX + 1);
    _cleanup_buf_ struct buf b = BUF_INIT(0), refused = BUF_INIT(0);
    _cleanup_client_ struct http_client c;
    SERVER(NULL);

    http_client_init(&c, dial(s));
    memset(big, 'a', BODY_MAX + 1);
    CHECK(http_client_send(&c, "PUT", "/echo", NULL, "a/b", big, BODY_MAX, NULL) == 0);
    CHECK(http_client_head(&c, NULL) == 0 && c.head.status == 200);
    CHECK(http_client_body(&c, BODY_MAX, &b, NULL) == 0 && b.len == BODY_MAX);
    CHECK(http_client_send(&c, "PUT", "/echo", NULL, "a/b", big, BODY_MAX + 1, NULL) == 0);
    CHECK(http_client_head(&c, NULL) == 0 && c.head.status == 413 && !c.head.keep_alive);
    CHECK(http_client_body(&c, BODY_MAX, &refused, NULL) == 0 &&
          strstr(buf_data(&refused), "\"code\":\"limit\""));
    CHECK(s->requests == 1);
}

TEST(head_method_and_204)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    SERVER(NULL);

    CHECK(exchange(s, REQ("HEAD /hello") "\r\n" REQ("GET /empty") "\r\n" REQ("HEAD /drip") "\r\n",
                   &b));
    CHECK_STR(buf_data(&b),
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n"
              "HTTP/1.1 204 No Content\r\n\r\n"
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n");
}

TEST(http10_stream_ends_with_the_connection)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    SERVER(NULL);

    CHECK(exchange(s, "GET /drip HTTP/1.0\r\nHost: x\r\n\r\n", &b));
    CHECK_STR(buf_data(&b),
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nxxxxx");
}

/* -- hostile requests -- */

static void append_raw(struct buf *b, const json_t *piece)
{
    size_t times =
        json_is_object(piece) ? (size_t)json_integer_value(json_object_get(piece, "times")) : 1;
    const json_t *text = json_is_object(piece) ? json_object_get(piece, "repeat") : piece;

    while (times-- > 0)
        if (buf_append(b, json_string_value(text), json_string_length(text)) < 0)
            abort();
}

/* The answer must be the status, with a JSON error, complete by its length, and then the end. */
static const char *hostile_fault(struct server *s, const json_t *entry)
{
    _cleanup_buf_ struct buf raw = BUF_INIT(REPLY_MAX), b = BUF_INIT(REPLY_MAX);
    _cleanup_close_ int fd = dial(s);
    _cleanup_free_ char *want =
        xasprintf("HTTP/1.1 %d ", (int)json_integer_value(json_object_get(entry, "expect_status")));
    const json_t *text = json_object_get(entry, "raw"), *piece;
    unsigned long long length = 0;
    const char *body, *field;
    size_t i;

    if (json_is_string(text))
        append_raw(&raw, text);
    json_array_foreach (text, i, piece)
        append_raw(&raw, piece);
    send_text(fd, buf_data(&raw), raw.len);
    if (json_is_true(json_object_get(entry, "cut")))
        shutdown(fd, SHUT_WR);
    if (!read_all(fd, &b))
        return "connection not closed";
    if (strncmp(buf_data(&b), want, strlen(want)) != 0)
        return "another status";
    body = strstr(buf_data(&b), "\r\n\r\n");
    field = strstr(buf_data(&b), "\r\nContent-Length: ");
    if (!body || !field || sscanf(field, "\r\nContent-Length: %llu", &length) != 1 ||
        strlen(body + 4) != length)
        return "answer not complete";
    if (!strstr(buf_data(&b), "\r\nContent-Type: application/json\r\n") ||
        strncmp(body + 4, "{\"error\":{\"code\":\"", 18) != 0)
        return "no JSON error";
    return NULL;
}

TEST(hostile_requests_are_refused)
{
    _cleanup_free_ char *path = xasprintf("%.*s/../integration/raw-http.json",
                                          (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__);
    json_t *all = json_load_file(path, JSON_ALLOW_NUL, NULL), *entry;
    int failed = 0;
    size_t i;
    SERVER(NULL);

    CHECK(json_array_size(all) >= 80);
    json_array_foreach (all, i, entry) {
        const char *fault = hostile_fault(s, entry);

        if (fault)
            printf("# %s: %s\n", json_string_value(json_object_get(entry, "name")), fault);
        failed += fault != NULL;
    }
    json_decref(all);
    CHECK(failed == 0);
    CHECK(s->requests == 0);
}

/* -- peers that leave -- */

TEST(peer_close_is_seen_while_a_response_is_pending)
{
    uint64_t start;
    int fd;
    SERVER(NULL);

    fd = dial(s);
    CHECK(send_text(fd, REQ("GET /never") "\r\n", strlen(REQ("GET /never") "\r\n")));
    CHECK(wait_until(&s->requests, 1));
    usleep(10000);
    CHECK(s->gone == 0);
    start = time_mono();
    close(fd);
    CHECK(wait_until(&s->gone, 1));
    CHECK(time_mono() - start < 5 * USEC_PER_SEC);
}

TEST(peer_close_is_seen_behind_unread_pipelined_bytes)
{
    _cleanup_buf_ struct buf text = BUF_INIT(REPLY_MAX);
    int fd;
    SERVER(NULL);

    fd = dial(s);
    CHECK(buf_append_str(&text, REQ("GET /never") "\r\n") == 0);
    for (int i = 0; i < 3000; i++)
        CHECK(buf_append_str(&text, REQ("GET /hello") "\r\n") == 0);
    CHECK(send_text(fd, buf_data(&text), text.len));
    CHECK(wait_until(&s->requests, 1));
    close(fd);
    CHECK(wait_until(&s->gone, 1));
    CHECK(s->requests == 1);
}

TEST(half_close_is_not_gone_but_full_close_after_it_is)
{
    int fd;
    SERVER(NULL);

    fd = dial(s);
    CHECK(send_text(fd, REQ("GET /never") "\r\n", strlen(REQ("GET /never") "\r\n")));
    CHECK(wait_until(&s->requests, 1));
    shutdown(fd, SHUT_WR);
    usleep(30000);
    CHECK(s->gone == 0);
    close(fd);
    CHECK(wait_until(&s->gone, 1));
}

/* Waiting for a half-closed peer must not spin. */
TEST(half_closed_peer_costs_no_cpu)
{
    struct rusage before, after;
    int fd;
    long usec;
    SERVER(NULL);

    fd = dial(s);
    CHECK(send_text(fd, REQ("GET /never") "\r\n", strlen(REQ("GET /never") "\r\n")));
    CHECK(wait_until(&s->requests, 1));
    shutdown(fd, SHUT_WR);
    getrusage(RUSAGE_SELF, &before);
    usleep(300000);
    getrusage(RUSAGE_SELF, &after);
    close(fd);
    usec = (after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec -
            before.ru_stime.tv_sec) *
               1000000 +
           after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec -
           before.ru_stime.tv_usec;
    CHECK(usec < 100000);
}

TEST(peer_gone_without_a_callback_leaves_the_request_usable)
{
    int fd;
    SERVER(NULL);

    fd = dial(s);
    CHECK(send_text(fd, REQ("GET /later-deaf") "\r\n", strlen(REQ("GET /later-deaf") "\r\n")));
    CHECK(wait_until(&s->requests, 1));
    close(fd);
    usleep(60000); /* the handler answers a client that has left, and ASan checks that */
    CHECK(s->gone == 0);
}

TEST(peer_close_ends_a_stream_that_it_does_not_read)
{
    int fd;
    SERVER(NULL);

    fd = dial(s);
    CHECK(send_text(fd, REQ("GET /stream") "\r\n", strlen(REQ("GET /stream") "\r\n")));
    CHECK(wait_until(&s->requests, 1));
    usleep(20000);
    close(fd);
    CHECK(wait_until(&s->gone, 1));
}

TEST(server_free_notifies_pending_requests)
{
    _cleanup_close_ int fd = -1, raw = -1;
    SERVER(NULL);

    fd = dial(s);
    raw = dial(s);
    CHECK(send_text(fd, REQ("GET /never") "\r\n", strlen(REQ("GET /never") "\r\n")));
    CHECK(send_text(raw, REQ("GET /raw/flood") "\r\n", strlen(REQ("GET /raw/flood") "\r\n")));
    CHECK(wait_until(&s->requests, 2));
    server_stop(s);
    CHECK(s->gone == 2);
}

/* -- streams -- */

static bool is_flood(const char *data, size_t len)
{
    if (len != FLOOD)
        return false;
    for (size_t i = 0; i < len; i++)
        if (data[i] != (char)((int)(i % PIECE) * 7))
            return false;
    return true;
}

TEST(stream_with_back_pressure_is_exact)
{
    _cleanup_client_ struct http_client c;
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    SERVER(NULL);

    http_client_init(&c, dial(s));
    CHECK(http_client_send(&c, "GET", "/stream", NULL, NULL, NULL, 0, NULL) == 0);
    CHECK(http_client_head(&c, NULL) == 0);
    while (s->pending_max == 0)
        usleep(1000); /* the server meets a full socket */
    CHECK(http_client_body(&c, FLOOD, &b, NULL) == 0);
    CHECK(is_flood(buf_data(&b), b.len));
    CHECK(s->pending_max > 0 && s->pending_max < (256 << 10) + 2 * PIECE);
    CHECK(http_client_send(&c, "GET", "/hello", NULL, NULL, NULL, 0, NULL) == 0);
    CHECK(http_client_head(&c, NULL) == 0 && c.head.status == 200);
}

/* -- upgraded connections -- */

static int upgrade(struct server *s, const char *path, struct buf *early)
{
    struct http_client c;
    int fd = -1;

    http_client_init(&c, dial(s));
    if (http_client_send(&c, "POST", path, "Connection: Upgrade\r\nUpgrade: echo\r\n", NULL, NULL,
                         0, NULL) == 0 &&
        http_client_head(&c, NULL) == 0 && c.head.status == 101)
        fd = http_client_upgraded(&c, early);
    http_client_done(&c);
    return fd;
}

TEST(raw_echo_and_half_close)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    _cleanup_close_ int fd = -1;
    char got[6] = "";
    SERVER(NULL);

    fd = upgrade(s, "/raw/echo", &b);
    CHECK(fd >= 0);
    for (int i = 0; i < 100; i++) {
        CHECK(send_text(fd, "hello", 5));
        CHECK(recv(fd, got, 5, MSG_WAITALL) == 5);
        CHECK_STR(got, "hello");
    }
    shutdown(fd, SHUT_WR);
    CHECK(read_all(fd, &b));
    CHECK_STR(buf_data(&b), "bye");
    CHECK(s->raw_eof == 1 && s->gone == 0);
}

TEST(raw_bytes_sent_with_the_head_are_not_lost)
{
    static const char text[] = REQ("POST /raw/echo") "Connection: upgrade\r\nUpgrade: "
                                                     "echo\r\nContent-Length: 2\r\n\r\n{}early";
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    SERVER(NULL);

    CHECK(exchange(s, text, &b));
    CHECK_STR(
        buf_data(&b),
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearlybye");
}

TEST(raw_eof_without_a_handler_is_gone)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    _cleanup_close_ int fd = -1;
    SERVER(NULL);

    fd = upgrade(s, "/raw/no-eof", &b);
    shutdown(fd, SHUT_WR);
    CHECK(wait_until(&s->gone, 1));
    CHECK(read_all(fd, &b));
}

TEST(raw_full_close_is_gone)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    int fd;
    SERVER(NULL);

    fd = upgrade(s, "/raw/echo", &b);
    CHECK(send_text(fd, "bytes", 5));
    close(fd);
    CHECK(wait_until(&s->gone, 1));
    CHECK(s->raw_bytes == 5 && s->raw_eof == 0);
}

/* The handler pauses after each piece and resumes every 20 ms: all must arrive, and none before its
 * time. */
TEST(raw_pause_holds_the_sender_back)
{
    enum { SENT = 4 << 20 };
    _cleanup_free_ char *data = xcalloc(1, SENT);
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    _cleanup_close_ int fd = -1;
    uint64_t start = time_mono();
    SERVER(NULL);

    fd = upgrade(s, "/raw/paused", &b);
    CHECK(send_text(fd, data, SENT));
    CHECK(time_mono() - start > 400 * USEC_PER_MSEC);
    shutdown(fd, SHUT_WR);
    CHECK(read_all(fd, &b));
    CHECK(s->raw_bytes == SENT && s->raw_eof == 1);
}

TEST(raw_flood_is_exact_and_bounded)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    _cleanup_close_ int fd = -1;
    SERVER(NULL);

    fd = upgrade(s, "/raw/flood", &b);
    CHECK(fd >= 0);
    while (s->pending_max == 0)
        usleep(1000);
    CHECK(read_all(fd, &b));
    CHECK(is_flood(buf_data(&b), b.len));
    CHECK(s->pending_max > 0 && s->pending_max < (256 << 10) + 2 * PIECE);
}

/* Our end comes first; what the peer says after it still arrives, and its own end too, however it
 * closes. */
TEST(raw_end_leaves_the_other_way_open)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    SERVER(NULL);

    for (int full = 0; full < 2; full++) {
        int fd = upgrade(s, "/raw/ending", &b);

        s->raw_bytes = 0;
        CHECK(fd >= 0);
        CHECK(send_text(fd, "go", 2));
        b.len = 0;
        CHECK(read_all(fd, &b) && b.len == 4 * PIECE);
        CHECK(send_text(fd, "more", 4));
        if (!full)
            shutdown(fd, SHUT_WR);
        else
            close(fd);
        CHECK(wait_until(&s->raw_eof, full + 1));
        CHECK(s->raw_bytes == 6 && s->gone == 0);
        if (!full)
            close(fd);
    }
}

/* -- streamed bodies -- */

enum { STREAMED = 8 << 20 };

/* Pieces whose sizes share no factor with any buffer's. */
static bool put_streamed(struct http_client *c, const char *path, size_t size)
{
    _cleanup_free_ char *data = xmalloc(100003);

    memset(data, 1, 100003);
    if (http_client_begin(c, "PUT", path, "a/b", NULL) < 0)
        return false;
    while (size) {
        size_t n = MIN(size, (size_t)100003);

        if (http_client_put(c, data, n, NULL) != 1)
            return false;
        size -= n;
    }
    return http_client_put(c, NULL, 0, NULL) == 1;
}

TEST(streamed_body_chunked_and_kept_alive)
{
    _cleanup_client_ struct http_client c;
    SERVER(NULL);

    http_client_init(&c, dial(s));
    for (int i = 0; i < 3; i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);

        CHECK(put_streamed(&c, "/body/count", STREAMED));
        CHECK(http_client_head(&c, NULL) == 0 && c.head.status == 200 && c.head.keep_alive);
        CHECK(http_client_body(&c, 100, &b, NULL) == 0);
        CHECK_STR(buf_data(&b), "8388608 8388608");
    }
    CHECK(s->gone == 0);
}

TEST(streamed_body_with_a_length)
{
    _cleanup_free_ char *data = xmalloc(STREAMED);
    _cleanup_client_ struct http_client c;
    SERVER(NULL);

    memset(data, 2, STREAMED);
    http_client_init(&c, dial(s));
    for (size_t size = STREAMED;; size /= 1000) {
        _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
        char want[64];

        snprintf(want, sizeof(want), "%zu %zu", size, 2 * size);
        CHECK(http_client_send(&c, "PUT", "/body/count", NULL, "a/b", data, size, NULL) == 0);
        CHECK(http_client_head(&c, NULL) == 0 && http_client_body(&c, 100, &b, NULL) == 0);
        CHECK_STR(buf_data(&b), want);
        if (!size)
            break;
    }
}

TEST(streamed_body_is_held_back)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    _cleanup_client_ struct http_client c;
    uint64_t start = time_mono();
    SERVER(NULL);

    http_client_init(&c, dial(s));
    CHECK(put_streamed(&c, "/body/paused", 2 << 20));
    CHECK(time_mono() - start > 200 * USEC_PER_MSEC);
    CHECK(http_client_head(&c, NULL) == 0 && http_client_body(&c, 100, &b, NULL) == 0);
    CHECK_STR(buf_data(&b), "2097152 2097152");
}

/* An answer before the body's end reaches the sender, and ends the connection. */
TEST(streamed_body_may_be_refused)
{
    static const char *const paths[] = {"/body/refuse", "/body/unread"};
    SERVER(NULL);

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
        _cleanup_client_ struct http_client c;

        http_client_init(&c, dial(s));
        CHECK(!put_streamed(&c, paths[i], 64 << 20));
        CHECK(http_client_head(&c, NULL) == 0 && !c.head.keep_alive);
        CHECK(c.head.status == (i ? 403 : 400));
        CHECK(http_client_body(&c, 100, &b, NULL) == 0);
        CHECK_STR(buf_data(&b), i ? "no" : "enough");
    }
    CHECK(s->gone == 0);
}

TEST(streamed_body_that_goes_wrong)
{
    static const struct {
        const char *text, *answer;
    } cases[] = {
        {REQ("PUT /body/count") "Content-Length: 5\r\n\r\nabc", "HTTP/1.1 400 "},
        {REQ("PUT /body/count") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "HTTP/1.1 400 "},
        {REQ("PUT /body/count") "Transfer-Encoding: chunked\r\n\r\n3\r\nabcx\r\n", "HTTP/1.1 400 "},
        {REQ("PUT /body/count") "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 400 "},
    };
    SERVER(NULL);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);

        CHECK(exchange(s, cases[i].text, &b));
        CHECK(strncmp(buf_data(&b), cases[i].answer, strlen(cases[i].answer)) == 0);
        CHECK(s->gone == (int)i + 1);
    }
}

TEST(streamed_body_stalls_and_peers_go)
{
    struct http_server_config config = {.stall_timeout = 30000};
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    static const char text[] = REQ("PUT /body/count") "Content-Length: 5\r\n\r\nabc";
    _cleanup_close_ int fd = -1;
    SERVER(&config);

    fd = dial(s);
    CHECK(send_text(fd, text, strlen(text)));
    CHECK(read_all(fd, &b));
    CHECK(strncmp(buf_data(&b), "HTTP/1.1 408 ", 13) == 0 && s->gone == 1);
    fd_close(fd);
    fd = dial(s);
    CHECK(send_text(fd, text, strlen(text)));
    CHECK(wait_until(&s->requests, 2));
    fd = fd_close(fd);
    CHECK(wait_until(&s->gone, 2));
}

TEST(streamed_body_and_the_next_request)
{
    static const char text[] = "PUT /body/count HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
                               "PUT /body/count HTTP/1.1\r\nHost: x\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
                               "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    SERVER(NULL);

    CHECK(exchange(s, text, &b));
    CHECK(strstr(buf_data(&b), "\r\n\r\n3 294") && strstr(buf_data(&b), "\r\n\r\n2 195"));
    CHECK(strstr(buf_data(&b), "\r\n\r\nhello"));
}

TEST(streamed_body_continues_when_it_is_read)
{
    static const char text[] = REQ("PUT /body/count") "Content-Length: 3\r\nExpect: "
                                                      "100-continue\r\n\r\n";
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    _cleanup_close_ int fd = -1;
    char got[26] = "";
    SERVER(NULL);

    fd = dial(s);
    CHECK(send_text(fd, text, strlen(text)));
    CHECK(recv(fd, got, 25, MSG_WAITALL) == 25);
    CHECK_STR(got, "HTTP/1.1 100 Continue\r\n\r\n");
    CHECK(send_text(fd, "abc", 3));
    shutdown(fd, SHUT_WR);
    CHECK(read_all(fd, &b));
    CHECK(strstr(buf_data(&b), "\r\n\r\n3 294"));
}

TEST(an_aborted_stream_is_seen)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    _cleanup_client_ struct http_client c;
    SERVER(NULL);

    http_client_init(&c, dial(s));
    CHECK(http_client_send(&c, "GET", "/abort", NULL, NULL, NULL, 0, NULL) == 0);
    CHECK(http_client_head(&c, NULL) == 0 && c.head.status == 200);
    CHECK(http_client_body(&c, 100, &b, NULL) < 0);
}

/* -- time, limits, credentials -- */

TEST(timeouts)
{
    static const struct {
        const char *text, *answer;
    } cases[] = {
        {"", ""},
        {"GET /hello HT", "HTTP/1.1 408 "},
        {REQ("POST /echo") "Content-Length: 5\r\n\r\n{}", "HTTP/1.1 408 "},
        {REQ("GET /hello") "\r\n", "HTTP/1.1 200 "}, /* then idle */
    };
    struct http_server_config config = {
        .head_timeout = 300000, .idle_timeout = 300000, .stall_timeout = 300000};
    SERVER(&config);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
        _cleanup_close_ int fd = dial(s);
        uint64_t start = time_mono();

        CHECK(send_text(fd, cases[i].text, strlen(cases[i].text)));
        CHECK(read_all(fd, &b));
        CHECK(time_mono() - start >= 300000);
        CHECK(strncmp(buf_data(&b), cases[i].answer, strlen(cases[i].answer)) == 0);
        CHECK(b.len > 0 || !*cases[i].answer);
    }
}

/* One byte at a time does not renew the time for a head. */
TEST(slow_head_is_cut)
{
    struct http_server_config config = {.head_timeout = 60000, .idle_timeout = 10 * USEC_PER_SEC};
    _cleanup_close_ int fd = -1;
    int sent = 0;
    SERVER(&config);

    fd = dial(s);
    while (sent < 300 && send(fd, "G", 1, MSG_NOSIGNAL) == 1) {
        struct pollfd p = {.fd = fd, .events = POLLIN};

        sent++;
        if (poll(&p, 1, 10) > 0)
            break;
    }
    CHECK(sent < 300);
}

TEST(write_stall_is_cut)
{
    struct http_server_config config = {.stall_timeout = 50000};
    _cleanup_close_ int fd = -1;
    SERVER(&config);

    fd = dial(s);
    CHECK(send_text(fd, REQ("GET /stream") "\r\n", strlen(REQ("GET /stream") "\r\n")));
    CHECK(wait_until(&s->gone, 1));
}

/* A stream of events says something now and then, and its peer's end is seen. */
TEST(silent_events_have_a_heartbeat)
{
    struct http_server_config config = {.heartbeat = 20000};
    _cleanup_buf_ struct buf b = BUF_INIT(4096);
    int fd;
    SERVER(&config);

    fd = dial(s);
    CHECK(send_text(fd, REQ("GET /events") "\r\n", strlen(REQ("GET /events") "\r\n")));
    while (b.len < 4000 && !(b.len && strstr(buf_data(&b), "3\r\n:\n\n\r\n3\r\n:\n\n\r\n"))) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char piece[256];
        ssize_t n = poll(&p, 1, 5000) > 0 ? recv(fd, piece, sizeof(piece), 0) : 0;

        CHECK(n > 0);
        if (n <= 0)
            break;
        CHECK(buf_append(&b, piece, (size_t)n) == 0);
    }
    CHECK(strstr(buf_data(&b), "data: 1"));
    close(fd);
    CHECK(wait_until(&s->gone, 1));
}

TEST(connection_limit)
{
    struct http_server_config config = {.connections_max = 3};
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    int fds[3];
    SERVER(&config);

    for (int i = 0; i < 3; i++) {
        fds[i] = dial(s);
        CHECK(send_text(fds[i], REQ("GET /never") "\r\n", strlen(REQ("GET /never") "\r\n")));
    }
    CHECK(wait_until(&s->requests, 3));
    CHECK(exchange(s, REQ("GET /hello") "\r\n", &b));
    CHECK(strncmp(buf_data(&b), "HTTP/1.1 429 ", 13) == 0 &&
          strstr(buf_data(&b), "\"code\":\"limit\""));
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    CHECK(wait_until(&s->gone, 3));
    buf_clear(&b);
    CHECK(exchange(s, REQ("GET /hello") "\r\n", &b));
    CHECK(strncmp(buf_data(&b), "HTTP/1.1 200 ", 13) == 0);
}

static int open_files(void)
{
    _cleanup_closedir_ DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (d && readdir(d))
        n++;
    return n;
}

TEST(out_of_descriptors)
{
    struct rlimit old, low;
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);
    int fd, fill[64], n = 0, before;
    SERVER(NULL);

    before = open_files();
    fd = dial(s);
    CHECK(fd >= 0 && getrlimit(RLIMIT_NOFILE, &old) == 0);
    CHECK(exchange(s, REQ("GET /hello") "\r\n", &b)); /* fd is accepted by now */
    buf_clear(&b);
    close(fd);
    for (int i = 0; i < 60000 && open_files() > before; i++)
        usleep(1000); /* the server closes its ends, too */
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    low = (struct rlimit){.rlim_cur = (rlim_t)fd + 1, .rlim_max = old.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    while (n < 64 && (fill[n] = dup(fd)) >= 0)
        n++;
    CHECK(connect(fd, (struct sockaddr *)&s->addr, s->addr_len) == 0);
    CHECK(read_all(fd, &b));
    setrlimit(RLIMIT_NOFILE, &old);
    close(fd);
    while (n > 0)
        close(fill[--n]);
    CHECK(strncmp(buf_data(&b), "HTTP/1.1 429 ", 13) == 0 && strstr(buf_data(&b), "descriptors"));
    buf_clear(&b);
    CHECK(exchange(s, REQ("GET /hello") "\r\n", &b) && strstr(buf_data(&b), "200 OK"));
}

TEST(another_user_is_refused)
{
    int status = 0;
    pid_t pid;
    SERVER(NULL);

    if (geteuid() != 0)
        SKIP("needs root to become another user");
    pid = fork();
    if (pid == 0) {
        struct buf b = BUF_INIT(REPLY_MAX);

        if (setuid(12345) < 0)
            _exit(1);
        if (!exchange(s, REQ("GET /hello") "\r\n", &b) ||
            strncmp(buf_data(&b), "HTTP/1.1 403 ", 13) != 0)
            _exit(2);
        _exit(strstr(buf_data(&b), "\"code\":\"denied\"") ? 0 : 3);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(s->requests == 0);
}

TEST(many_connections_at_once)
{
    enum { N = 50 };
    int fds[N];
    SERVER(NULL);

    for (int i = 0; i < N; i++)
        fds[i] = dial(s);
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < N; i++)
            CHECK(send_text(fds[i], REQ("GET /hello") "\r\n", strlen(REQ("GET /hello") "\r\n")));
    for (int i = 0; i < N; i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);

        shutdown(fds[i], SHUT_WR);
        CHECK(read_all(fds[i], &b));
        CHECK(b.len == 20 * strlen("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: "
                                   "5\r\n\r\nhello"));
        close(fds[i]);
    }
    CHECK(s->requests == N * 20);
}

/* -- room for large bodies -- */

enum { LARGE = 3 << 20, ROOM = 4 << 20 };
static const struct http_server_config roomy = {.body_max = LARGE, .bodies_max = ROOM};

/* Sends the head of a request with a body, and the first bytes of the body. */
static int begin_large(struct server *s, const char *path, size_t length, size_t now)
{
    _cleanup_free_ char *body = xcalloc(1, now + 1);
    char head[200];
    int fd = dial(s), n = snprintf(head, sizeof(head),
                                   "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                   "Content-Length: %zu\r\n\r\n",
                                   path, length);

    memset(body, 'b', now);
    if (!send_text(fd, head, (size_t)n) || !send_text(fd, body, now))
        abort();
    return fd;
}

static bool send_rest(int fd, size_t bytes)
{
    _cleanup_free_ char *body = xmalloc(bytes);

    memset(body, 'b', bytes);
    return send_text(fd, body, bytes);
}

/* The status of the answer; 0: none has come after a moment. */
static int status_now(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char line[16] = "";

    if (poll(&p, 1, 100) <= 0 || recv(fd, line, sizeof(line) - 1, MSG_PEEK) <= 0)
        return 0;
    return (int)strtol(line + 9, NULL, 10);
}

static bool echoed(int fd, size_t bytes)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REPLY_MAX);

    return read_all(fd, &b) && b.len > bytes && strncmp(buf_data(&b), "HTTP/1.1 200", 12) == 0 &&
           strspn(buf_data(&b) + b.len - bytes, "b") == bytes;
}

TEST(large_bodies_take_turns)
{
    SERVER(&roomy);
    _cleanup_close_ int a = begin_large(s, "/echo", LARGE, 1000);
    _cleanup_close_ int b = -1, small = -1;

    usleep(50000);
    b = begin_large(s, "/echo", LARGE, 1000);
    CHECK(status_now(b) == 0 && s->requests == 0);
    small = begin_large(s, "/echo", 1 << 20, 1 << 20); /* needs no room */
    CHECK(echoed(small, 1 << 20));
    CHECK(send_rest(a, LARGE - 1000) && echoed(a, LARGE));
    CHECK(send_rest(b, LARGE - 1000) && echoed(b, LARGE));
}

TEST(a_large_body_that_finds_no_room_is_refused)
{
    struct http_server_config config = roomy;

    config.stall_timeout = 200 * USEC_PER_MSEC;
    {
        SERVER(&config);
        _cleanup_close_ int holder = begin_large(s, "/never", LARGE, LARGE);
        _cleanup_close_ int b = -1, c = -1;
        struct pollfd p = {.events = POLLIN};

        CHECK(wait_until(&s->requests, 1));
        b = begin_large(s, "/echo", LARGE, 1000);
        p.fd = b;
        CHECK(poll(&p, 1, 5000) == 1 && status_now(b) == 429);
        holder = fd_close(holder);
        CHECK(wait_until(&s->gone, 1));
        c = begin_large(s, "/echo", LARGE, LARGE);
        CHECK(echoed(c, LARGE));
    }
}

TEST(a_waiting_client_that_leaves_makes_way)
{
    SERVER(&roomy);
    _cleanup_close_ int holder = begin_large(s, "/never", 2 << 20, 2 << 20);
    _cleanup_close_ int first = -1, second = -1, third = -1;

    CHECK(wait_until(&s->requests, 1));
    first = begin_large(s, "/echo", LARGE, 1000);
    usleep(50000);
    second = begin_large(s, "/echo", 2 << 20, 1000); /* there is room, but it is not its turn */
    usleep(50000);
    third = begin_large(s, "/echo", LARGE, 1000);
    CHECK(status_now(second) == 0 && s->requests == 1);
    first = fd_close(first);
    CHECK(send_rest(second, (2 << 20) - 1000) && echoed(second, 2 << 20));
    CHECK(status_now(third) == 0);
    holder = fd_close(holder);
    CHECK(send_rest(third, LARGE - 1000) && echoed(third, LARGE));
}

TEST(a_chunked_body_needs_room_for_the_largest)
{
    SERVER(&roomy);
    _cleanup_close_ int holder = begin_large(s, "/never", 2 << 20, 2 << 20), fd = -1;
    const char request[] = REQ("POST /echo") "Connection: close\r\n"
                                             "Transfer-Encoding: chunked\r\n\r\n"
                                             "3\r\nbbb\r\n0\r\n\r\n";

    CHECK(wait_until(&s->requests, 1));
    fd = dial(s);
    CHECK(send_text(fd, request, sizeof(request) - 1));
    CHECK(status_now(fd) == 0 && s->requests == 1);
    holder = fd_close(holder);
    CHECK(echoed(fd, 3));
}

TEST(continue_is_sent_when_there_is_room)
{
    SERVER(&roomy);
    _cleanup_close_ int holder = begin_large(s, "/never", 2 << 20, 2 << 20), fd = -1;
    const char head[] = REQ("POST /echo") "Connection: close\r\nExpect: 100-continue\r\n"
                                          "Content-Length: 3145728\r\n\r\n";
    char line[25];

    CHECK(wait_until(&s->requests, 1));
    fd = dial(s);
    CHECK(send_text(fd, head, sizeof(head) - 1));
    CHECK(status_now(fd) == 0);
    holder = fd_close(holder);
    CHECK(recv(fd, line, sizeof(line), MSG_WAITALL) == 25 && strncmp(line + 9, "100", 3) == 0);
    CHECK(send_rest(fd, LARGE) && echoed(fd, LARGE));
}
