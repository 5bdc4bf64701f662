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

/* Pairs of name and value, ended by NULL. */
static int ask(const char *const *fields)
{
    struct http_head h = {.method = "GET", .target = "/"};

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
