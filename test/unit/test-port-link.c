/* Links to ports: names of origins, signatures, times. */
#include <stdio.h>
#include <string.h>

#include "daemon/api/port-link.h"
#include "lib/base/macro.h"
#include "tap.h"

static const char key[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
static const struct port_host host = {8000, "0123456789abcdef"};
static const struct port_grant grant = {1000, true};

static bool valid(const char *with, enum port_link_use use, const struct port_host *at,
                  uint64_t now, const char *text)
{
    struct port_grant got;

    return port_link_check(with, use, at, now, text, &got) && got.expires == grant.expires &&
           got.wake == grant.wake;
}

TEST(names_of_origins)
{
    static const char *const bad[] = {"8000-0123456789abcdef.localhost.evil",
                                      "8000-0123456789abcdef.localhostx",
                                      "8000-0123456789abcde.localhost",
                                      "8000-0123456789abcdef0.localhost",
                                      "8000-0123456789ABCDEF.localhost",
                                      "08000-0123456789abcdef.localhost",
                                      "65536-0123456789abcdef.localhost",
                                      "0-0123456789abcdef.localhost",
                                      "x8000-0123456789abcdef.localhost",
                                      "-0123456789abcdef.localhost",
                                      "8000-0123456789abcdef",
                                      "localhost",
                                      "127.0.0.1:7070",
                                      ""};
    struct port_host got;

    CHECK(port_host_parse("8000-0123456789abcdef.localhost:7070", &got));
    CHECK(got.port == 8000 && STREQ(got.id, host.id));
    CHECK(port_host_parse("1-0123456789abcdef.localhost", &got) && got.port == 1);
    CHECK(!port_host_parse(NULL, &got));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(!port_host_parse(bad[i], &got));
}

TEST(a_link_is_for_one_port_of_one_sandbox_and_one_use)
{
    const struct port_host port = {8001, "0123456789abcdef"}, id = {8000, "0123456789abcdee"};
    char text[PORT_LINK_SIZE];

    port_link_sign(key, PORT_LINK_URL, &host, &grant, text);
    CHECK(valid(key, PORT_LINK_URL, &host, 0, text));
    CHECK(!valid(key, PORT_LINK_COOKIE, &host, 0, text));
    CHECK(!valid(key, PORT_LINK_URL, &port, 0, text));
    CHECK(!valid(key, PORT_LINK_URL, &id, 0, text));
    CHECK(!valid("other", PORT_LINK_URL, &host, 0, text));
}

TEST(a_link_that_was_changed_is_not_ours)
{
    char text[PORT_LINK_SIZE], changed[PORT_LINK_SIZE];
    struct port_grant got;
    unsigned passed = 0;

    port_link_sign(key, PORT_LINK_URL, &host, &grant, text);
    for (size_t i = 0; i < strlen(text); i++) {
        memcpy(changed, text, sizeof(text));
        changed[i] = changed[i] == '1' ? '0' : '1';
        passed += port_link_check(key, PORT_LINK_URL, &host, 0, changed, &got);
    }
    CHECK(passed == 0);
    text[strlen(text) - 1] = '\0';
    CHECK(!valid(key, PORT_LINK_URL, &host, 0, text));
    CHECK(!valid(key, PORT_LINK_URL, &host, 0, ""));
    CHECK(!valid(key, PORT_LINK_URL, &host, 0, "1000-1-"));
}

TEST(a_link_expires)
{
    char text[PORT_LINK_SIZE];

    port_link_sign(key, PORT_LINK_COOKIE, &host, &grant, text);
    CHECK(valid(key, PORT_LINK_COOKIE, &host, 999, text));
    CHECK(!valid(key, PORT_LINK_COOKIE, &host, 1000, text));
}
