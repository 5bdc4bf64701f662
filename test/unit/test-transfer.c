/*
 * Input of ripcord-transfer: challenges, tokens, names, settings.
 * test/integration/test_image_pull.py tests the transfers.
 */
#include <string.h>

#include "image/transfer/challenge.h"
#include "image/transfer/repository.h"
#include "image/transfer/settings.h"
#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "tap.h"

/* "scheme realm service scope", or NULL if the challenge is refused. */
static char *read_challenge(const char *text)
{
    struct challenge c = {0};
    char *ret;

    if (challenge_parse(text, &c, NULL) < 0)
        return NULL;
    ret = xasprintf("%s %s %s %s", c.scheme == CHALLENGE_BASIC ? "basic" : "bearer",
                    c.realm ? c.realm : "-", c.service ? c.service : "-", c.scope ? c.scope : "-");
    challenge_done(&c);
    return ret;
}

static bool challenge_is(const char *text, const char *want)
{
    _cleanup_free_ char *found = read_challenge(text);

    return want ? found && STREQ(found, want) : !found;
}

TEST(challenges_are_read)
{
    CHECK(challenge_is("Bearer realm=\"https://a/t\",service=\"s\",scope=\"repository:x:pull\"",
                       "bearer https://a/t s repository:x:pull"));
    CHECK(challenge_is("bearer  error=x , Realm=https://a", "bearer https://a - -"));
    CHECK(challenge_is("Bearer realm=\"a \\\"b\\\" c\"", "bearer a \"b\" c - -"));
    CHECK(challenge_is("Bearer realm=\"first\",realm=\"second\"", "bearer first - -"));
    CHECK(challenge_is("Basic realm=\"x\"", "basic x - -"));
    CHECK(challenge_is("Basic ", "basic - - -"));
}

TEST(invalid_challenges_are_refused)
{
    static const char *const bad[] = {"",
                                      "Digest realm=\"x\"",
                                      "Bearer",
                                      "Bearer service=\"x\"",
                                      "Bearer realm=\"x",
                                      "Bearer realm",
                                      "Bearer =x",
                                      "Bearer re alm=x",
                                      "Bearer realm=\"a\nb\"",
                                      "Basics realm=x"};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(challenge_is(bad[i], NULL));
}

TEST(a_challenge_that_is_too_long_is_refused)
{
    char text[6000] = "Bearer realm=";

    memset(text + 13, 'x', sizeof(text) - 14);
    text[sizeof(text) - 1] = '\0';
    CHECK(challenge_is(text, NULL));
}

static bool token_is(const char *text, const char *want)
{
    _cleanup_free_ char *token = NULL;
    int r = challenge_parse_token(text, strlen(text), &token, NULL);

    return want ? r >= 0 && STREQ(token, want) : r < 0;
}

TEST(tokens_are_plain_text)
{
    CHECK(token_is("{\"token\":\"a.b-c\"}", "a.b-c"));
    CHECK(token_is("{\"access_token\":\"x\",\"expires_in\":60}", "x"));
    CHECK(token_is("{\"token\":\"\"}", NULL));
    CHECK(token_is("{\"token\":\"a\\r\\nHost: x\"}", NULL));
    CHECK(token_is("{\"token\":7}", NULL));
    CHECK(token_is("[]", NULL));
    CHECK(token_is("", NULL));
}

static bool name_is(const char *name, const char *want)
{
    struct repository_name n = {0};
    _cleanup_free_ char *found = NULL;

    if (repository_name_parse(name, &n, NULL) < 0)
        return !want;
    found = xasprintf("%s %s %s", n.registry, n.repository, n.tag);
    repository_name_done(&n);
    return want && STREQ(found, want);
}

TEST(names_lead_to_registries)
{
    CHECK(name_is("debian", "docker.io library/debian latest"));
    CHECK(name_is("docker.io/library/debian:12", "docker.io library/debian 12"));
    CHECK(name_is("team/tool:1", "docker.io team/tool 1"));
    CHECK(name_is("ghcr.io/a/b/c:x", "ghcr.io a/b/c x"));
    CHECK(name_is("localhost:5000/x", "localhost:5000 x latest"));
    CHECK(name_is("localhost/x:2", "localhost x 2"));
    CHECK(name_is("../x", NULL));
    CHECK(name_is("", NULL));
}

TEST(settings_are_checked)
{
    struct settings s = {0};
    static const char good[] = "{\"name\":\"a\",\"uid\":7,\"have\":[\"x\"],\"plain_http\":true}";
    static const char file[] =
        "{\"name\":\"https://h/x\",\"etag\":\"\\\"x\\\"\",\"hosts\":[\"h:1\"]"
        ",\"size_max\":5}";
    static const char *const bad[] = {"{\"name\":\"a\",\"hosts\":\"h\"}", "{}",
                                      "{\"name\":\"a\",\"uid\":0}",       "{\"name\":1}",
                                      "{\"name\":\"a\",\"odd\":1}",       "x"};

    CHECK(settings_parse(good, strlen(good), &s, NULL) >= 0);
    CHECK(s.change_user && s.uid == 7 && s.plain_http && strv_contains(s.have, "x"));
    settings_done(&s);
    CHECK(settings_parse(file, strlen(file), &s, NULL) >= 0);
    CHECK(!s.change_user && s.size_max == 5 && strv_contains(s.hosts, "h:1"));
    CHECK_STR(s.etag, "\"x\"");
    settings_done(&s);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(settings_parse(bad[i], strlen(bad[i]), &s, NULL) < 0);
}
