#include "client/client.h"

#include <errno.h>
#include <poll.h>

#include "client/start.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

enum { CLIENT_SLOW_MS = 500, CLIENT_PIECE = 256 << 10 };
#define CLIENT_BODY_MAX MIB(64)

static int client_load_token(struct client *c, struct err *err)
{
    const char *given = getenv("RIPCORD_TOKEN");
    int r;

    if (given && *given) {
        if (strlen(given) != TOKEN_LEN) {
            err_set(err, ERR_INVALID, "RIPCORD_TOKEN is not a valid token");
            return err_hint(err,
                            "Set it to the output of 'ripcord token' on the daemon's machine.");
        }
        memcpy(c->token.text, given, TOKEN_LEN + 1);
        return 0;
    }
    if (!address_is_loopback(&c->address)) {
        err_set(err, ERR_UNAUTHORIZED, "no token for '%s'", c->host);
        return err_hint(err, "Set RIPCORD_TOKEN to the output of 'ripcord token' on that machine.");
    }
    r = token_load(c->paths.state, &c->token, err);
    return r < 0 ? err_wrap(err, "no token for '%s'", c->host) : 0;
}

static int client_init_remote(struct client *c, const char *host, struct err *err)
{
    int r = address_parse(host, &c->address, err);

    if (r < 0)
        return r;
    c->remote = true;
    address_format(&c->address, c->host);
    return client_load_token(c, err);
}

int client_init(struct client *c, const char *root, const char *host, struct err *err)
{
    const char *env = getenv("RIPCORD_HOST");
    int r;

    *c = (struct client){.http.fd = -1};
    r = path_roots_init(&c->paths, root, err);
    if (r < 0)
        return r;
    if (!host && !root && env && *env)
        host = env;
    r = host ? client_init_remote(c, host, err) : 0;
    if (r < 0)
        client_done(c);
    return r;
}

static char *client_copy_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

void client_init_like(struct client *c, const struct client *other)
{
    *c = (struct client){
        .http.fd = -1,
        .no_start = other->no_start,
        .remote = other->remote,
        .address = other->address,
        .token = other->token,
        .on_slow = other->on_slow,
        .userdata = other->userdata,
        .paths =
            {
                .root = client_copy_or_null(other->paths.root),
                .state = client_copy_or_null(other->paths.state),
                .run = client_copy_or_null(other->paths.run),
                .config = client_copy_or_null(other->paths.config),
            },
    };
    memcpy(c->host, other->host, sizeof(c->host));
}

void client_disconnect(struct client *c)
{
    if (c->connected)
        http_client_done(&c->http);
    c->connected = false;
}

void client_done(struct client *c)
{
    client_disconnect(c);
    path_roots_done(&c->paths);
    token_done(&c->token);
}

/* Does not start a daemon: a daemon with a TCP address was started with that address, maybe on
 * another machine. */
static int client_connect_remote(struct client *c, int *ret_fd, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;

    if (address_connect(&c->address, ret_fd, &why) >= 0)
        return 0;
    err_set(err, ERR_ENGINE, "%s", why.msg);
    return err_hint(err, "Check that 'ripcord daemon --listen %s' runs on that machine.", c->host);
}

static int client_connect_local(struct client *c, int *ret_fd, struct err *err)
{
    int r;

    if (!c->no_start)
        return start_connect(&c->paths, ret_fd, err);
    r = start_connect_running(&c->paths, ret_fd, err);
    return r < 0 ? err_hint(err, "Leave out --no-start to start one.") : 0;
}

int client_connect(struct client *c, struct err *err)
{
    int fd, r;

    if (c->connected)
        return 0;
    r = c->remote ? client_connect_remote(c, &fd, err) : client_connect_local(c, &fd, err);
    if (r < 0)
        return r;
    http_client_init(&c->http, fd);
    if (c->remote) {
        c->http.host = c->host;
        c->http.bearer = c->token.text;
    }
    c->connected = true;
    return 0;
}

int client_send(struct client *c, const char *method, const char *target, const char *extra_headers,
                const json_t *body, struct err *err)
{
    _cleanup_free_ char *text = body ? json_to_text(body, false) : NULL;
    int r;

    r = client_connect(c, err);
    if (r < 0)
        return r;
    r = http_client_send(&c->http, method, target, extra_headers, text ? "application/json" : NULL,
                         text, text ? strlen(text) : 0, err);
    if (r < 0)
        client_disconnect(c);
    return r;
}

static int client_read_answer(struct client *c, json_t **ret, struct err *err)
{
    _cleanup_buf_ struct buf body = BUF_INIT(CLIENT_BODY_MAX);
    _cleanup_json_ json_t *doc = NULL;
    int status = c->http.head.status, r;

    r = http_client_body(&c->http, CLIENT_BODY_MAX, &body, err);
    if (r < 0)
        return err_wrap(err, "read the daemon's response");
    r = json_parse("the daemon's response", buf_data(&body), body.len, &doc, err);
    if (r < 0) {
        err_done(err);
        return err_set(err, ERR_ENGINE, "the daemon sent HTTP %d with a body that is not JSON",
                       status);
    }
    if (status >= 400)
        return json_to_err(doc, err);
    *ret = TAKE_PTR(doc);
    return 0;
}

/* A daemon that ends after it has read a request may have carried it out. */
static int client_await_head(struct client *c, struct err *err)
{
    struct pollfd p = {.fd = c->http.fd, .events = POLLIN};
    int r;

    if (c->on_slow && poll(&p, 1, CLIENT_SLOW_MS) == 0)
        c->on_slow(c->userdata);
    r = http_client_head(&c->http, err);
    if (r >= 0)
        return 0;
    client_disconnect(c);
    err_wrap(err, "wait for the daemon's response");
    if (c->http.unread || !err || err->errnum != ECONNRESET)
        return r;
    return err_hint(err,
                    "The daemon ended, and the request may or may not have been carried out. Check "
                    "with 'ripcord ls', and see the log '%s/ripcordd.log'.",
                    c->paths.state);
}

bool client_request_unread(const struct client *c)
{
    return !c->remote && c->http.unread;
}

/*
 * A daemon that is being killed may still accept the connection and then drop it. The request is
 * then sent once more to the next daemon, if it may be repeated or was not read.
 */
static int client_request(struct client *c, const char *method, const char *target,
                          const char *extra_headers, const json_t *body, struct err *err)
{
    for (bool again = true, harmless;; again = false, err_done(err)) {
        int r = client_connect(c, err);

        if (r < 0)
            return r;
        r = client_send(c, method, target, extra_headers, body, err);
        r = r < 0 ? r : client_await_head(c, err);
        if (r == 0)
            return 0;
        harmless = STREQ(method, "GET") || STREQ(method, "PUT") || client_request_unread(c);
        if (!again || !harmless)
            return r;
    }
}

static int client_take_answer(struct client *c, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r = client_read_answer(c, &doc, err);

    if (r < 0 || !c->http.head.keep_alive)
        client_disconnect(c);
    if (r < 0)
        return r;
    if (ret)
        *ret = TAKE_PTR(doc);
    return 0;
}

int client_receive(struct client *c, json_t **ret, struct err *err)
{
    int r = client_await_head(c, err);

    return r < 0 ? r : client_take_answer(c, ret, err);
}

int client_call(struct client *c, const char *method, const char *target, const json_t *body,
                json_t **ret, struct err *err)
{
    int r = client_request(c, method, target, NULL, body, err);

    return r < 0 ? r : client_take_answer(c, ret, err);
}

static int client_check_status(struct client *c, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r = c->http.head.status >= 400 ? client_read_answer(c, &doc, err) : 0;

    if (r < 0)
        client_disconnect(c);
    return r;
}

int client_ask(struct client *c, const char *method, const char *target, const json_t *body,
               struct err *err)
{
    int r = client_request(c, method, target, NULL, body, err);

    return r < 0 ? r : client_check_status(c, err);
}

int client_head(struct client *c, struct err *err)
{
    int r = client_await_head(c, err);

    return r < 0 ? r : client_check_status(c, err);
}

ssize_t client_read(struct client *c, void *data, size_t len, struct err *err)
{
    ssize_t n = http_client_read(&c->http, data, len, err);

    if (n < 0 || (n == 0 && !c->http.head.keep_alive))
        client_disconnect(c);
    return n;
}

ssize_t client_read_for(struct client *c, void *data, size_t len, uint64_t usec, struct err *err)
{
    ssize_t n;

    c->http.by = deadline_in(usec);
    n = http_client_read(&c->http, data, len, err);
    c->http.by = (struct deadline){DEADLINE_NEVER};
    if ((n < 0 && n != -ERR_TIMEOUT) || (n == 0 && !c->http.head.keep_alive))
        client_disconnect(c);
    return n;
}

int client_begin(struct client *c, const char *method, const char *target, const char *content_type,
                 struct err *err)
{
    int r = client_connect(c, err);

    if (r < 0)
        return r;
    r = http_client_begin(&c->http, method, target, content_type, err);
    if (r < 0)
        client_disconnect(c);
    return r;
}

int client_put(struct client *c, const void *data, size_t len, struct err *err)
{
    int r = http_client_put(&c->http, data, len, err);

    if (r < 0)
        client_disconnect(c);
    return r;
}

char *client_escape(const char *s)
{
    static const char digits[] = "0123456789ABCDEF";
    char *ret = xmalloc(3 * strlen(s) + 1), *p = ret;

    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            strchr("/-._~", c)) {
            *p++ = (char)c;
            continue;
        }
        *p++ = '%';
        *p++ = digits[c >> 4];
        *p++ = digits[c & 15];
    }
    *p = '\0';
    return ret;
}

static int client_read_pieces(struct client *c, client_data_fn fn, void *userdata, struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(CLIENT_PIECE);

    for (;;) {
        ssize_t n = http_client_read(&c->http, piece, CLIENT_PIECE, err);
        int r;

        if (n <= 0)
            return (int)n;
        r = fn(userdata, piece, (size_t)n, err);
        if (r < 0)
            return r;
    }
}

int client_download(struct client *c, const char *target, client_data_fn fn, void *userdata,
                    struct err *err)
{
    int r = client_ask(c, "GET", target, NULL, err);

    if (r < 0)
        return r;
    r = client_read_pieces(c, fn, userdata, err);
    if (r < 0 || !c->http.head.keep_alive)
        client_disconnect(c);
    return r;
}

int client_upgrade(struct client *c, const char *method, const char *target, const char *protocol,
                   const json_t *body, int *ret_fd, struct buf *early, struct err *err)
{
    _cleanup_free_ char *headers = xasprintf("Connection: Upgrade\r\nUpgrade: %s\r\n", protocol);
    _cleanup_json_ json_t *doc = NULL;
    int r = client_request(c, method, target, headers, body, err), status, fd;

    if (r < 0)
        return r;
    status = c->http.head.status;
    if (status != 101) {
        r = client_read_answer(c, &doc, err);
        client_disconnect(c);
        return r < 0 ? r
                     : err_set(err, ERR_ENGINE,
                               "the daemon sent HTTP %d instead of opening a stream", status);
    }
    fd = http_client_upgraded(&c->http, early);
    client_disconnect(c);
    if (fd < 0)
        return err_set(err, ERR_ENGINE, "the daemon sent too much data with its response");
    *ret_fd = fd;
    return 0;
}
