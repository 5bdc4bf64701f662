/*
 * err, buf, strv, map, text, time: the parts of base/ that need no files.
 */
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/base/buf.h"
#include "lib/base/command-size.h"
#include "lib/base/err.h"
#include "lib/base/map.h"
#include "lib/base/name-set.h"
#include "lib/base/strv.h"
#include "lib/base/text.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "proto/digest-context.h"
#include "tap.h"

/* ---- err ---- */

TEST(err_table_is_the_contract)
{
    /* clang-format off */
    static const struct { enum err_code code; const char *name; int http, exit; } want[] = {
        { ERR_NONE,         "none",         200, 0 },
        { ERR_SYSTEM,       "system",       500, 1 },
        { ERR_INVALID,      "invalid",      400, 2 },
        { ERR_UNAUTHORIZED, "unauthorized", 401, 5 },
        { ERR_DENIED,       "denied",       403, 5 },
        { ERR_NOT_FOUND,    "not_found",    404, 3 },
        { ERR_CONFLICT,     "conflict",     409, 4 },
        { ERR_LIMIT,        "limit",        429, 6 },
        { ERR_UNSUPPORTED,  "unsupported",  501, 7 },
        { ERR_ENGINE,       "engine",       502, 8 },
        { ERR_TIMEOUT,      "timeout",      504, 9 },
    };
    /* clang-format on */

    CHECK(ARRAY_SIZE(want) == ERR_CODE_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        CHECK_STR(err_code_name(want[i].code), want[i].name);
        CHECK(err_code_http(want[i].code) == want[i].http);
        CHECK(err_code_exit(want[i].code) == want[i].exit);
        if (want[i].code != ERR_NONE)
            CHECK(err_code_from_name(want[i].name) == want[i].code);
    }
}

TEST(err_code_of_a_stranger_is_system)
{
    CHECK(err_code_from_name("teapot") == ERR_SYSTEM);
    CHECK(err_code_from_name("") == ERR_SYSTEM);
    CHECK_STR(err_code_name((enum err_code)999), "system");
    CHECK(err_code_http((enum err_code)999) == 500);
    CHECK(err_code_exit((enum err_code)999) == 1);
}

TEST(err_set_wrap_and_hint)
{
    _cleanup_err_ struct err err = ERR_INIT;

    CHECK(err_set(&err, ERR_CONFLICT, "box '%s' is busy", "a") == -ERR_CONFLICT);
    CHECK(err_wrap(&err, "remove '%s'", "a") == -ERR_CONFLICT);
    CHECK(err_hint(&err, "Use %s.", "--force") == -ERR_CONFLICT);
    CHECK_STR(err.msg, "remove 'a': box 'a' is busy");
    CHECK_STR(err.hint, "Use --force.");
    CHECK(err.code == ERR_CONFLICT && err.errnum == 0);
    err_hint(&err, "Second.");
    CHECK_STR(err.hint, "Second.");
}

TEST(err_knows_the_part_of_a_request)
{
    _cleanup_err_ struct err err = ERR_INIT, copy = ERR_INIT;

    err_set(&err, ERR_INVALID, "field 'limits.cpus' must be a number");
    err_wrap(&err, "field 'limits'"); /* less exact */
    CHECK_STR(err.part, "field");
    CHECK_STR(err.part_name, "limits.cpus");
    CHECK(err_copy(&copy, &err) < 0);
    CHECK_STR(copy.part_name, "limits.cpus");
    err_set(&err, ERR_INVALID, "must be a number");
    CHECK(!err.part && !err.part_name);
    err_wrap(&err, "query parameter 'limit'");
    CHECK_STR(err.part, "parameter");
    err_set(&err, ERR_INVALID, "field 'without an end");
    CHECK(!err.part);
}

TEST(err_set_replaces_an_old_error_whole)
{
    _cleanup_err_ struct err err = ERR_INIT;

    err_sys(&err, EPERM, "first");
    err_hint(&err, "old");
    err_set(&err, ERR_LIMIT, "second");
    CHECK_STR(err.msg, "second");
    CHECK(!err.hint && err.errnum == 0);
}

TEST(err_sys_keeps_errno_and_says_it)
{
    _cleanup_err_ struct err err = ERR_INIT;

    CHECK(err_sys(&err, ENOENT, "open '%s'", "/x") == -ERR_SYSTEM);
    CHECK(err.code == ERR_SYSTEM && err.errnum == ENOENT);
    CHECK_STR(err.msg, "open '/x': No such file or directory");
}

TEST(err_null_is_allowed_everywhere)
{
    struct err src = ERR_INIT;

    CHECK(err_set(NULL, ERR_LIMIT, "x") == -ERR_LIMIT);
    CHECK(err_sys(NULL, EIO, "x") == -ERR_SYSTEM);
    err_wrap(NULL, "x");
    err_hint(NULL, "x");
    err_done(NULL);
    err_set(&src, ERR_DENIED, "no");
    CHECK(err_copy(NULL, &src) == -ERR_DENIED);
    CHECK(err_move(NULL, &src) == -ERR_DENIED);
    CHECK(!src.msg);
}

TEST(err_move_and_copy)
{
    _cleanup_err_ struct err a = ERR_INIT, b = ERR_INIT, c = ERR_INIT;

    err_sys(&a, EIO, "disk");
    err_hint(&a, "Buy another.");
    CHECK(err_copy(&c, &a) == -ERR_SYSTEM);
    CHECK(c.msg != a.msg && c.errnum == EIO);
    CHECK(err_move(&b, &a) == -ERR_SYSTEM);
    CHECK(a.code == ERR_NONE && !a.msg && !a.hint);
    CHECK_STR(b.msg, c.msg);
    CHECK_STR(b.hint, "Buy another.");
}

/* ---- buf ---- */

TEST(buf_is_an_empty_string_at_birth)
{
    _cleanup_buf_ struct buf b = BUF_INIT(10);
    _cleanup_free_ char *s = NULL;

    CHECK_STR(buf_data(&b), "");
    s = buf_steal(&b);
    CHECK_STR(s, "");
}

TEST(buf_fills_to_its_maximum_and_not_a_byte_more)
{
    _cleanup_buf_ struct buf b = BUF_INIT(8);

    CHECK(buf_append_str(&b, "12345678") == 0);
    CHECK(buf_append_c(&b, '9') == -ERR_LIMIT);
    CHECK(buf_appendf(&b, "%d", 9) == -ERR_LIMIT);
    CHECK(buf_append(&b, "", 0) == 0);
    CHECK_STR(buf_data(&b), "12345678");
    CHECK(b.len == 8);
    CHECK(!buf_reserve(&b, SIZE_MAX));
}

TEST(buf_format_and_grow)
{
    _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

    for (int i = 0; i < 10000; i++)
        CHECK(buf_appendf(&b, "%04d,", i) == 0);
    CHECK(b.len == 50000);
    CHECK(strstr(buf_data(&b), "1233,1234,1235,"));
    CHECK(buf_data(&b)[b.len] == '\0');
}

TEST(buf_consume_reclaims_the_front)
{
    _cleanup_buf_ struct buf b = BUF_INIT(64);

    for (int i = 0; i < 1000; i++) {
        CHECK(buf_append_str(&b, "0123456789abcdef0123456789abcdef") == 0);
        buf_consume(&b, 31);
        CHECK_STR(buf_data(&b), "f");
        buf_consume(&b, 1);
        CHECK(b.len == 0);
    }
    CHECK(b.cap <= 128);
}

TEST(buf_consume_leaves_a_tail_that_still_grows)
{
    _cleanup_buf_ struct buf b = BUF_INIT(100);

    CHECK(buf_append_str(&b, "hello world") == 0);
    buf_consume(&b, 6);
    for (int i = 0; i < 95; i++)
        CHECK(buf_append_c(&b, 'x') == 0);
    CHECK(buf_append_c(&b, 'x') == -ERR_LIMIT);
    CHECK(strncmp(buf_data(&b), "worldxxx", 8) == 0 && b.len == 100);
}

TEST(buf_reserve_commit_truncate_clear)
{
    _cleanup_buf_ struct buf b = BUF_INIT(100);
    char *p = buf_reserve(&b, 5);

    CHECK(p != NULL);
    memcpy(p, "abcde", 5);
    buf_commit(&b, 3);
    CHECK_STR(buf_data(&b), "abc");
    buf_truncate(&b, 1);
    CHECK_STR(buf_data(&b), "a");
    buf_clear(&b);
    CHECK_STR(buf_data(&b), "");
    buf_truncate(&b, 0);
}

TEST(buf_steal_hands_over_after_consume)
{
    _cleanup_buf_ struct buf b = BUF_INIT(100);
    _cleanup_free_ char *s = NULL;

    CHECK(buf_append_str(&b, "drop keep") == 0);
    buf_consume(&b, 5);
    s = buf_steal(&b);
    CHECK_STR(s, "keep");
    CHECK(b.len == 0 && b.cap == 0);
    CHECK(buf_append_str(&b, "again") == 0);
    CHECK_STR(buf_data(&b), "again");
}

TEST(buf_keeps_nul_bytes)
{
    _cleanup_buf_ struct buf b = BUF_INIT(100);

    CHECK(buf_append(&b, "a\0b", 3) == 0);
    CHECK(b.len == 3 && memcmp(buf_data(&b), "a\0b", 4) == 0);
}

/* ---- strv ---- */

TEST(strv_basics)
{
    _cleanup_strv_ char **v = NULL, **copy = NULL;
    _cleanup_free_ char *joined = NULL;

    CHECK(strv_len(NULL) == 0);
    CHECK(!strv_contains(NULL, "a"));
    strv_add(&v, "a");
    strv_push(&v, xstrdup("b"));
    strv_add(&v, "");
    CHECK(strv_len(v) == 3);
    CHECK(strv_contains(v, "b") && strv_contains(v, "") && !strv_contains(v, "c"));
    copy = strv_copy(v);
    CHECK(strv_len(copy) == 3 && copy[0] != v[0]);
    joined = strv_join(copy, ", ");
    CHECK_STR(joined, "a, b, ");
}

TEST(strv_of_nothing)
{
    _cleanup_strv_ char **copy = strv_copy(NULL);
    _cleanup_free_ char *joined = strv_join(NULL, ",");

    CHECK(copy && !copy[0]);
    CHECK_STR(joined, "");
    CHECK(strv_free(NULL) == NULL);
}

TEST(strv_env_set_replaces_by_whole_key)
{
    _cleanup_strv_ char **env = NULL;

    strv_env_set(&env, "PATH", "/bin");
    strv_env_set(&env, "PATHX", "1");
    strv_env_set(&env, "PATH", "/usr/bin=x");
    CHECK(strv_len(env) == 2);
    CHECK_STR(strv_env_get(env, "PATH"), "/usr/bin=x");
    CHECK_STR(strv_env_get(env, "PATHX"), "1");
    CHECK(!strv_env_get(env, "PAT"));
    CHECK(!strv_env_get(NULL, "PATH"));
}

TEST(strv_env_merge_keeps_the_last_value_at_the_first_place)
{
    char *const a[] = {(char *)"PATH=/bin", (char *)"A=1", (char *)"no equals", NULL};
    char *const b[] = {(char *)"PATHX=2", (char *)"A=", (char *)"PATH=/usr=x", (char *)"A=3", NULL};
    _cleanup_free_ char **both = strv_env_merge((char *const *const[]){a, NULL, b}, 3);
    _cleanup_free_ char **none = strv_env_merge((char *const *const[]){NULL}, 1);
    _cleanup_free_ char *text = strv_join(both, " ");

    CHECK_STR(text, "PATH=/usr=x A=3 PATHX=2");
    CHECK(both[0] == b[2] && strv_len(none) == 0);
}

/* Two times all variables that Linux takes, each with another name. With a search for each of them
 * this would take minutes. */
TEST(strv_env_merge_is_fast_for_many)
{
    enum { MANY = 150000 };
    struct strv_list l = {0}, over = {0};
    char **all;

    for (int i = 0; i < MANY; i++) {
        strv_list_push(&l, xasprintf("V%d=", i));
        strv_list_push(&over, xasprintf("V%d=x", MANY - 1 - i));
    }
    all = strv_env_merge((char *const *const[]){l.v, over.v}, 2);
    CHECK(strv_len(all) == MANY);
    CHECK_STR(all[7], "V7=x");
    free(all);
    strv_free(l.v);
    strv_free(over.v);
}

TEST(strv_list_grows)
{
    struct strv_list l = {0};

    CHECK(!l.v);
    for (int i = 0; i < 1000; i++) {
        strv_list_push(&l, xasprintf("%d", i));
        CHECK(l.n == (size_t)i + 1 && !l.v[l.n]);
    }
    CHECK(strv_len(l.v) == 1000);
    CHECK_STR(l.v[999], "999");
    strv_free(l.v);
}

TEST(command_size_counts_nul_and_pointer)
{
    char *const v[] = {(char *)"abc", (char *)"", NULL};

    CHECK(command_size(v) == 3 + 2 * 9 && command_size(NULL) == 0);
    CHECK(!command_oversized(v) && !command_oversized(NULL));
}

TEST(strv_nearest_suggests_only_what_is_near)
{
    static const char *const words[] = {"run", "exec", "logs", "stop", "version", "doctor"};
    size_t n = ARRAY_SIZE(words);

    CHECK_STR(strv_nearest("exce", words, n), "exec");
    CHECK_STR(strv_nearest("lgos", words, n), "logs");
    CHECK_STR(strv_nearest("verison", words, n), "version");
    CHECK_STR(strv_nearest("docter", words, n), "doctor");
    CHECK_STR(strv_nearest("stop", words, n), "stop");
    CHECK(!strv_nearest("kubernetes", words, n));
    CHECK(!strv_nearest("create", (const char *const[]){"lease"}, 1));
    CHECK(!strv_nearest("pull", (const char *const[]){"kill"}, 1));
    CHECK(!strv_nearest("", words, n));
    CHECK(!strv_nearest("x", words, 0));
}

TEST(strv_nearest_bounds_its_work)
{
    static const char *const words[] = {"run"};
    char longest[200];

    memset(longest, 'r', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    CHECK(!strv_nearest(longest, words, 1));
    CHECK(!strv_nearest("run", (const char *const[]){longest}, 1));
}

/* ---- map ---- */

TEST(name_set_keeps_every_name)
{
    struct name_set s = NAME_SET_INIT;
    char name[16];

    CHECK(!name_set_has(&s, "n0"));
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof(name), "n%d", i / 2); /* each twice */
        name_set_add(&s, name);
    }
    CHECK(s.used == 10000);
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        CHECK(name_set_has(&s, name) == (i < 10000));
    }
    name_set_done(&s);
    CHECK(!name_set_has(&s, "n0"));
}

TEST(map_add_get_remove)
{
    struct map m = MAP_INIT;
    int a = 1, b = 2;

    CHECK(!map_get(&m, "a") && !map_remove(&m, "a"));
    CHECK(map_add(&m, "a", &a));
    CHECK(!map_add(&m, "a", &b));
    CHECK(map_get(&m, "a") == &a);
    CHECK(map_add(&m, "b", &b) && m.used == 2);
    CHECK(map_remove(&m, "a") == &a);
    CHECK(!map_get(&m, "a") && map_get(&m, "b") == &b && m.used == 1);
    CHECK(map_add(&m, "a", &b) && map_get(&m, "a") == &b);
    map_done(&m);
    CHECK(m.cap == 0);
}

TEST(map_holds_many_and_forgets_them)
{
    struct map m = MAP_INIT;
    static int values[2000];
    char key[32];

    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof(key), "sandbox-%d", i);
        CHECK(map_add(&m, key, &values[i]));
    }
    for (int i = 0; i < 2000; i += 2) {
        snprintf(key, sizeof(key), "sandbox-%d", i);
        CHECK(map_remove(&m, key) == &values[i]);
    }
    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof(key), "sandbox-%d", i);
        CHECK(map_get(&m, key) == (i % 2 ? &values[i] : NULL));
    }
    CHECK(m.used == 1000);
    map_done(&m);
}

TEST(map_does_not_grow_from_churn)
{
    struct map m = MAP_INIT;
    char key[32];
    int v = 0;

    for (int i = 0; i < 100000; i++) {
        snprintf(key, sizeof(key), "%d", i);
        CHECK(map_add(&m, key, &v));
        CHECK(map_remove(&m, key) == &v);
    }
    CHECK(m.used == 0 && m.cap <= 64);
    map_done(&m);
}

TEST(map_walk_visits_each_once_while_removing)
{
    struct map m = MAP_INIT;
    static int values[100];
    const char *key;
    char name[16];
    void *value;
    int seen = 0;

    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "%d", i);
        CHECK(map_add(&m, name, &values[i]));
    }
    for (size_t i = 0; map_next(&m, &i, &key, &value);) {
        CHECK((*(int *)value)++ == 0);
        CHECK(map_remove(&m, key) == value);
        seen++;
    }
    CHECK(seen == 100 && m.used == 0);
    CHECK(!map_next(&m, &(size_t){0}, NULL, NULL));
    map_done(&m);
}

/* ---- text ---- */

static const char *escaped(struct buf *b, const char *s, size_t len)
{
    buf_clear(b);
    return text_escape(b, s, len) == 0 ? buf_data(b) : NULL;
}

TEST(text_escape_defuses_terminals)
{
    _cleanup_buf_ struct buf b = BUF_INIT(1000);

    CHECK_STR(escaped(&b, "\033]0;x\007", 6), "\\x1b]0;x\\x07");
    CHECK_STR(escaped(&b, "a\nb\tc\r", 6), "a\\nb\\tc\\x0d");
    CHECK_STR(escaped(&b, "\x7f", 1), "\\x7f");
    CHECK_STR(escaped(&b,
                      "\x9b"
                      "1m",
                      3),
              "\\x9b1m");
    CHECK_STR(escaped(&b, "\xc2\x9b", 2), "\\x9b");
    CHECK_STR(escaped(&b, "a\0b", 3), "a\\x00b");
    CHECK_STR(escaped(&b, "\xe2\x80\xae", 3), "\\u{202e}");
    CHECK_STR(escaped(&b, "\xe2\x81\xa6", 3), "\\u{2066}");
}

TEST(text_escape_keeps_people_s_languages)
{
    static const char s[] = "gr\xc3\xbc\xc3\x9f \xe4\xbd\xa0 \xf0\x9f\x98\x80";
    _cleanup_buf_ struct buf b = BUF_INIT(1000);

    CHECK_STR(escaped(&b, s, strlen(s)), s);
    CHECK_STR(escaped(&b, "", 0), "");
}

TEST(text_escape_of_broken_utf8)
{
    _cleanup_buf_ struct buf b = BUF_INIT(1000);

    CHECK_STR(escaped(&b, "\xc0\xaf", 2), "\\xc0\\xaf");                   /* overlong '/' */
    CHECK_STR(escaped(&b, "\xed\xa0\x80", 3), "\\xed\\xa0\\x80");          /* a surrogate */
    CHECK_STR(escaped(&b, "\xf4\x90\x80\x80", 4), "\\xf4\\x90\\x80\\x80"); /* past U+10FFFF */
    CHECK_STR(escaped(&b, "\xe4\xbd", 2), "\\xe4\\xbd");                   /* cut short */
}

TEST(text_escape_respects_the_buffer_s_maximum)
{
    _cleanup_buf_ struct buf b = BUF_INIT(3);

    CHECK(text_escape(&b, "\x01", 1) == -ERR_LIMIT);
    CHECK(text_escape_json(&b, "abcd") == -ERR_LIMIT);
}

TEST(text_escape_json_strings)
{
    _cleanup_buf_ struct buf b = BUF_INIT(1000);

    CHECK(text_escape_json(&b, "a\"b\\c\n\x7f\xff\xc3\xbc") == 0);
    CHECK_STR(buf_data(&b), "a\\\"b\\\\c\\u000a\\u007f\xef\xbf\xbd\xc3\xbc");
}

TEST(text_utf8_next_lengths)
{
    unsigned cp = 0;

    CHECK(text_utf8_next("", 0, &cp) == 0);
    CHECK(text_utf8_next("a", 1, &cp) == 1 && cp == 'a');
    CHECK(text_utf8_next("\xc3\xbc", 2, &cp) == 2 && cp == 0xfc);
    CHECK(text_utf8_next("\xe2\x82\xac", 3, &cp) == 3 && cp == 0x20ac);
    CHECK(text_utf8_next("\xf0\x9f\x98\x80", 4, &cp) == 4 && cp == 0x1f600);
    CHECK(text_utf8_next("\x80", 1, &cp) == 0);
    CHECK(text_utf8_next("\xff", 1, &cp) == 0);
}

/* ---- time ---- */

TEST(time_format_is_rfc3339_utc)
{
    char s[TIME_FORMAT_MAX];

    CHECK_STR(time_format(0, s), "1970-01-01T00:00:00.000Z");
    CHECK_STR(time_format(UINT64_C(1763254923456789), s), "2025-11-16T01:02:03.456Z");
}

TEST(time_clocks_run)
{
    uint64_t a = time_mono(), b = time_mono();

    CHECK(a > 0 && b >= a);
    CHECK(time_wall() > UINT64_C(1700000000) * USEC_PER_SEC);
}

TEST(deadline_of_now_later_and_never)
{
    struct deadline past = deadline_in(0), soon = deadline_in(60 * USEC_PER_SEC);
    struct deadline never = {DEADLINE_NEVER}, huge = deadline_in(UINT64_MAX);

    CHECK(deadline_passed(&past) && deadline_ms(&past) == 0);
    CHECK(!deadline_passed(&soon));
    CHECK(deadline_ms(&soon) > 59000 && deadline_ms(&soon) <= 60000);
    CHECK(!deadline_passed(&never) && deadline_ms(&never) == -1);
    CHECK(!deadline_passed(&huge) && deadline_ms(&huge) == -1);
    soon = deadline_in(UINT64_C(1) << 60);
    CHECK(deadline_ms(&soon) == INT_MAX);
}

TEST(deadline_ms_rounds_up)
{
    struct deadline d = deadline_in(500);

    CHECK(deadline_passed(&d) || deadline_ms(&d) == 1);
}

/* ---- digests ---- */

static bool has_digest(const char *text, size_t times, const char *hex)
{
    char found[BLAKE2B_HEX];
    struct blake2b b;

    blake2b_init(&b);
    for (size_t i = 0; i < times; i++)
        blake2b_add(&b, text, strlen(text));
    blake2b_end(&b, found);
    return STREQ(found, hex);
}

TEST(blake2b_is_as_others_count_it)
{
    CHECK(has_digest("", 1, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"));
    CHECK(has_digest("abc", 1, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"));
    CHECK(has_digest("0123456789abcdef", 8,
                     "4413634ab84fd41826173c8468b13a6777c16b3d5ad36a751e8d8a8f139e4334"));
    CHECK(has_digest("0123456789abcdef", 9,
                     "ebd3a879b9579c42e9445378dd173b69ccfc91753da859bbc1c09d32cea735ff"));
    CHECK(has_digest("seven..", 1000,
                     "4f20ef8af0c3e32c6cabeeb201822f51d34231acfcf538560751da15084a39c9"));
}

TEST(a_file_that_is_left_out_has_size_and_digits)
{
    const char *hex = "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8";
    char value[DIGEST_CONTEXT_VALUE_MAX];

    digest_context_format(UINT64_MAX, hex, value);
    CHECK(digest_context_digits(value) && STREQ(digest_context_digits(value), hex));
    value[strlen(value) - 1] = '\0';
    CHECK(!digest_context_digits(value));
    CHECK(!digest_context_digits("") && !digest_context_digits("12") &&
          !digest_context_digits("12 ab") && !digest_context_digits(hex));
}
