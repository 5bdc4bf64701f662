/* jsontext.c: recognizes objects and other values, and compacts without changing a digit. */
#include "lib/base/jsontext.h"

#include "lib/base/macro.h"
#include "lib/base/xalloc.h"
#include "tap.h"

static enum json_text_kind kind(const char *s)
{
    return json_text_kind(s, strlen(s));
}

TEST(objects)
{
    static const char *const texts[] = {
        "{}",
        " {\"a\":1} \r",
        "{\"a\":[],\"b\":{},\"c\":[{},[]]}",
        "{\"a\":-0.5e+10,\"b\":0,\"c\":10E9,\"d\":1e999}",
        "{\"\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud800\"}",
        "{\"a\":true,\"a\":false,\"b\":null}",
        "{\"\xc3\xa9\":\"\xf0\x9f\x98\x80\"}",
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (kind(texts[i]) != JSON_TEXT_OBJECT)
            printf("# '%s'\n", texts[i]), tap_failed_checks++;
}

TEST(other_values)
{
    static const char *const texts[] = {"1", "\"x\"", "[]", "[{}]", "null", " true ", "-1.5"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (kind(texts[i]) != JSON_TEXT_OTHER)
            printf("# '%s'\n", texts[i]), tap_failed_checks++;
}

TEST(neither)
{
    static const char *const texts[] = {
        "",
        " ",
        "{",
        "}",
        "{]",
        "[}",
        "{}{}",
        "{} x",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "[1,]",
        "[1 2]",
        "{a:1}",
        "{'a':1}",
        "01",
        "1.",
        ".5",
        "1e",
        "+1",
        "-",
        "tru",
        "nul",
        "NaN",
        "Infinity",
        "\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u123",
        "\"\\",
        "\"\t\"",
        "\"\x01\"",
        "\"\xff\"",
        "\"\xc3\"",
        "\"\xed\xa0\x80\"",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "\xef\xbb\xbf{}",
        "/* */{}",
        "[1]]",
        "{\"a\":1}}",
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (kind(texts[i]) != JSON_TEXT_BAD)
            printf("# '%s'\n", texts[i]), tap_failed_checks++;
    CHECK(json_text_kind("{\"a\":\"\0\"}", 9) == JSON_TEXT_BAD);
    CHECK(json_text_kind("{}\0", 3) == JSON_TEXT_BAD);
    CHECK(json_text_kind("{\"a\\\0\":1}", 9) == JSON_TEXT_BAD);
}

TEST(every_prefix_of_an_object_is_invalid)
{
    static const char text[] = "{\"a\":[1,-2.5e3,\"\\u00e9x\"],\"b\":{\"c\":null}}";

    for (size_t n = 0; n < sizeof(text) - 1; n++) {
        char *copy = xmemdup(text, n); /* a read too far is seen by the sanitizer */
        enum json_text_kind k = json_text_kind(copy, n);

        free(copy);
        CHECK(k == JSON_TEXT_BAD);
    }
    CHECK(kind(text) == JSON_TEXT_OBJECT);
}

static char *nested(size_t depth)
{
    char *s = xmalloc(2 * depth + 1);

    memset(s, '[', depth);
    memset(s + depth, ']', depth);
    s[2 * depth] = '\0';
    return s;
}

TEST(depth_has_a_limit)
{
    char *deepest = nested(JSON_TEXT_DEPTH_MAX + 1), *deeper = nested(JSON_TEXT_DEPTH_MAX + 2);
    char *endless = xmalloc(1 << 20);

    memset(endless, '[', 1 << 20);
    CHECK(kind(deepest) == JSON_TEXT_OTHER); /* the innermost is empty and takes no place */
    CHECK(kind(deeper) == JSON_TEXT_BAD);
    CHECK(json_text_kind(endless, 1 << 20) == JSON_TEXT_BAD);
    free(deepest);
    free(deeper);
    free(endless);
}

TEST(compaction)
{
    char text[] = " {\n \"a b\" : [ 1.10 , 1e5 , { } ] ,\t\"c\" : \" x\\n \" }\r\n";
    char bad[] = "{\"a\": 1,, }", word[] = " 0.10000000000000000000001 ";
    size_t len = strlen(text);
    struct err err = ERR_INIT;

    CHECK(json_text_compact(text, &len, NULL) == 0);
    text[len] = '\0';
    CHECK_STR(text, "{\"a b\":[1.10,1e5,{}],\"c\":\" x\\n \"}");
    len = strlen(word);
    CHECK(json_text_compact(word, &len, NULL) == 0 && len == 25);
    len = strlen(bad);
    CHECK(json_text_compact(bad, &len, &err) == -ERR_INVALID);
    CHECK(strstr(err.msg, "byte 8"));
    err_done(&err);
}

static bool has_type(const char *s)
{
    static const char *const values[] = {"exit", "gap", NULL};

    return json_text_has_member(s, strlen(s), "type", values);
}

TEST(members_of_the_outermost_object)
{
    CHECK(has_type("{\"type\":\"exit\"}"));
    CHECK(has_type(" { \"a\" : [ 1 ] , \"type\" : \"gap\" } "));
    CHECK(has_type("{\"type\":\"x\",\"type\":\"exit\"}"));
    CHECK(has_type("{\"type\":\"exit\",\"type\":\"x\"}"));
    CHECK(has_type("{\"TYPE\":\"exit\"}"));
    CHECK(has_type("{\"\\u0074\\u0059pe\":\"\\u0065xi\\u0074\"}"));
    CHECK(!has_type("{\"type\":\"Exit\"}"));
    CHECK(!has_type("{\"type\":\"exit2\"}") && !has_type("{\"type\":\"exi\"}"));
    CHECK(!has_type("{\"types\":\"exit\"}") && !has_type("{\"typ\":\"exit\"}"));
    CHECK(!has_type("{\"type\":{\"type\":\"exit\"}}"));
    CHECK(!has_type("{\"type\":[\"exit\"]}"));
    CHECK(!has_type("{\"type\":1,\"b\":\"exit\"}"));
    CHECK(!has_type("{\"type\":[],\"b\":\"exit\"}"));
    CHECK(!has_type("{\"type\":\"\\n\\u2028\xc3\xa9\"}"));
    CHECK(!has_type("[{\"type\":\"exit\"}]"));
    CHECK(!has_type("{\"type\":\"exit\"") && !has_type(""));
}
