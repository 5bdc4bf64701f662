/* The digest cache: which files of a context need not be read again. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/digests.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "tap.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct stat folder = {.st_dev = 7, .st_ino = 8};

/* The stat of a file whose times are this long ago. */
static struct stat file_of(ino_t ino, uint64_t ago)
{
    uint64_t when = time_wall() - ago;
    struct timespec t = {.tv_sec = (time_t)(when / USEC_PER_SEC),
                         .tv_nsec = (long)(when % USEC_PER_SEC) * 1000};

    return (struct stat){.st_dev = 7, .st_ino = ino, .st_size = 99, .st_mtim = t, .st_ctim = t};
}

static void keep(const char *dir, const struct stat *context, const struct stat *st)
{
    _cleanup_(digests_freep) struct digests *d = digests_open(dir, context);

    digests_add(d, st, "99 " HEX64);
    digests_save(d);
}

static bool knows(const char *dir, const struct stat *context, const struct stat *st)
{
    _cleanup_(digests_freep) struct digests *d = digests_open(dir, context);
    char value[DIGEST_CONTEXT_VALUE_MAX] = "";

    return digests_find(d, st, value) && STREQ(value, "99 " HEX64);
}

static char *new_dir(void)
{
    char *dir = xstrdup("/tmp/ripcord-digests-XXXXXX");

    if (!mkdtemp(dir))
        abort();
    return dir;
}

TEST(only_unchanged_files_are_known)
{
    _cleanup_free_ char *dir = new_dir();
    struct stat st = file_of(1, 10 * USEC_PER_SEC), other = st;

    keep(dir, &folder, &st);
    CHECK(knows(dir, &folder, &st));
    other.st_size++;
    CHECK(!knows(dir, &folder, &other));
    other = st;
    other.st_mtim.tv_nsec ^= 1;
    CHECK(!knows(dir, &folder, &other));
    other = st;
    other.st_ctim.tv_nsec ^= 1;
    CHECK(!knows(dir, &folder, &other));
    other = st;
    other.st_ino++;
    CHECK(!knows(dir, &folder, &other));
    rmtree(AT_FDCWD, dir, NULL);
}

TEST(a_file_that_has_just_changed_is_read_again)
{
    _cleanup_free_ char *dir = new_dir();
    struct stat st = file_of(1, 0), old = file_of(1, 10 * USEC_PER_SEC);

    keep(dir, &folder, &st);
    CHECK(!knows(dir, &folder, &st));
    old.st_ctim = st.st_ctim; /* its time of change was set back */
    keep(dir, &folder, &old);
    CHECK(!knows(dir, &folder, &old));
    rmtree(AT_FDCWD, dir, NULL);
}

TEST(removed_files_are_forgotten)
{
    _cleanup_free_ char *dir = new_dir();
    struct stat a = file_of(1, 10 * USEC_PER_SEC), b = file_of(2, 10 * USEC_PER_SEC);
    char value[DIGEST_CONTEXT_VALUE_MAX];
    struct digests *d;

    keep(dir, &folder, &a);
    d = digests_open(dir, &folder);
    CHECK(digests_find(d, &a, value));
    digests_add(d, &b, "99 " HEX64);
    digests_save(d);
    CHECK(digests_find(d, &b, value)); /* also the same one, in a second pass */
    digests_save(d);
    digests_free(d);
    CHECK(knows(dir, &folder, &b) && !knows(dir, &folder, &a));
    rmtree(AT_FDCWD, dir, NULL);
}

TEST(a_file_of_unknown_form_is_ignored)
{
    static const char *const texts[] = {"", "x", "ripcord-digests1", "ripcord-digests1 and more"};
    _cleanup_free_ char *dir = new_dir(), *file = xasprintf("%s/digests/7-8", dir);
    struct stat st = file_of(1, 10 * USEC_PER_SEC);

    keep(dir, &folder, &st);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        CHECK(file_replace(AT_FDCWD, file, texts[i], strlen(texts[i]), 0600, false, NULL) == 0);
        CHECK(!knows(dir, &folder, &st));
    }
    keep(dir, &folder, &st);
    CHECK(knows(dir, &folder, &st));
    CHECK(!knows("/nowhere", &folder, &st));
    keep("/nowhere", &folder, &st);
    rmtree(AT_FDCWD, dir, NULL);
}

TEST(old_contexts_are_removed)
{
    _cleanup_free_ char *dir = new_dir();
    struct stat st = file_of(1, 10 * USEC_PER_SEC), context = folder;

    for (unsigned i = 0; i < 70; i++) {
        context.st_ino = 100 + i;
        keep(dir, &context, &st);
        usleep(5000); /* another time of change */
    }
    CHECK(knows(dir, &context, &st));
    context.st_ino = 100;
    CHECK(!knows(dir, &context, &st));
    rmtree(AT_FDCWD, dir, NULL);
}
