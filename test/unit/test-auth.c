/* Authentication over TCP: addresses, the token and its file, hosts and origins. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/api/auth.h"
#include "lib/base/address.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "tap.h"

static char folder[] = "/tmp/test-auth-XXXXXX";

static const char *fresh_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/test-auth-XXXXXX");
    return mkdtemp(folder);
}

static void remove_folder(void)
{
    _cleanup_free_ char *file = xasprintf("%s/token", folder);

    unlink(file);
    rmdir(folder);
}

static void put_token(const char *text, mode_t mode)
{
    _cleanup_free_ char *file = xasprintf("%s/token", folder);

    unlink(file);
    if (file_replace(AT_FDCWD, file, text, strlen(text), 0600, false, NULL) < 0 ||
        chmod(file, mode) < 0)
        abort();
}

/* The code of an error is in the error: without one, all are alike. */
static int parse(const char *text, struct address *ret)
{
    _cleanup_err_ struct err err = ERR_INIT;

    return address_parse(text, ret, &err);
}

static int load(const char *dir, struct api_token *ret)
{
    _cleanup_err_ struct err err = ERR_INIT;

    return token_load(dir, ret, &err);
}

TEST(addresses)
{
    static const char *const good[][2] = {{"127.0.0.1:7070", "127.0.0.1:7070"},
                                          {"tcp://127.0.0.1:1", "127.0.0.1:1"},
                                          {"localhost:80", "127.0.0.1:80"},
                                          {"[::1]:7070", "[::1]:7070"},
                                          {"0.0.0.0:0", "0.0.0.0:0"}};
    static const char *const bad[] = {"",
                                      ":",
                                      ":80",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      "::1:80",
                                      "[::1]",
                                      "[::1:80",
                                      "[]:80",
                                      "1.2.3:80",
                                      "1.2.3.4:+1",
                                      "1.2.3.4: 1",
                                      "1.2.3.4:65536",
                                      "host:80",
                                      "http://1.2.3.4:80",
                                      "[127.0.0.1]:80",
                                      "[::1]x:80"};
    struct address a;
    char text[ADDRESS_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        CHECK(address_parse(good[i][0], &a, NULL) == 0);
        CHECK_STR(address_format(&a, text), good[i][1]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(parse(bad[i], &a) == -ERR_INVALID);
}

TEST(what_is_this_machine_s_own)
{
    struct address a;

    CHECK(address_parse("127.9.9.9:1", &a, NULL) == 0 && address_is_loopback(&a));
    CHECK(address_parse("[::1]:1", &a, NULL) == 0 && address_is_loopback(&a));
    CHECK(address_parse("0.0.0.0:1", &a, NULL) == 0 && !address_is_loopback(&a));
    CHECK(address_parse("[::]:1", &a, NULL) == 0 && !address_is_loopback(&a));
    CHECK(address_parse("10.0.0.1:1", &a, NULL) == 0 && !address_is_loopback(&a));
    CHECK(address_parse("[::ffff:127.0.0.1]:1", &a, NULL) == 0 && !address_is_loopback(&a));
}

TEST(a_token_is_made_once_and_kept)
{
    const char *dir = fresh_folder();
    struct api_token a = {0}, b = {0};

    CHECK(load(dir, &a) == -ERR_NOT_FOUND);
    CHECK(token_stamp(dir) == 0);
    CHECK(token_ensure(dir, &a, NULL) == 0 && strlen(a.text) == TOKEN_LEN);
    CHECK(token_ensure(dir, &b, NULL) == 0);
    CHECK_STR(a.text, b.text);
    CHECK(token_rotate(dir, &b, NULL) == 0 && strcmp(a.text, b.text) != 0);
    CHECK(load(dir, &a) == 0);
    CHECK_STR(a.text, b.text);
    remove_folder();
}

TEST(only_the_whole_token_matches)
{
    struct api_token t = {0};
    char other[TOKEN_LEN + 2];

    memset(t.text, 'a', TOKEN_LEN);
    memcpy(other, t.text, sizeof(t.text));
    CHECK(token_matches(&t, other));
    for (size_t i = 0; i < TOKEN_LEN; i++) {
        other[i] = 'b';
        CHECK(!token_matches(&t, other));
        other[i] = 'a';
    }
    other[TOKEN_LEN - 1] = '\0';
    CHECK(!token_matches(&t, other) && !token_matches(&t, ""));
}

TEST(files_that_hold_no_token)
{
    static const char hex[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n";
    struct api_token t = {0};

    fresh_folder();
    put_token(hex, 0600);
    CHECK(load(folder, &t) == 0);
    put_token(hex, 0640);
    CHECK(load(folder, &t) == -ERR_DENIED);
    put_token(hex, 0602);
    CHECK(load(folder, &t) == -ERR_DENIED);
    put_token(hex + 1, 0600);
    CHECK(load(folder, &t) == -ERR_INVALID);
    put_token("", 0600);
    CHECK(load(folder, &t) == -ERR_INVALID);
    put_token("g123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", 0600);
    CHECK(load(folder, &t) == -ERR_INVALID);
    remove_folder();
}

/* ---- requests ---- */

static struct auth *auth;
static unsigned told;

static void on_refused(void *arg _unused_, unsigned tries)
{
    told += tries;
}

static void open_auth(const char *address, char *const *names)
{
    const struct auth_config config = {
        .address = address, .names = names, .state_dir = fresh_folder(), .on_refused = on_refused};

    if (auth_new(&config, &auth, NULL) < 0)
        abort();
}

static void close_auth(void)
{
    auth_free(auth);
    remove_folder();
}

static struct http_head head = {.method = "GET", .target = "/"};

/* Pairs of name and value, ended by NULL. */
static int ask(const char *const *fields)
{
    struct http_head h = head;

    for (; *fields; fields += 2)
        h.fields[h.n_fields++] = (struct http_field){fields[0], fields[1]};
    return auth_tcp(auth, &h, NULL);
}
#define ASK(...) ask((const char *const[]){__VA_ARGS__, NULL})

static const char *bearer(void)
{
    static char text[128];
    struct api_token t = {0};

    if (load(folder, &t) < 0)
        abort();
    snprintf(text, sizeof(text), "Bearer %s", t.text);
    return text;
}

TEST(the_token_opens)
{
    open_auth("127.0.0.1:7070", NULL);
    CHECK(ASK("Host", "127.0.0.1:7070", "Authorization", bearer()) == 0);
    CHECK(ASK("Host", "127.0.0.1:7070") == 401);
    CHECK(ASK("Host", "127.0.0.1:7070", "Authorization", bearer() + 7) == 401);
    CHECK(ASK("Authorization", bearer()) == 421);
    close_auth();
}

TEST(names_by_which_it_may_be_asked_for)
{
    char *names[] = {(char *)"box.example", (char *)"other.example:8080", NULL};

    open_auth("127.0.0.1:7070", names);
    CHECK(ASK("Host", "box.example:7070", "Authorization", bearer()) == 0);
    CHECK(ASK("Host", "BOX.example:7070", "Authorization", bearer()) == 0);
    CHECK(ASK("Host", "other.example:8080", "Authorization", bearer()) == 0);
    CHECK(ASK("Host", "box.example", "Authorization", bearer()) == 421);
    CHECK(ASK("Host", "box.example:8080", "Authorization", bearer()) == 421);
    CHECK(ASK("Host", "box.example:7070.evil.test", "Authorization", bearer()) == 421);
    close_auth();
    open_auth("127.0.0.1:80", NULL);
    CHECK(ASK("Host", "localhost", "Authorization", bearer()) == 0);
    CHECK(ASK("Host", "[::1]", "Authorization", bearer()) == 0);
    close_auth();
}

TEST(pages_of_others)
{
    open_auth("127.0.0.1:7070", NULL);
    CHECK(ASK("Host", "localhost:7070", "Origin", "http://localhost:7070", "Authorization",
              bearer()) == 0);
    CHECK(ASK("Host", "localhost:7070", "Origin", "http://127.0.0.1:7070", "Authorization",
              bearer()) == 403);
    CHECK(ASK("Host", "localhost:7070", "Origin", "null", "Authorization", bearer()) == 403);
    CHECK(ASK("Host", "localhost:7070", "Sec-Fetch-Site", "same-site", "Authorization", bearer()) ==
          403);
    CHECK(ASK("Host", "localhost:7070", "Sec-Fetch-Site", "none", "Authorization", bearer()) == 0);
    close_auth();
}

TEST(wrong_tokens_are_counted_and_logged)
{
    int refused = 0, limited = 0;

    told = 0;
    open_auth("127.0.0.1:7070", NULL);
    for (int i = 0; i < 30; i++) {
        int status = ASK("Host", "127.0.0.1:7070", "Authorization", "Bearer x");

        refused += status == 401;
        limited += status == 429;
    }
    CHECK(refused >= 10 && limited > 0 && refused + limited == 30);
    CHECK(ASK("Host", "127.0.0.1:7070", "Authorization", bearer()) == 0);
    for (int i = 0; i < 6000 && told < 30; i++) {
        usleep(10000);
        auth_tick(auth);
    }
    CHECK(told == 30);
    close_auth();
}

TEST(another_token_at_once)
{
    _cleanup_free_ char *file = NULL, *old = NULL;
    struct api_token t = {0};

    open_auth("127.0.0.1:7070", NULL);
    file = xasprintf("%s/token", folder);
    old = xstrdup(bearer());
    CHECK(ASK("Host", "127.0.0.1:7070", "Authorization", old) == 0);
    CHECK(!auth_tick(auth));
    CHECK(token_rotate(folder, &t, NULL) == 0);
    CHECK(ASK("Host", "127.0.0.1:7070", "Authorization", old) == 401);
    CHECK(ASK("Host", "127.0.0.1:7070", "Authorization", bearer()) == 0);
    CHECK(auth_tick(auth) && !auth_tick(auth));
    CHECK(unlink(file) == 0);
    CHECK(ASK("Host", "127.0.0.1:7070", "Authorization", old) == 401);
    CHECK(auth_tick(auth));
    close_auth();
}

TEST(the_unix_socket_takes_no_pages)
{
    struct http_head h = {.n_fields = 1, .fields = {{"Origin", "http://localhost"}}};

    CHECK(auth_unix(NULL, &h, NULL) == 403);
    h.fields[0] = (struct http_field){"Sec-Fetch-Site", "same-origin"};
    CHECK(auth_unix(NULL, &h, NULL) == 403);
    h.fields[0] = (struct http_field){"Sec-Fetch-Site", "none"};
    CHECK(auth_unix(NULL, &h, NULL) == 0);
}

/* ---- web pages ---- */

#define HERE "127.0.0.1:7070"
#define OWN "http://127.0.0.1:7070"

static void request(const char *method, const char *target, const char *upgrade)
{
    head = (struct http_head){.method = method, .target = target, .upgrade = upgrade};
}

/* The cookie of a new session, as a browser sends it. */
static const char *new_session(void)
{
    static char text[128];
    char *line = NULL;

    if (auth_begin_session(auth, &line, NULL) < 0)
        abort();
    snprintf(text, sizeof(text), "%s", line + strlen("Set-Cookie: "));
    text[strcspn(text, ";")] = '\0';
    free(line);
    return text;
}

TEST(a_session_reads)
{
    _cleanup_free_ char *list = NULL;
    const char *cookie;

    open_auth(HERE, NULL);
    cookie = new_session();
    CHECK(strncmp(cookie, "ripcord_session_7070=", 21) == 0 && strlen(cookie) == 21 + TOKEN_LEN);
    request("GET", "/v1/sandboxes?limit=1", NULL);
    CHECK(ASK("Host", HERE, "Cookie", cookie) == 0);
    CHECK(ASK("Host", HERE) == 401);
    list = xasprintf("a=b; %s;c=d", cookie);
    CHECK(ASK("Host", HERE, "Cookie", list) == 0);
    CHECK(ASK("Host", HERE, "Cookie", "ripcord_session_7070=0", "Cookie", cookie) == 0);
    CHECK(ASK("Host", HERE, "Cookie", cookie + 1) == 401);
    CHECK(ASK("Host", HERE, "Cookie", "ripcord_session_7070=") == 401);
    CHECK(ASK("Host", HERE, "Cookie", cookie, "Authorization", "Bearer x") == 401);
    request("GET", "/", NULL);
    CHECK(ASK("Host", HERE, "Cookie", cookie) == 401);
    request("GET", "/v1", NULL);
    CHECK(ASK("Host", HERE, "Cookie", cookie) == 401);
    request("GET", "/v1/../x", NULL);
    CHECK(ASK("Host", HERE, "Cookie", cookie) == 401);
    request("GET", "/", NULL);
    close_auth();
}

TEST(rebound_names_have_no_session)
{
    const char *cookie;

    open_auth(HERE, NULL);
    cookie = new_session();
    request("GET", "/v1/sandboxes", NULL);
    CHECK(ASK("Host", "evil.test:7070", "Cookie", cookie) == 421);
    CHECK(ASK("Host", "evil.test:7070", "Origin", "http://evil.test:7070", "Cookie", cookie) ==
          421);
    request("GET", "/", NULL);
    close_auth();
}

TEST(another_page_cannot_change_anything)
{
    static const char *const methods[] = {"POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    const char *cookie;

    open_auth(HERE, NULL);
    cookie = new_session();
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        request(methods[i], "/v1/run", NULL);
        CHECK(ASK("Host", HERE, "Cookie", cookie) == 403);
        CHECK(ASK("Host", HERE, "Cookie", cookie, "Origin", OWN) == 0);
        CHECK(ASK("Host", HERE, "Cookie", cookie, "Origin", "null") == 403);
        CHECK(ASK("Host", HERE, "Cookie", cookie, "Origin", "http://127.0.0.1:8000") == 403);
    }
    request("GET", "/", NULL);
    close_auth();
}

TEST(another_page_cannot_read)
{
    const char *cookie;

    open_auth(HERE, NULL);
    cookie = new_session();
    request("GET", "/v1/sandboxes", NULL);
    CHECK(ASK("Host", HERE, "Cookie", cookie, "Origin", "http://evil.test") == 403);
    request("GET", "/", NULL);
    close_auth();
}

TEST(another_port_is_another_page)
{
    const char *cookie;

    open_auth(HERE, NULL);
    cookie = new_session();
    request("GET", "/v1/sandboxes", NULL);
    CHECK(ASK("Host", HERE, "Cookie", cookie, "Sec-Fetch-Site", "same-site") == 403);
    CHECK(ASK("Host", HERE, "Cookie", cookie, "Sec-Fetch-Site", "cross-site") == 403);
    CHECK(ASK("Host", HERE, "Cookie", cookie, "Sec-Fetch-Site", "same-origin") == 0);
    request("GET", "/", NULL);
    close_auth();
}

TEST(a_socket_of_another_page)
{
    const char *cookie;

    open_auth(HERE, NULL);
    cookie = new_session();
    request("GET", "/v1/sandboxes/a/execs/last/attach", "websocket");
    CHECK(ASK("Host", HERE, "Cookie", cookie) == 403);
    CHECK(ASK("Host", HERE, "Cookie", cookie, "Origin", "http://evil.test") == 403);
    CHECK(ASK("Host", HERE, "Cookie", cookie, "Origin", OWN) == 0);
    request("GET", "/", NULL);
    close_auth();
}

TEST(a_session_ends)
{
    _cleanup_free_ char *line = NULL, *again = NULL;
    struct api_token t = {0};
    struct http_head h = {.n_fields = 1};
    const char *cookie;

    open_auth(HERE, NULL);
    cookie = new_session();
    request("GET", "/v1/sandboxes", NULL);
    h.fields[0] = (struct http_field){"Cookie", cookie};
    CHECK(auth_end_session(auth, &h, &line));
    CHECK(strstr(line, "Max-Age=0"));
    CHECK(ASK("Host", HERE, "Cookie", cookie) == 401);
    CHECK(!auth_end_session(auth, &h, &again));
    cookie = new_session();
    CHECK(ASK("Host", HERE, "Cookie", cookie) == 0);
    CHECK(token_rotate(folder, &t, NULL) == 0);
    CHECK(ASK("Host", HERE, "Cookie", cookie) == 401);
    request("GET", "/", NULL);
    close_auth();
}

static const char *new_ticket(const char *path)
{
    static char target[300];
    struct api_token t = {0};

    if (auth_new_ticket(auth, path, &t, NULL) < 0)
        abort();
    snprintf(target, sizeof(target), "%s?ticket=%s", path, t.text);
    return target;
}

TEST(a_ticket_opens_one_socket)
{
    open_auth(HERE, NULL);
    request("GET", new_ticket("/v1/sandboxes/a/execs/last/attach"), "websocket");
    CHECK(ASK("Host", HERE, "Origin", "http://evil.test") == 403);
    CHECK(ASK("Host", "evil.test:7070") == 421);
    CHECK(ASK("Host", HERE, "Origin", OWN) == 0);
    CHECK(ASK("Host", HERE, "Origin", OWN) == 401); /* replayed */
    request("GET", new_ticket("/v1/sandboxes/a/execs/last/attach"), "websocket");
    CHECK(ASK("Host", HERE) == 0); /* a program */
    request("GET", "/v1/sandboxes/a/execs/last/attach?ticket=", "websocket");
    CHECK(ASK("Host", HERE) == 401);
    request("GET", "/", NULL);
    close_auth();
}

TEST(a_ticket_is_for_sockets)
{
    const char *target;

    open_auth(HERE, NULL);
    target = new_ticket("/v1/sandboxes/a/execs/last/attach");
    request("GET", target, NULL);
    CHECK(ASK("Host", HERE) == 401);
    request("POST", target, "websocket");
    CHECK(ASK("Host", HERE) == 401);
    request("GET", target, "ripcord-exec/1");
    CHECK(ASK("Host", HERE) == 401);
    request("GET", target, "WebSocket");
    CHECK(ASK("Host", HERE) == 0);
    request("GET", "/", NULL);
    close_auth();
}

TEST(a_ticket_is_for_one_path)
{
    char target[300], *query;

    open_auth(HERE, NULL);
    snprintf(target, sizeof(target), "%s", new_ticket("/v1/sandboxes/a/execs/last/attach"));
    query = strchr(target, '?');
    memcpy(strstr(target, "/a/"), "/b/", 3);
    request("GET", target, "websocket");
    CHECK(ASK("Host", HERE) == 401);
    memcpy(strstr(target, "/b/"), "/a/", 3); /* and then it is used up */
    CHECK(query && ASK("Host", HERE) == 401);
    request("GET", "/", NULL);
    close_auth();
}
