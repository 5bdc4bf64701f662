/* The shared base of package caches on disk: its generations, the sandboxes that use them, and the
 * trees in them. */
#include "daemon/engine/native/cache-base.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/engine/native/cache-tree.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/tar.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "proto/plan.h"
#include "tap.h"

#define RUN_A "0123456789abcdef"
#define RUN_B "fedcba9876543210"

/* A base in a folder of its own, and the folder of runs. */
struct place {
    char dir[32];
    int dirfd, runs;
    struct cache_base base;
};

static bool place_open(struct place *p)
{
    _cleanup_free_ char *base = NULL;

    *p = (struct place){.dir = "/tmp/ripcord-base-XXXXXX", .dirfd = -1, .runs = -1};
    cache_base_init(&p->base);
    if (!mkdtemp(p->dir))
        return false;
    base = xasprintf("%s/base", p->dir);
    p->dirfd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (mkdirat(p->dirfd, "runs", 0700) < 0)
        return false;
    p->runs = openat(p->dirfd, "runs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return cache_base_open(&p->base, base, geteuid() == 0, NULL) == 0;
}

static void place_done(struct place *p)
{
    cache_base_done(&p->base);
    p->runs = fd_close(p->runs);
    p->dirfd = fd_close(p->dirfd);
    rmtree(AT_FDCWD, p->dir, NULL);
}
#define _cleanup_place_ _cleanup_(place_done)

static bool there(const struct place *p, const char *path, struct stat *st)
{
    struct stat other;

    return fstatat(p->dirfd, path, st ? st : &other, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool put(int dirfd, const char *path, const char *text)
{
    _cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    return fd >= 0 && fd_write_all(fd, text, strlen(text)) == 0;
}

/* ---- archives ---- */

static int to_buf(void *arg, const void *data, size_t len)
{
    return buf_append(arg, data, len) < 0 ? -ENOBUFS : 0;
}

/* One folder `top` with one file of that name and contents; as a descriptor, whole or cut off. */
static int archive(const char *top, const char *file, const char *text, bool whole)
{
    _cleanup_buf_ struct buf tar = BUF_INIT(64 << 10);
    struct tar_entry dir = {.type = TAR_DIR, .mode = 0700, .mtime = 1700000000},
                     f = {.type = TAR_FILE, .mode = 0400};
    struct tar_writer w;
    int fd = memfd_create("archive", MFD_CLOEXEC);

    snprintf(dir.path, sizeof(dir.path), "%s", top);
    snprintf(f.path, sizeof(f.path), "%s/%s", top, file);
    f.size = strlen(text);
    tar_writer_init(&w, to_buf, &tar);
    if (tar_put(&w, &dir, NULL) < 0 || tar_put(&w, &f, NULL) < 0 ||
        tar_write(&w, text, strlen(text), NULL) < 0 || (whole && tar_finish(&w, NULL) < 0) ||
        fd_write_all(fd, buf_data(&tar), tar.len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return fd_close(fd);
    return fd;
}

static int publish(struct place *p, const char *tool, const char *file, struct err *err)
{
    static char text[16 << 10]; /* too long to lie in the inode */
    _cleanup_close_ int fd = -1;

    memset(text, 'x', sizeof(text) - 1);
    fd = archive(tool, file, text, true);

    return cache_base_publish(&p->base, tool, fd, err);
}

/* The generation that a new run gets. */
static char *take(struct place *p, const char *id, bool empty)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_close_ int run = -1;

    if (mkdirat(p->runs, id, 0700) < 0)
        return NULL;
    run = openat(p->runs, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return cache_base_take(&p->base, empty, run, &path, NULL) < 0 ? NULL
                                                                  : xstrdup(strrchr(path, '/') + 1);
}

/* ---- the base ---- */

TEST(the_first_generation_is_empty)
{
    _cleanup_place_ struct place p;
    _cleanup_free_ char *name = NULL;
    struct stat st;

    CHECK(place_open(&p));
    CHECK(there(&p, "base/0/cache/pip", &st) && S_ISDIR(st.st_mode));
    CHECK((st.st_mode & 07777) == 0755);
    CHECK(geteuid() != 0 || st.st_uid == PLAN_AGENT_ID);
    name = take(&p, RUN_A, false);
    CHECK_STR(name, "0");
    CHECK(!there(&p, "runs/" RUN_A "/" CACHE_BASE_LINK, NULL));
}

TEST(a_new_generation_keeps_the_other_tools)
{
    _cleanup_place_ struct place p;
    struct stat before, after;

    CHECK(place_open(&p));
    CHECK(publish(&p, "pip", "a", NULL) == 0);
    CHECK(publish(&p, "npm", "b", NULL) == 0);
    CHECK(there(&p, "base/1/cache/pip/a", &before) && there(&p, "base/2/cache/pip/a", &after));
    CHECK(before.st_ino == after.st_ino);
    CHECK(there(&p, "base/2/cache/npm/b", NULL) && !there(&p, "base/1/cache/npm/b", NULL));
    CHECK(there(&p, "base/2/cache/uv", NULL));
    /* A new generation replaces the files of the tool that it fills. */
    CHECK(publish(&p, "pip", "c", NULL) == 0);
    CHECK(there(&p, "base/3/cache/pip/c", NULL) && !there(&p, "base/3/cache/pip/a", NULL));
    CHECK(!there(&p, "base/3/new", NULL));
}

TEST(published_files_are_usable_for_all_users)
{
    _cleanup_place_ struct place p;
    struct stat st;

    CHECK(place_open(&p));
    CHECK(publish(&p, "pip", "a", NULL) == 0);
    CHECK(there(&p, "base/1/cache/pip/a", &st) && (st.st_mode & 07777) == 0666);
    CHECK(geteuid() != 0 || st.st_uid == PLAN_AGENT_ID);
    CHECK(there(&p, "base/1/cache/pip", &st) && (st.st_mode & 07777) == 0777);
}

TEST(an_invalid_archive_changes_nothing)
{
    _cleanup_place_ struct place p;
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_close_ int other = -1, cut = -1;
    char name[8] = "";

    CHECK(place_open(&p));
    CHECK(publish(&p, "pip", "a", NULL) == 0);
    other = archive("npm", "x", "text", true);
    CHECK(cache_base_publish(&p.base, "pip", other, &err) < 0);
    CHECK(strstr(err.msg, "make a new base of the package caches"));
    err_done(&err);
    cut = archive("pip", "x", "text", false);
    CHECK(cache_base_publish(&p.base, "pip", cut, &err) < 0);
    CHECK(there(&p, "base/1/cache/pip/a", NULL) && !there(&p, "base/2", NULL));
    CHECK(!there(&p, "base/tmp-2", NULL));
    CHECK(readlinkat(p.dirfd, "base/current", name, sizeof(name) - 1) == 1);
    CHECK_STR(name, "1");
}

TEST(a_run_keeps_its_generation)
{
    _cleanup_place_ struct place p;
    _cleanup_free_ char *a = NULL, *b = NULL;

    CHECK(place_open(&p));
    CHECK(publish(&p, "pip", "a", NULL) == 0);
    a = take(&p, RUN_A, false);
    CHECK_STR(a, "1");
    CHECK(!cache_base_is_old(&p.base, p.runs, RUN_A));
    CHECK(publish(&p, "pip", "b", NULL) == 0);
    CHECK(publish(&p, "pip", "c", NULL) == 0);
    CHECK(cache_base_is_old(&p.base, p.runs, RUN_A));
    b = take(&p, RUN_B, true);
    CHECK_STR(b, "0");
    CHECK(!cache_base_is_old(&p.base, p.runs, RUN_B));
    CHECK(mkdirat(p.dirfd, "base/tmp-9", 0700) == 0);
    cache_base_sweep(&p.base, p.runs);
    CHECK(there(&p, "base/1", NULL) && !there(&p, "base/2", NULL) && there(&p, "base/3", NULL));
    CHECK(there(&p, "base/0", NULL) && !there(&p, "base/tmp-9", NULL));
    CHECK(rmtree(p.runs, RUN_A, NULL) >= 0);
    cache_base_sweep(&p.base, p.runs);
    CHECK(!there(&p, "base/1", NULL));
}

TEST(another_daemon_finds_the_base)
{
    _cleanup_place_ struct place p;
    _cleanup_free_ char *dir = NULL, *name = NULL;

    CHECK(place_open(&p));
    dir = xasprintf("%s/base", p.dir);
    CHECK(publish(&p, "pip", "a", NULL) == 0);
    /* Killed between its two steps: the next number is taken, and nothing leads there. */
    CHECK(mkdirat(p.dirfd, "base/7", 0700) == 0 &&
          symlinkat("7", p.dirfd, "base/current.new") == 0);
    CHECK(mkdirat(p.dirfd, "base/tmp-8", 0700) == 0);
    CHECK(cache_base_open(&p.base, dir, geteuid() == 0, NULL) == 0);
    name = take(&p, RUN_A, false);
    CHECK_STR(name, "1");
    CHECK(publish(&p, "pip", "b", NULL) == 0);
    CHECK(there(&p, "base/8/cache/pip/b", NULL));
}

TEST(a_base_without_its_generation_fails_each_time)
{
    _cleanup_place_ struct place p;
    _cleanup_err_ struct err err = ERR_INIT, again = ERR_INIT;
    _cleanup_free_ char *dir = NULL, *path = NULL;

    CHECK(place_open(&p));
    dir = xasprintf("%s/base", p.dir);
    CHECK(symlinkat("../../etc", p.dirfd, "base/current") == 0);
    CHECK(cache_base_open(&p.base, dir, false, &err) == -ERR_SYSTEM);
    CHECK(strstr(err.msg, "points to a missing generation"));
    CHECK(cache_base_take(&p.base, false, p.runs, &path, &again) < 0 && !path);
    CHECK(strstr(again.msg, "points to a missing generation"));
    CHECK(cache_base_drop(&p.base, NULL, NULL) == 0);
}

TEST(one_tool_or_all_can_be_dropped)
{
    _cleanup_place_ struct place p;
    _cleanup_free_ char *name = NULL;
    uint64_t bytes = 1, made = 0;
    struct deadline by = deadline_in(30 * USEC_PER_SEC);

    CHECK(place_open(&p));
    CHECK(cache_base_drop(&p.base, "pip", NULL) == 0 && !there(&p, "base/1", NULL));
    CHECK(publish(&p, "pip", "a", NULL) == 0 && publish(&p, "npm", "b", NULL) == 0);
    CHECK(cache_base_usage(&p.base, "npm", &by, &bytes, &made, NULL) == 0);
    CHECK(bytes > 0 && made > 0);
    CHECK(cache_base_drop(&p.base, "npm", NULL) == 0);
    CHECK(cache_base_usage(&p.base, "npm", &by, &bytes, &made, NULL) == 0 && bytes == 0);
    CHECK(there(&p, "base/3/cache/pip/a", NULL) && !there(&p, "base/3/cache/npm/b", NULL));
    CHECK(cache_base_drop(&p.base, NULL, NULL) == 0);
    name = take(&p, RUN_A, false);
    CHECK_STR(name, "0");
    cache_base_sweep(&p.base, p.runs);
    CHECK(!there(&p, "base/3", NULL) && there(&p, "base/0", NULL));
}

/* ---- trees ---- */

TEST(a_linked_tree_is_the_same_files_in_new_folders)
{
    _cleanup_place_ struct place p;
    struct stat a, b;
    char to[8] = "";

    CHECK(place_open(&p));
    CHECK(mkdirat(p.dirfd, "from", 0755) == 0 && mkdirat(p.dirfd, "from/sub", 0710) == 0);
    CHECK(put(p.dirfd, "from/sub/file", "x") && symlinkat("/etc", p.dirfd, "from/link") == 0);
    CHECK(cache_tree_link(p.dirfd, "from", "to", NULL) == 0);
    CHECK(there(&p, "from/sub/file", &a) && there(&p, "to/sub/file", &b) && a.st_ino == b.st_ino);
    CHECK(there(&p, "from/sub", &a) && there(&p, "to/sub", &b) && a.st_ino != b.st_ino);
    CHECK((b.st_mode & 07777) == 0710);
    CHECK(readlinkat(p.dirfd, "to/link", to, sizeof(to) - 1) == 4);
    CHECK(cache_tree_link(p.dirfd, "from", "to", NULL) < 0);
}

TEST(opening_up_follows_no_link_and_takes_no_pipe)
{
    _cleanup_place_ struct place p;
    struct stat st;

    CHECK(place_open(&p));
    CHECK(mkdirat(p.dirfd, "t", 0700) == 0 && put(p.dirfd, "t/file", "x") &&
          put(p.dirfd, "outside", "x"));
    CHECK(put(p.dirfd, "t/run", "x") && fchmodat(p.dirfd, "t/run", 04700, 0) == 0);
    CHECK(symlinkat("../outside", p.dirfd, "t/link") == 0);
    CHECK(mkfifoat(p.dirfd, "t/pipe", 0600) == 0);
    CHECK(cache_tree_open_up(p.dirfd, "t", geteuid() == 0, NULL) == 0);
    CHECK(there(&p, "outside", &st) && (st.st_mode & 07777) == 0600 && st.st_uid == geteuid());
    CHECK(there(&p, "t/run", &st) && (st.st_mode & 07777) == 0777);
    CHECK(there(&p, "t/file", &st) && (st.st_mode & 07777) == 0666);
    CHECK(there(&p, "t/link", &st) && !there(&p, "t/pipe", NULL));
    CHECK(geteuid() != 0 || st.st_uid == PLAN_AGENT_ID);
}

TEST(too_deep_is_an_error)
{
    _cleanup_place_ struct place p;
    _cleanup_err_ struct err err = ERR_INIT, linking = ERR_INIT;
    _cleanup_close_ int at = -1;

    CHECK(place_open(&p));
    at = fcntl(p.dirfd, F_DUPFD_CLOEXEC, 3);
    for (int i = 0; i < 120; i++) {
        int next;

        CHECK(mkdirat(at, "d", 0755) == 0);
        next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(next >= 0);
        fd_close(at);
        at = next;
    }
    CHECK(cache_tree_open_up(p.dirfd, "d", false, &err) == -ERR_LIMIT && strstr(err.msg, "deep"));
    CHECK(cache_tree_link(p.dirfd, "d", "e", &linking) == -ERR_LIMIT);
}
