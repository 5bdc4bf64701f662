/*
 * Tests in TAP, one binary per module: TEST(name) { CHECK(x == y); } … and nothing else; main is
 * here. A failed CHECK says what and where and goes on with the next test. SKIP("reason") leaves a
 * test.
 *
 *   ./test-buf           runs all
 *   ./test-buf append    runs those whose name holds "append"
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct tap_test {
    const char *name;
    void (*fn)(void);
    struct tap_test *next;
};

static struct tap_test *tap_first, **tap_last = &tap_first;
static const char *tap_skipped;
static int tap_failed_checks;

#define TEST(id)                                                                                   \
    static void test_##id(void);                                                                   \
    static struct tap_test tap_entry_##id = {#id, test_##id, NULL};                                \
    __attribute__((constructor)) static void tap_register_##id(void)                               \
    {                                                                                              \
        *tap_last = &tap_entry_##id;                                                               \
        tap_last = &tap_entry_##id.next;                                                           \
    }                                                                                              \
    static void test_##id(void)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            printf("# %s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #cond);                      \
            tap_failed_checks++;                                                                   \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#define CHECK_STR(a, b)                                                                            \
    do {                                                                                           \
        const char *a_ = (a), *b_ = (b);                                                           \
        if (!a_ || !b_ || strcmp(a_, b_) != 0) {                                                   \
            printf("# %s:%d: '%s' is not '%s'\n", __FILE__, __LINE__, a_ ? a_ : "(null)",          \
                   b_ ? b_ : "(null)");                                                            \
            tap_failed_checks++;                                                                   \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#define SKIP(reason)                                                                               \
    do {                                                                                           \
        tap_skipped = (reason);                                                                    \
        return;                                                                                    \
    } while (0)

int main(int argc, char **argv)
{
    int n = 0, failed = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (struct tap_test *t = tap_first; t; t = t->next) {
        if (argc > 1 && !strstr(t->name, argv[1]))
            continue;
        tap_skipped = NULL;
        tap_failed_checks = 0;
        t->fn();
        failed += tap_failed_checks != 0;
        printf("%sok %d - %s%s%s\n", tap_failed_checks ? "not " : "", ++n, t->name,
               tap_skipped ? " # SKIP " : "", tap_skipped ? tap_skipped : "");
    }
    printf("1..%d\n", n);
    return failed ? 1 : 0;
}
