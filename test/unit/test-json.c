/*
 * json.c: our rules on top of jansson, and the error object on the wire. json-put.c: text without a
 * document.
 */
#include <stdint.h>

#include "lib/base/json-put.h"
#include "lib/base/json.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "tap.h"

static int parse(const char *text, json_t **ret, struct err *err)
{
    return json_parse("request body", text, strlen(text), ret, err);
}

static bool refused(const char *text)
{
    json_t *j = NULL;
    int r = parse(text, &j, NULL);

    json_decref(j);
    return r == -ERR_INVALID;
}

TEST(json_refuses_what_is_ambiguous)
{
    CHECK(refused(""));
    CHECK(refused("{"));
    CHECK(refused("{}x"));
    CHECK(refused("{\"a\":1,\"a\":2}"));
    CHECK(refused("{\"a\":{\"b\":1,\"b\":1}}"));
    CHECK(refused("{\"a\":\"x\\u0000y\"}"));
    CHECK(refused("{'a':1}"));
    CHECK(refused("[1,]"));
    CHECK(refused("\"\xff\""));
    CHECK(refused("99999999999999999999999"));
    CHECK(refused("NaN"));
}

TEST(json_error_names_the_source_and_the_place)
{
    _cleanup_err_ struct err err = ERR_INIT;
    json_t *j = NULL;

    CHECK(parse("{\n \"a\": }", &j, &err) == -ERR_INVALID && !j);
    CHECK(strstr(err.msg, "request body is not valid JSON") && strstr(err.msg, "line 2"));
}

TEST(json_depth_is_limited)
{
    char deep[2 * (JSON_DEPTH_LIMIT + 1) + 1];
    size_t n = JSON_DEPTH_LIMIT + 1;

    memset(deep, '[', n);
    memset(deep + n, ']', n);
    deep[2 * n] = '\0';
    CHECK(refused(deep));
    deep[2 * n - 1] = '\0';
    CHECK(!refused(deep + 1));
    CHECK(!refused("\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[\""));
}

TEST(json_values_are_limited)
{
    const char *texts[] = {"[1,2,3]", "{\"a\":1,\"b\":[]}", "[\"a,[\\\"{,\",{}]", "7"};
    const size_t values[] = {4, 6, 4, 1};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        size_t n = values[i];

        CHECK(json_check_values("x", texts[i], strlen(texts[i]), n, NULL) == 0);
        CHECK(json_check_values("x", texts[i], strlen(texts[i]), n - 1, NULL) == -ERR_LIMIT);
    }
}

struct spec {
    const char *name;
    bool flag;
    uint64_t size;
    json_t *list, *object, *any;
};

static int read_spec(const char *text, const char *where, struct spec *s, struct err *err)
{
    const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, &s->name},     {"flag", JSON_FIELD_BOOL, &s->flag},
        {"size", JSON_FIELD_U64, &s->size},        {"list", JSON_FIELD_ARRAY, &s->list},
        {"object", JSON_FIELD_OBJECT, &s->object}, {"any", JSON_FIELD_ANY, &s->any},
    };
    json_t *j = NULL;
    int r = parse(text, &j, err);

    *s = (struct spec){.name = "default", .size = 7};
    if (r == 0)
        r = json_read(j, where, fields, sizeof(fields) / sizeof(fields[0]), err);
    json_decref(j);
    return r;
}

TEST(json_read_fills_the_table)
{
    struct spec s;

    CHECK(read_spec("{\"flag\":true,\"size\":9223372036854775807}", NULL, &s, NULL) == 0);
    CHECK(s.flag && s.size == INT64_MAX);
    CHECK_STR(s.name, "default");
    CHECK(read_spec("{\"size\":null,\"name\":null}", NULL, &s, NULL) == 0 && s.size == 7);
    CHECK_STR(s.name, "default");
}

static bool says(const char *text, const char *where, const char *msg)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct spec s;

    if (read_spec(text, where, &s, &err) != -ERR_INVALID)
        return false;
    if (strcmp(err.msg, msg) != 0)
        printf("# said: %s\n", err.msg);
    return strcmp(err.msg, msg) == 0;
}

TEST(json_read_names_the_wrong_field)
{
    CHECK(says("{\"size\":-1}", "limits", "field 'limits.size' must be a whole number >= 0"));
    CHECK(says("{\"size\":1.5}", NULL, "field 'size' must be a whole number >= 0"));
    CHECK(says("{\"size\":\"1\"}", NULL, "field 'size' must be a whole number >= 0"));
    CHECK(says("{\"flag\":1}", NULL, "field 'flag' must be true or false"));
    CHECK(says("{\"name\":[]}", NULL, "field 'name' must be a string"));
    CHECK(says("{\"list\":{}}", NULL, "field 'list' must be an array"));
    CHECK(says("{\"object\":[]}", NULL, "field 'object' must be an object"));
    CHECK(says("[]", NULL, "the document must be a JSON object"));
    CHECK(says("3", "limits", "limits must be a JSON object"));
}

TEST(json_read_refuses_unknown_fields_and_suggests)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct spec s;

    CHECK(read_spec("{\"naem\":\"x\"}", "spec", &s, &err) == -ERR_INVALID);
    CHECK_STR(err.msg, "unknown field 'spec.naem'");
    CHECK_STR(err.hint, "Did you mean 'name'?");
    err_done(&err);
    CHECK(read_spec("{\"zzzzzzzz\":1}", NULL, &s, &err) == -ERR_INVALID);
    CHECK(!err.hint);
}

TEST(json_from_strv_leaves_out_what_json_cannot_hold)
{
    char *const v[] = {(char *)"a", (char *)"\xff", (char *)"", NULL};
    _cleanup_json_ json_t *some = json_from_strv(v), *none = json_from_strv(NULL);

    CHECK(json_array_size(some) == 2);
    CHECK(STREQ(json_string_value(json_array_get(some, 0)), "a"));
    CHECK(STREQ(json_string_value(json_array_get(some, 1)), ""));
    CHECK(json_is_array(none) && json_array_size(none) == 0);
}

TEST(json_from_text_and_time_give_null_for_what_is_absent)
{
    _cleanup_json_ json_t *text = json_from_text("a"), *bad = json_from_text("\xff");
    _cleanup_json_ json_t *none = json_from_text(NULL), *never = json_from_time(0);
    _cleanup_json_ json_t *at = json_from_time(1000000);

    CHECK(STREQ(json_string_value(text), "a"));
    CHECK(json_is_null(bad) && json_is_null(none) && json_is_null(never));
    CHECK(json_is_string(at) && strncmp(json_string_value(at), "1970-01-01T00:00:01", 19) == 0);
}

TEST(json_read_strv_wants_strings)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_strv_ char **v = NULL;
    json_t *j = NULL;

    CHECK(parse("[\"a\",\"\",\"c\"]", &j, NULL) == 0);
    CHECK(json_read_strv(j, "argv", &v, NULL) == 0);
    CHECK(strv_len(v) == 3);
    CHECK_STR(v[2], "c");
    json_decref(j);
    CHECK(parse("[\"a\",1]", &j, NULL) == 0);
    v = strv_free(v);
    CHECK(json_read_strv(j, "argv", &v, &err) == -ERR_INVALID && !v);
    CHECK_STR(err.msg, "field 'argv[1]' must be a string");
    json_decref(j);
}

TEST(json_canonical_text_sorts_keys)
{
    _cleanup_free_ char *s = NULL;
    json_t *j = NULL;

    CHECK(parse(" { \"b\" : 1, \"a\" : [ true, null ] } ", &j, NULL) == 0);
    s = json_to_text(j, true);
    CHECK_STR(s, "{\"a\":[true,null],\"b\":1}");
    json_decref(j);
}

TEST(json_error_round_trip)
{
    _cleanup_err_ struct err in = ERR_INIT, out = ERR_INIT;
    json_t *j;

    err_set(&in, ERR_CONFLICT, "box 'a' is busy");
    err_hint(&in, "Stop it first.");
    j = json_from_err(&in);
    CHECK(json_to_err(j, &out) == -ERR_CONFLICT);
    CHECK_STR(out.msg, in.msg);
    CHECK_STR(out.hint, in.hint);
    json_decref(j);
}

TEST(json_error_with_a_foreign_message)
{
    _cleanup_err_ struct err in = ERR_INIT, out = ERR_INIT;
    json_t *j;

    err_set(&in, ERR_SYSTEM, "open '\xff'");
    j = json_from_err(&in);
    CHECK(json_to_err(j, &out) == -ERR_SYSTEM && strlen(out.msg) > 0 && !out.hint);
    json_decref(j);
    j = json_object();
    CHECK(json_to_err(j, &out) == -ERR_SYSTEM);
    CHECK(strstr(out.msg, "without a code or message"));
    json_decref(j);
}

/* ---- json-put.c ---- */

TEST(json_put_sets_commas_and_brackets)
{
    _cleanup_buf_ struct buf b = JSON_PUT_INIT;

    json_put_open(&b, NULL, '{');
    json_put_open(&b, "none", '[');
    json_put_close(&b, ']');
    json_put_number(&b, "zero", 0);
    json_put_number(&b, "most", UINT64_MAX);
    json_put_open(&b, "list", '[');
    json_put_open(&b, NULL, '{');
    json_put_bool(&b, "yes", true);
    json_put_bool(&b, "no", false);
    json_put_close(&b, '}');
    json_put_string(&b, NULL, "{");
    json_put_string(&b, NULL, NULL);
    json_put_raw(&b, NULL, "1.5");
    json_put_close(&b, ']');
    json_put_time(&b, "never", 0);
    json_put_time(&b, "then", 1500);
    json_put_close(&b, '}');
    CHECK_STR(buf_data(&b), "{\"none\":[],\"zero\":0,\"most\":18446744073709551615,"
                            "\"list\":[{\"yes\":true,\"no\":false},\"{\",null,1.5],"
                            "\"never\":null,\"then\":\"1970-01-01T00:00:00.001Z\"}");
}

/* What jansson reads back is what was put, whatever the bytes are. */
TEST(json_put_escapes_keys_and_strings)
{
    static const char *const texts[] = {
        "",          "plain", "\"", "\\", "a\nb\tc\x01", "\x7f", "\xc3\xa4", "\xf0\x9f\x98\x80",
        "ends in {", "\"[",
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        _cleanup_buf_ struct buf b = JSON_PUT_INIT;
        _cleanup_json_ json_t *j = NULL;

        json_put_open(&b, NULL, '{');
        json_put_string(&b, texts[i], texts[i]);
        json_put_number(&b, "after", 1);
        json_put_close(&b, '}');
        CHECK(parse(buf_data(&b), &j, NULL) == 0 && json_object_size(j) == 2);
        CHECK_STR(json_string_value(json_object_get(j, texts[i])), texts[i]);
    }
}

TEST(json_put_replaces_what_is_not_utf8)
{
    _cleanup_buf_ struct buf b = JSON_PUT_INIT;

    json_put_string(&b, NULL,
                    "a\xff"
                    "b\xc3");
    CHECK_STR(buf_data(&b), "\"a\xef\xbf\xbd"
                            "b\xef\xbf\xbd\"");
}
