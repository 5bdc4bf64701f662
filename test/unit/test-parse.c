/*
 * parse.c: what people type. Each table holds what must be taken, with its value, and what must be
 * refused.
 */
#include <limits.h>
#include <signal.h>
#include <stdint.h>

#include "lib/base/macro.h"
#include "lib/base/parse.h"
#include "tap.h"

TEST(numbers)
{
    static const char *const bad[] = {"",    " 1",  "1 ",  "+1", "-1",  "0x1",
                                      "1e3", "1.0", "ten", "9",  "101", "18446744073709551616"};
    uint64_t v = 0;

    CHECK(parse_u64("10", 10, 100, &v, NULL) == 0 && v == 10);
    CHECK(parse_u64("100", 10, 100, &v, NULL) == 0 && v == 100);
    CHECK(parse_u64("18446744073709551615", 0, UINT64_MAX, &v, NULL) == 0 && v == UINT64_MAX);
    v = 77;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(parse_u64(bad[i], 10, 100, &v, NULL) == -ERR_INVALID);
    CHECK(v == 77);
}

TEST(numbers_of_32_bit)
{
    uint32_t v = 5;

    CHECK(parse_u32("4294967295", 0, UINT32_MAX, &v, NULL) == 0 && v == UINT32_MAX);
    CHECK(parse_u32("4294967296", 0, UINT32_MAX, &v, NULL) == -ERR_INVALID && v == UINT32_MAX);
}

TEST(number_error_names_value_and_range)
{
    _cleanup_err_ struct err err = ERR_INIT;
    uint64_t v;

    CHECK(parse_u64("x1", 1, 9, &v, &err) == -ERR_INVALID);
    CHECK_STR(err.msg, "'x1' is not a whole number");
    err_done(&err);
    CHECK(parse_u64("10", 1, 9, &v, &err) == -ERR_INVALID);
    CHECK_STR(err.msg, "'10' is out of range (must be between 1 and 9)");
    err_done(&err);
    CHECK(parse_u64("18446744073709551616", 1, 9, &v, &err) == -ERR_INVALID);
    CHECK_STR(err.msg, "'18446744073709551616' is out of range (must be between 1 and 9)");
}

TEST(range_error_names_option_and_readable_bounds)
{
    /* clang-format off */
    static const struct { uint64_t v, min, max; enum parse_unit unit; const char *msg; } bad[] = {
        { 1, 6 << 20, 1ULL << 50, PARSE_BYTES, "--it must be between 6 MiB and 1 PiB" },
        { 3600001, 0, 3600000, PARSE_MSEC, "--it must be between 0s and 1h" },
        { 1, 2, 4194304, PARSE_COUNT, "--it must be between 2 and 4194304" },
    };
    /* clang-format on */

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_err_ struct err err = ERR_INIT;

        CHECK(parse_check_range("--it", bad[i].v, bad[i].min, bad[i].max, bad[i].unit, &err) ==
              -ERR_INVALID);
        CHECK_STR(err.msg, bad[i].msg);
        CHECK(parse_check_range("--it", bad[i].min, bad[i].min, bad[i].max, bad[i].unit, NULL) ==
              0);
        CHECK(parse_check_range("--it", bad[i].max, bad[i].min, bad[i].max, bad[i].unit, NULL) ==
              0);
    }
}

TEST(sizes)
{
    /* clang-format off */
    static const struct { const char *s; uint64_t v; } good[] = {
        { "0", 0 }, { "1024", 1024 }, { "512M", 512 << 20 }, { "512m", 512 << 20 }, { "4G", UINT64_C(4) << 30 },
        { "4GiB", UINT64_C(4) << 30 }, { "4GB", UINT64_C(4) << 30 }, { "1.5G", UINT64_C(3) << 29 },
        { "0.5K", 512 }, { "2T", UINT64_C(2) << 40 }, { "7B", 7 }, { "16777215T", UINT64_C(16777215) << 40 },
    };
    static const char *const bad[] = {
        "", "G", "-1", "1.5", "1.", ".5G", "4 G", "4X", "4GG", "4Gi8", "16777216T", "1,5G", "0x10", "4iB",
        "1.12345678G", "99999999999999999999",
    };
    /* clang-format on */
    uint64_t v;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        v = 1;
        CHECK(parse_size(good[i].s, &v, NULL) == 0);
        CHECK(v == good[i].v);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (parse_size(bad[i], &v, NULL) != -ERR_INVALID)
            printf("# taken: '%s'\n", bad[i]);
        CHECK(parse_size(bad[i], &v, NULL) == -ERR_INVALID);
    }
}

TEST(durations)
{
    /* clang-format off */
    static const struct { const char *s; uint64_t usec; } good[] = {
        { "0", 0 }, { "30", 30000000 }, { "1.5", 1500000 }, { "30s", 30000000 }, { "250ms", 250000 }, { "7us", 7 },
        { "5m", 300000000 }, { "1h30m", UINT64_C(5400000000) }, { "2d", UINT64_C(172800000000) },
        { "1.5s", 1500000 }, { "1m0.5s", 60500000 },
    };
    static const char *const bad[] = {
        "", "s", "-1s", "1w", "1h30", "1h 30m", "1S", "1.s", "99999999999999999d", "1sm", "1..5s", "ms", "1e3s",
    };
    /* clang-format on */
    uint64_t v;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        v = 1;
        CHECK(parse_duration(good[i].s, &v, NULL) == 0);
        CHECK(v == good[i].usec);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (parse_duration(bad[i], &v, NULL) != -ERR_INVALID)
            printf("# taken: '%s'\n", bad[i]);
        CHECK(parse_duration(bad[i], &v, NULL) == -ERR_INVALID);
    }
}

TEST(cpus)
{
    static const char *const bad[] = {"", "0", "-1", "0.0001", "1024.1", "1025", "2x", "1e1", ".5"};
    uint32_t v = 0;

    CHECK(parse_cpus("2", 1, 1024000, &v, NULL) == 0 && v == 2000);
    CHECK(parse_cpus("0.5", 1, 1024000, &v, NULL) == 0 && v == 500);
    CHECK(parse_cpus("0.001", 1, 1024000, &v, NULL) == 0 && v == 1);
    CHECK(parse_cpus("1024", 1, 1024000, &v, NULL) == 0 && v == 1024000);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(parse_cpus(bad[i], 1, 1024000, &v, NULL) == -ERR_INVALID);
}

TEST(booleans)
{
    static const char *const words[] = {"yes", "no", "true", "false", "on", "off", "1", "0"};
    bool v;

    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        CHECK(parse_bool(words[i], &v, NULL) == 0 && v == (i % 2 == 0));
    CHECK(parse_bool("YES", &v, NULL) == -ERR_INVALID);
    CHECK(parse_bool("", &v, NULL) == -ERR_INVALID);
}

TEST(signals)
{
    static const char *const bad[] = {"", "TREM", "SIG", "0", "65", "-9", "term", "SIGSIGTERM"};
    int v = 0;

    CHECK(parse_signal("TERM", &v, NULL) == 0 && v == SIGTERM);
    CHECK(parse_signal("SIGKILL", &v, NULL) == 0 && v == SIGKILL);
    CHECK(parse_signal("15", &v, NULL) == 0 && v == SIGTERM);
    CHECK(parse_signal("64", &v, NULL) == 0 && v == 64);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(parse_signal(bad[i], &v, NULL) == -ERR_INVALID);
    CHECK_STR(signal_name(SIGTERM), "TERM");
    CHECK(!signal_name(0) && !signal_name(999));
}

TEST(names)
{
    static const char *const bad[] = {"",   "-a",  "a-", "A",   "a_b",      "a.b", "a/b",
                                      "..", "a b", " a", "a\n", "\xc3\xbc", "-",   "a\x01"};
    char longest[65];

    memset(longest, 'a', 64);
    longest[64] = '\0';
    CHECK(!name_is_valid(longest));
    longest[63] = '\0';
    CHECK(name_is_valid(longest) && name_is_valid("a") && name_is_valid("9") &&
          name_is_valid("my-box-2") && name_is_valid("a--b"));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(!name_is_valid(bad[i]));
}

TEST(name_error_says_what_is_right)
{
    _cleanup_err_ struct err err = ERR_INIT;

    CHECK(parse_name("sandbox", "ok", &err) == 0 && err.code == ERR_NONE);
    CHECK(parse_name("sandbox", "../x", &err) == -ERR_INVALID);
    CHECK_STR(err.msg, "sandbox '../x' is not a valid name");
    CHECK(strstr(err.hint, "1 to 63"));
}

TEST(users)
{
    static const char *const good[] = {"0", "1000", "65535", "1000:1000", "0:0", "agent", "_apt"};
    static const char *const bad[] = {"",      "65536", "1000:", ":1",  "01",  "1:2:3",
                                      "Agent", "a b",   "-1",    "a:1", "1:a", "99999999999",
                                      "a\n",   "ag/nt", "1 ",    "+1"};
    char longest[34];

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        CHECK(parse_user(good[i], NULL) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(parse_user(bad[i], NULL) == -ERR_INVALID);
    memset(longest, 'a', 33);
    longest[33] = '\0';
    CHECK(parse_user(longest, NULL) == -ERR_INVALID);
    CHECK(parse_user(longest + 1, NULL) == 0);
}

TEST(environment)
{
    _cleanup_err_ struct err err = ERR_INIT;

    CHECK(parse_env("A=", NULL) == 0 && parse_env("_a1=b=c", NULL) == 0);
    CHECK(parse_env("A", NULL) == -ERR_INVALID);
    CHECK(parse_env("=x", NULL) == -ERR_INVALID);
    CHECK(parse_env("1A=x", NULL) == -ERR_INVALID);
    CHECK(parse_env("A B=x", NULL) == -ERR_INVALID);
    CHECK(parse_env("A-KEY=secret", &err) == -ERR_INVALID);
    CHECK(!strstr(err.msg, "secret")); /* values never reach an error text */
}

TEST(sizes_for_people)
{
    char s[FORMAT_MAX];

    CHECK_STR(format_size(0, s), "0 B");
    CHECK_STR(format_size(1023, s), "1023 B");
    CHECK_STR(format_size(4096, s), "4 KiB");
    CHECK_STR(format_size(UINT64_C(3) << 29, s), "1.5 GiB");
    CHECK_STR(format_size(UINT64_MAX, s), "16 EiB");
}

TEST(durations_for_people)
{
    char s[FORMAT_MAX];

    CHECK_STR(format_duration(0, s), "0s");
    CHECK_STR(format_duration(250000, s), "250ms");
    CHECK_STR(format_duration(1500000, s), "1.5s");
    CHECK_STR(format_duration(90 * UINT64_C(1000000), s), "1m30s");
    CHECK_STR(format_duration(1800 * UINT64_C(1000000), s), "30m");
    CHECK_STR(format_duration(9000 * UINT64_C(1000000), s), "2h30m");
    CHECK_STR(format_duration(90000 * UINT64_C(1000000), s), "1d1h");
}
