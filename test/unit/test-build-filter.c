/* COPY --parents and --exclude: which files are copied, and how they change the key of a step. The
 * expected results are those of BuildKit's own copier (fsutil of BuildKit 0.34.1), except where the
 * Dockerfile reference differs: a source that is a file can be excluded. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/build/cache-key.h"
#include "image/build/copy.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "tap.h"

enum { EXCLUDES_MAX = 3 };

static struct err err;
static char folder[] = "/tmp/test-build-filter-XXXXXX";
static int top = -1; /* descriptor of that folder */

static void put(const char *path, const char *text)
{
    _cleanup_free_ char *copy = xstrdup(path);

    *strrchr(copy, '/') = '\0';
    if (dir_make_all(top, copy, 0755, &err) < 0 ||
        file_replace(top, path, text, strlen(text), 0644, false, &err) < 0)
        abort();
}

static void fresh(void)
{
    err_done(&err);
    err = (struct err)ERR_INIT;
    top = fd_close(top);
    rmtree(AT_FDCWD, folder, NULL);
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    if (!mkdtemp(folder) || dir_open(AT_FDCWD, folder, &top, &err) < 0)
        abort();
    put("context/top.txt", "0");
    put("context/d/e/a.txt", "1");
    put("context/d/e/b.md", "2");
    put("context/d/e/g/x.txt", "3");
    put("context/d/f/c.txt", "4");
    put("context/d2/e/a.txt", "5");
    if (fchmodat(top, "context/d/f", 0700, 0) < 0 || symlinkat("d", top, "context/link") < 0 ||
        mkdirat(top, "context/d/empty", 0755) < 0 || dir_make_all(top, "to", 0755, &err) < 0)
        abort();
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list(int dir, const char *way, char ***ret)
{
    _cleanup_closedir_ DIR *d = fdopendir(fcntl(dir, F_DUPFD_CLOEXEC, 3));

    for (const struct dirent *e; d && (e = readdir(d));) {
        _cleanup_free_ char *path = xasprintf("%s%s", way, e->d_name);
        _cleanup_close_ int fd = -1;

        if (STREQ(e->d_name, ".") || STREQ(e->d_name, ".."))
            continue;
        if (e->d_type == DT_DIR && dir_open(dir, e->d_name, &fd, &err) >= 0) {
            _cleanup_free_ char *inside = xasprintf("%s/", path);

            strv_add(ret, inside);
            list(fd, inside, ret);
        } else {
            strv_add(ret, path);
        }
    }
}

/* The contents of to/, sorted; folders end with a slash. */
static char *made(void)
{
    _cleanup_close_ int fd = -1;
    _cleanup_strv_ char **all = NULL;

    if (dir_open(top, "to", &fd, &err) < 0)
        abort();
    list(fd, "", &all);
    if (all)
        qsort(all, strv_len(all), sizeof(*all), compare);
    return all ? strv_join(all, " ") : xstrdup("");
}

static int copy(const char *source, const char *dest, bool parents, char *const *exclude)
{
    char *const sources[] = {(char *)source, NULL};
    struct copy_job job = {
        .sources = sources, .dest = dest, .mode = -1, .want = {parents, exclude}};
    _cleanup_close_ int from = -1, to = -1;

    if (dir_open(top, "context", &from, &err) < 0 || dir_open(top, "to", &to, &err) < 0)
        abort();
    job.from = from;
    job.to = to;
    return copy_files(&job, &err);
}

static void check_cases(bool parents, size_t n,
                        const char *const cases[][EXCLUDES_MAX + 2]) /* source, files, excludes */
{
    for (size_t i = 0; i < n; i++) {
        _cleanup_strv_ char **exclude = NULL;
        _cleanup_free_ char *found = NULL;

        for (size_t k = 2; k < EXCLUDES_MAX + 2 && cases[i][k]; k++)
            strv_add(&exclude, cases[i][k]);
        fresh();
        CHECK(copy(cases[i][0], "/o/", parents, exclude) >= 0);
        found = made();
        CHECK_STR(found, cases[i][1]);
    }
}

TEST(parents_are_kept)
{
    static const char *const cases[][EXCLUDES_MAX + 2] = {
        {"d/e/a.txt", "o/ o/d/ o/d/e/ o/d/e/a.txt"},
        {"./d/e/*.txt", "o/ o/d/ o/d/e/ o/d/e/a.txt"},
        {"/d/e", "o/ o/d/ o/d/e/ o/d/e/a.txt o/d/e/b.md o/d/e/g/ o/d/e/g/x.txt"},
        {"d/**/*.txt", "o/ o/d/ o/d/e/ o/d/e/a.txt o/d/e/g/ o/d/e/g/x.txt o/d/f/ o/d/f/c.txt"},
        {"*/e/a.txt", "o/ o/d/ o/d/e/ o/d/e/a.txt o/d2/ o/d2/e/ o/d2/e/a.txt"},
        {"d/e*/.", "o/ o/d/ o/d/e/ o/d/e/a.txt o/d/e/b.md o/d/e/g/ o/d/e/g/x.txt o/d/empty/"},
        {"d/../top.txt", "o/ o/top.txt"},
        {"nothing/*", "o/"},
        {"d/e/./g", "o/ o/g/ o/g/x.txt"},
        {"d/./e/./g/*", "o/ o/e/ o/e/g/ o/e/g/x.txt"},
        {"d*/./e/*.txt", "o/ o/e/ o/e/a.txt"},
        {"link/./e/*.txt", "o/ o/e/ o/e/a.txt"},
        {"n*/./e", ""},
        {"d/f/./", "o/ o/c.txt"},
        {"d/e", "o/ o/d/ o/d/e/ o/d/e/a.txt o/d/e/b.md", "d/e/g"},
        {"d/./**/*.txt", "o/ o/e/ o/e/a.txt o/e/g/ o/e/g/x.txt", "f"},
        {"d", "o/ o/d/ o/d/e/ o/d/e/b.md o/d/empty/ o/d/f/", "**/*.txt", "**/g"},
    };

    check_cases(true, ARRAY_SIZE(cases), cases);
}

TEST(excluded_files_are_not_copied)
{
    static const char *const cases[][EXCLUDES_MAX + 2] = {
        {"d", "o/ o/e/ o/e/a.txt o/e/b.md o/e/g/ o/e/g/x.txt o/empty/ o/f/ o/f/c.txt", "*.txt"},
        {"d", "o/ o/e/ o/e/b.md o/e/g/ o/empty/ o/f/", "**/*.txt"},
        {"d", "o/ o/empty/ o/f/ o/f/c.txt", "e"},
        {"d", "o/ o/e/ o/e/a.txt o/empty/ o/f/ o/f/c.txt", "e", "!e/a.txt"},
        {"d", "o/ o/e/ o/e/g/ o/e/g/x.txt o/empty/ o/f/ o/f/c.txt", "e/*", "!e/g"},
        {"d", "o/ o/e/ o/e/g/ o/e/g/x.txt", "*", "!e/g"},
        {"d*", "o/", "*"},
        {"d*/e", "o/ o/b.md", "*.txt", "g"},
        {"*.txt", "", "*.txt"},
        {"d/e/*", "o/ o/b.md o/x.txt", "a.txt"},
        {".", "o/ o/link o/top.txt", "d", "d2", "#no comment"},
    };

    check_cases(false, ARRAY_SIZE(cases), cases);
}

TEST(parent_folders_keep_their_attributes)
{
    struct stat st;

    fresh();
    CHECK(dir_make_all(top, "to/o/d", 0755, &err) >= 0);
    CHECK(fchownat(top, "to/o/d", 7, 7, 0) == 0 || geteuid() != 0);
    CHECK(fchmodat(top, "context/d", 0711, 0) == 0);
    CHECK(copy("d/f/c.txt", "/o", true, NULL) >= 0);
    CHECK(fstatat(top, "to/o/d/f", &st, 0) == 0 && (st.st_mode & 07777) == 0700);
    CHECK(fstatat(top, "to/o/d", &st, 0) == 0 && (st.st_mode & 07777) == 0711);
    CHECK(st.st_uid == 7 || geteuid() != 0);
    CHECK(fstatat(top, "to/o/d/f/c.txt", &st, 0) == 0 && S_ISREG(st.st_mode));
}

TEST(a_plain_source_must_exist)
{
    char *const bad[] = {(char *)"a[", NULL};
    _cleanup_free_ char *found = NULL;

    fresh();
    CHECK(copy("d/none", "/o/", true, NULL) == -ERR_NOT_FOUND);
    err_done(&err);
    err = (struct err)ERR_INIT;
    CHECK(copy("d/e/./none", "/o/", true, NULL) == -ERR_NOT_FOUND);
    err_done(&err);
    err = (struct err)ERR_INIT;
    CHECK(copy("none/./*", "/o/", true, NULL) == -ERR_NOT_FOUND);
    err_done(&err);
    err = (struct err)ERR_INIT;
    CHECK(copy("d", "/o/", false, bad) == -ERR_INVALID);
    found = made();
    CHECK_STR(found, "");
}

/* ---- keys ---- */

static void key_of(bool parents, const char *source, const char *exclude,
                   char ret[static DIGEST_MAX])
{
    char *sources[] = {(char *)source, NULL}, *excludes[] = {(char *)exclude, NULL};
    const struct build_plan_step s = {
        .sources = sources, .parents = parents, .exclude = exclude ? excludes : NULL};
    struct cache_key k;

    cache_key_begin(&k, "parent");
    if (cache_key_sources(&k, top, &s, &err) < 0)
        abort();
    cache_key_end(&k, ret);
}

static bool changes(bool parents, const char *source, const char *exclude, const char *path)
{
    char before[DIGEST_MAX], after[DIGEST_MAX];

    fresh();
    key_of(parents, source, exclude, before);
    put(path, "new");
    key_of(parents, source, exclude, after);
    return !STREQ(before, after);
}

TEST(keys_depend_only_on_taken_files)
{
    char way[DIGEST_MAX], other[DIGEST_MAX];

    CHECK(changes(false, "d", "e", "context/d/f/c.txt"));
    CHECK(!changes(false, "d", "e", "context/d/e/a.txt"));
    CHECK(!changes(false, "d/e/*", "a.txt", "context/d/e/a.txt"));
    CHECK(changes(false, "d/e/*", "a.txt", "context/d/e/b.md"));
    CHECK(changes(true, "d/**/*.txt", NULL, "context/d/f/c.txt"));
    CHECK(!changes(true, "d/**/*.txt", NULL, "context/d/e/b.md"));
    CHECK(!changes(true, "d/**/*.txt", NULL, "context/d/new/b.md"));
    CHECK(!changes(true, "d/**/*.txt", "f", "context/top.txt"));
    fresh();
    key_of(true, "d/f/c.txt", NULL, way);
    CHECK(fchmodat(top, "context/d", 0711, 0) == 0);
    key_of(true, "d/f/c.txt", NULL, other);
    CHECK(!STREQ(way, other)); /* the parent folder has another mode */
    key_of(true, "d/./f/c.txt", NULL, way);
    CHECK(!STREQ(way, other));
}

__attribute__((destructor)) static void clean_up(void)
{
    fd_close(top);
    rmtree(AT_FDCWD, folder, NULL);
    err_done(&err);
}
