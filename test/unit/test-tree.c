#include "lib/base/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "tap.h"

enum { ARCHIVE_MAX = 64 << 20 };

/* ---- an archive in memory, and a folder to work in ---- */

static struct buf archive = {.max = ARCHIVE_MAX};
static size_t at;
static struct tree_stats stats;
static struct err err;
static char dir[] = "/tmp/test-tree-XXXXXX";

static int put(void *arg _unused_, const void *data, size_t len)
{
    return buf_append(&archive, data, len) < 0 ? -ENOSPC : 0;
}

static ssize_t get(void *arg _unused_, void *data, size_t len)
{
    size_t n = MIN(MIN(len, archive.len - at), (size_t)7001);

    memcpy(data, buf_data(&archive) + at, n);
    at += n;
    return (ssize_t)n;
}

static void start(void)
{
    if (strstr(dir, "XXXXXX") && (!mkdtemp(dir) || chdir(dir) < 0))
        abort();
    buf_clear(&archive);
    err_done(&err);
    err = (struct err)ERR_INIT;
    stats = (struct tree_stats){0};
    umask(022);
}

__attribute__((destructor)) static void clean(void)
{
    pid_t pid;

    if (strstr(dir, "XXXXXX"))
        return;
    pid = fork();
    if (pid == 0)
        execl("/bin/sh", "sh", "-c", "chmod -R u+rwx \"$0\"; exec rm -rf \"$0\"", dir,
              (char *)NULL);
    buf_done(&archive);
    err_done(&err);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0 || fchmod(fd, mode) < 0)
        abort();
}

static bool holds(const char *path, const char *text)
{
    _cleanup_free_ char *got = NULL;

    return file_read(AT_FDCWD, path, 1 << 20, &got, NULL, NULL) >= 0 && strcmp(got, text) == 0;
}

static mode_t mode_of(const char *path)
{
    struct stat st;

    return lstat(path, &st) < 0 ? 0 : st.st_mode & 07777;
}

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static int out(const char *path)
{
    buf_clear(&archive);
    return tree_to_tar(path, put, NULL, &stats, &err);
}

static int in_by(const char *path, const struct tree_rules *rules)
{
    at = 0;
    stats = (struct tree_stats){0};
    err_done(&err);
    err = (struct err)ERR_INIT;
    return tree_from_tar(path, rules, get, NULL, &stats, &err);
}

static int in(const char *path)
{
    return in_by(path, NULL);
}

/* ---- made-up archives ---- */

struct item {
    enum tar_type type;
    const char *path, *text; /* a file's data or a link's target */
    mode_t mode;
};

static void compose(const struct item *items, size_t n)
{
    struct tar_entry *e = xnew0(struct tar_entry);
    struct tar_writer w;

    buf_clear(&archive);
    tar_writer_init(&w, put, NULL);
    for (size_t i = 0; i < n; i++) {
        const char *text = items[i].text ? items[i].text : "";

        e->type = items[i].type;
        e->mode = items[i].mode ? items[i].mode : 0644;
        e->size = e->type == TAR_FILE ? strlen(text) : 0;
        e->mtime = 1000000000;
        snprintf(e->path, sizeof(e->path), "%s", items[i].path);
        snprintf(e->link, sizeof(e->link), "%s", e->type == TAR_FILE ? "" : text);
        if (tar_put(&w, e, NULL) < 0 || (e->size && tar_write(&w, text, e->size, NULL) < 0))
            abort();
    }
    if (tar_finish(&w, NULL) < 0)
        abort();
    free(e);
}
#define COMPOSE(...)                                                                               \
    compose((const struct item[]){__VA_ARGS__},                                                    \
            sizeof((const struct item[]){__VA_ARGS__}) / sizeof(struct item))

/* ---- tests ---- */

static void make_sample(void)
{
    char name[256];

    mkdir("src", 0750);
    mkdir("src/sub", 0700);
    mkdir("src/empty", 0755);
    write_file("src/sub/f", "content", 0640);
    write_file("src/zero", "", 0644);
    write_file("src/suid", "x", 04755);
    (void)!symlink("sub/f", "src/link");
    (void)!symlink("/nowhere/at/all", "src/dangling");
    memset(name, 'n', 255);
    name[255] = '\0';
    (void)!chdir("src/sub");
    write_file(name, "long", 0600);
    (void)!chdir("../..");
    (void)!mkfifo("src/fifo", 0600);
    chmod("src/sub", 0500);
}

TEST(a_tree_there_and_back)
{
    char name[300], target[64] = "";
    struct stat st;

    start();
    make_sample();
    mkdir("into", 0755);
    CHECK(out("src") == 0);
    CHECK(stats.entries == 9 && stats.bytes == 7 + 1 + 4 && stats.skipped == 1);
    CHECK(in("into") == 0);
    CHECK(stats.entries == 9 && stats.bytes == 12 && stats.skipped == 1); /* from the archive */
    CHECK(holds("into/src/sub/f", "content") && mode_of("into/src/sub/f") == 0640);
    CHECK(mode_of("into/src") == 0750 && mode_of("into/src/sub") == 0500);
    CHECK(mode_of("into/src/suid") == 0755);
    CHECK(holds("into/src/zero", "") && mode_of("into/src/empty") == 0755);
    CHECK(readlink("into/src/dangling", target, sizeof(target) - 1) > 0);
    CHECK_STR(target, "/nowhere/at/all");
    snprintf(name, sizeof(name), "into/src/sub/");
    memset(name + 13, 'n', 255);
    name[268] = '\0';
    CHECK(holds(name, "long"));
    CHECK(!exists("into/src/fifo"));
    CHECK(stat("into/src/sub", &st) == 0);
}

TEST(times_are_kept)
{
    struct stat st;

    start();
    COMPOSE({TAR_DIR, "timed", NULL, 0755}, {TAR_FILE, "timed/f", "1", 0}, );
    CHECK(in(".") == 0);
    CHECK(stat("timed", &st) == 0 && st.st_mtime == 1000000000);
    CHECK(stat("timed/f", &st) == 0 && st.st_mtime == 1000000000);
}

TEST(an_absent_destination_is_the_new_name)
{
    start();
    COMPOSE({TAR_DIR, "a", NULL, 0755}, {TAR_FILE, "a/f", "1", 0}, );
    CHECK(in("renamed") == 0);
    CHECK(holds("renamed/f", "1") && !exists("a"));
    COMPOSE({TAR_FILE, "f", "2", 0}, );
    CHECK(in("renamed/f") == 0); /* an existing file is replaced */
    CHECK(holds("renamed/f", "2"));
    CHECK(in("absent/f") == -ERR_NOT_FOUND);
    CHECK(in("absent/") == -ERR_NOT_FOUND);
    COMPOSE({TAR_FILE, "f", "2", 0}, {TAR_FILE, "g", "2", 0}, );
    CHECK(in("two") == -ERR_NOT_FOUND && strstr(err.msg, "several top entries"));
    COMPOSE({TAR_DIR, ".", NULL, 0755}, {TAR_FILE, "./p/q", "3", 0}, {TAR_FILE, "./r", "4", 0}, );
    CHECK(in("dotted") == 0);
    CHECK(holds("dotted/p/q", "3") && holds("dotted/r", "4"));
}

TEST(kinds_that_do_not_match)
{
    start();
    write_file("plain", "p", 0644);
    mkdir("folder", 0711);
    COMPOSE({TAR_DIR, "plain", NULL, 0755}, );
    CHECK(in(".") == -ERR_CONFLICT && strstr(err.msg, "'plain'"));
    COMPOSE({TAR_FILE, "folder", "x", 0}, );
    CHECK(in(".") == -ERR_CONFLICT);
    COMPOSE({TAR_DIR, "folder", NULL, 0700}, );
    CHECK(in(".") == 0 && mode_of("folder") == 0711); /* an existing one stays as it is */
}

static bool is_clean(const char *path)
{
    _cleanup_closedir_ DIR *d = opendir(path);
    const struct dirent *e;

    while (d && (e = readdir(d)))
        if (strstr(e->d_name, ".tmp"))
            return false;
    return d;
}

TEST(hostile_archives_stay_inside)
{
    static const struct item bad[][3] = {
        {{TAR_FILE, "../escaped", "x", 0}},
        {{TAR_FILE, "a/../../escaped", "x", 0}},
        {{TAR_SYMLINK, "l", "..", 0}, {TAR_FILE, "l/escaped", "x", 0}},
        {{TAR_SYMLINK, "m", "/tmp", 0}, {TAR_FILE, "m/escaped", "x", 0}},
        {{TAR_SYMLINK, "n", ".", 0}, {TAR_DIR, "n", NULL, 0777}, {TAR_FILE, "n/x", "x", 0}},
        {{TAR_HARDLINK, "h", "../secret", 0}},
        {{TAR_HARDLINK, "h", "/etc/passwd", 0}},
        {{TAR_SYMLINK, "s", "../secret", 0}, {TAR_HARDLINK, "h2", "s", 0}},
        {{TAR_FILE, ".", "x", 0}},
        {{TAR_FILE, "", "x", 0}},
    };

    start();
    mkdir("jail", 0755);
    write_file("secret", "secret", 0600);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        size_t n = 1;

        while (n < 3 && bad[i][n].path)
            n++;
        compose(bad[i], n);
        CHECK(in("jail") < 0);
        CHECK(err.msg && !exists("escaped") && !exists("/tmp/escaped"));
        CHECK(holds("secret", "secret") && is_clean("jail"));
    }
}

/* Before anything is opened: the kernel's answer would be another. */
TEST(names_that_walk_are_refused_as_such)
{
    start();
    mkdir("walk", 0755);
    COMPOSE({TAR_FILE, "a/../../walked", "x", 0}, );
    CHECK(in("walk") == -ERR_DENIED && strstr(err.msg, "points outside its folder"));
    CHECK(!exists("walked") && !exists("walk/a"));
}

TEST(set_id_bits_are_dropped)
{
    start();
    COMPOSE({TAR_FILE, "privileged", "x", 06755}, );
    CHECK(in(".") == 0 && mode_of("privileged") == 0755);
}

TEST(an_absolute_name_lands_below)
{
    start();
    COMPOSE({TAR_FILE, "/abs//./name", "x", 0}, );
    CHECK(in(".") == 0 && holds("abs/name", "x"));
}

TEST(a_link_is_replaced_and_not_followed)
{
    start();
    write_file("victim", "intact", 0600);
    (void)!symlink("victim", "alias");
    COMPOSE({TAR_FILE, "alias", "new", 0}, );
    CHECK(in(".") == 0);
    CHECK(holds("victim", "intact") && holds("alias", "new"));
}

TEST(hard_links_twice)
{
    struct stat st;

    start();
    mkdir("hl", 0755);
    COMPOSE({TAR_FILE, "one", "x", 0}, {TAR_HARDLINK, "two", "one", 0}, );
    for (int i = 0; i < 2; i++) {
        CHECK(in("hl") == 0);
        CHECK(stat("hl/two", &st) == 0 && st.st_nlink == 2 && is_clean("hl"));
    }
}

TEST(cut_and_garbage)
{
    size_t len;

    start();
    COMPOSE({TAR_DIR, "cut", NULL, 0755}, {TAR_FILE, "cut/f", "0123456789", 0}, );
    len = archive.len;
    for (size_t n = 0; n < len - 1024; n += 64) {
        buf_truncate(&archive, len);
        archive.len = n;
        CHECK(in(".") == -ERR_INVALID);
        archive.len = len;
    }
    memset(buf_data(&archive), 'g', len);
    CHECK(in(".") == -ERR_INVALID);
}

TEST(devices_are_counted_and_left_out)
{
    start();
    COMPOSE({TAR_FILE, "dev", "", 0}, );
    {
        /* 'b' instead of '0', and the checksum with it */
        char *h = buf_data(&archive);
        unsigned sum = 0;

        h[156] = '4';
        memset(h + 148, ' ', 8);
        for (int i = 0; i < 512; i++)
            sum += (unsigned char)h[i];
        snprintf(h + 148, 8, "%06o", sum);
    }
    CHECK(in(".") == 0 && stats.skipped == 1 && stats.entries == 0 && !exists("dev"));
}

/* ---- written through, as a program of the user would ---- */

static const struct tree_rules through = {.through = true};

static ino_t inode_of(const char *path)
{
    struct stat st;

    return stat(path, &st) < 0 ? 0 : st.st_ino;
}

TEST(an_existing_file_is_written_through)
{
    ino_t before;

    start();
    write_file("kept", "the old and longer content", 0640);
    (void)!link("kept", "second");
    before = inode_of("kept");
    COMPOSE({TAR_FILE, "kept", "new", 0755}, {TAR_FILE, "fresh", "1", 0751}, );
    CHECK(in_by(".", &through) == 0);
    CHECK(inode_of("kept") == before && mode_of("kept") == 0640 && holds("second", "new"));
    CHECK(mode_of("fresh") == 0751 && holds("fresh", "1") && is_clean("."));
}

TEST(a_link_is_followed_but_not_one_of_the_archive)
{
    start();
    mkdir("real", 0755);
    write_file("real/victim", "old", 0600);
    (void)!symlink("real/victim", "nickname");
    (void)!symlink("real/made", "dangling");
    (void)!symlink("loop", "loop");
    COMPOSE({TAR_FILE, "nickname", "new", 0}, {TAR_FILE, "dangling", "made", 0}, );
    CHECK(in_by(".", &through) == 0);
    CHECK(holds("real/victim", "new") && holds("real/made", "made"));
    COMPOSE({TAR_SYMLINK, "mine", "real/victim", 0}, {TAR_FILE, "mine", "bad", 0}, );
    CHECK(in_by(".", &through) == 0);
    CHECK(holds("real/victim", "new") && holds("mine", "bad"));
    COMPOSE({TAR_FILE, "loop", "x", 0}, );
    CHECK(in_by(".", &through) == -ERR_DENIED && err.errnum == ELOOP);
    (void)!symlink("real", "shortcut");
    COMPOSE({TAR_FILE, "shortcut/f", "x", 0}, );
    CHECK(in_by(".", &through) == -ERR_DENIED && !exists("real/f") && err.hint);
    COMPOSE({TAR_FILE, "f", "x", 0}, );
    CHECK(in_by("shortcut", &through) == 0 &&
          holds("real/f", "x")); /* the path itself is followed */
}

TEST(a_link_in_the_place_of_the_destination_is_not_followed)
{
    start();
    mkdir("prey", 0755);
    (void)!symlink("prey", "planted");
    COMPOSE({TAR_FILE, "f", "x", 0}, );
    CHECK(in("planted") == -ERR_CONFLICT && in("planted/") == -ERR_CONFLICT);
    CHECK(strstr(err.msg, "'planted' is a link to a folder") && !exists("prey/f"));
    (void)!symlink("prey/g", "named");
    CHECK(in("named") == 0 && holds("named", "x") && !exists("prey/g"));
    CHECK(in("planted/.") == 0 && holds("prey/f", "x"));
}

TEST(only_regular_files_are_written_through)
{
    start();
    (void)!mkfifo("pipe", 0600);
    mkdir("taken", 0755);
    COMPOSE({TAR_FILE, "pipe", "x", 0}, );
    CHECK(in_by(".", &through) == -ERR_CONFLICT && strstr(err.msg, "'pipe' is not a regular file"));
    COMPOSE({TAR_FILE, "null", "x", 0}, );
    CHECK(in_by("/dev/null", &through) == -ERR_CONFLICT && strstr(err.msg, "'/dev/null'"));
    COMPOSE({TAR_FILE, "taken", "x", 0}, );
    CHECK(in_by(".", &through) == -ERR_CONFLICT && err.errnum == EISDIR);
}

TEST(a_mode_for_files_and_missing_parents)
{
    const struct tree_rules rules = {
        .through = true, .parents = true, .has_mode = true, .mode = 0604};
    struct tree_rules atomic = rules;

    start();
    write_file("present", "old", 0777);
    COMPOSE({TAR_DIR, "d", NULL, 0711}, {TAR_FILE, "d/f", "1", 0755}, );
    CHECK(in_by("new/and/deep/", &rules) == 0);
    CHECK(mode_of("new/and/deep/d") == 0711 && mode_of("new/and/deep/d/f") == 0604);
    COMPOSE({TAR_FILE, "f", "2", 0}, );
    CHECK(in_by("present", &rules) == 0 && mode_of("present") == 0604 && holds("present", "2"));
    atomic.through = false;
    CHECK(in_by("other/place", &atomic) == 0 && mode_of("other/place") == 0604);
    CHECK(in_by("present/below", &rules) == -ERR_CONFLICT && err.errnum == ENOTDIR);
}

TEST(a_missing_folder_is_reported_with_its_path)
{
    start();
    mkdir("top", 0755);
    write_file("top/file", "1", 0644);
    COMPOSE({TAR_FILE, "f", "1", 0}, );
    CHECK(in_by("top/nix/", &through) == -ERR_NOT_FOUND && strstr(err.msg, "'top/nix/'"));
    CHECK(err.hint && strstr(err.hint, "parents"));
    CHECK(in_by("top/nix/g", &through) == -ERR_NOT_FOUND && strstr(err.msg, "'top/nix'"));
    COMPOSE({TAR_FILE, "file/f", "1", 0}, );
    CHECK(in_by("top", &through) == -ERR_CONFLICT && strstr(err.msg, "'top/file'"));
    CHECK(!exists("top/nix"));
}

TEST(a_part_of_a_file_is_reported_as_a_part)
{
    static const char text[] = "0123456789";

    start();
    write_file("part", "old", 0644);
    COMPOSE({TAR_FILE, "part", text, 0}, );
    buf_truncate(&archive, 512 + 4);
    CHECK(in_by(".", &through) < 0 && strstr(err.msg, "'part' is incomplete ("));
    CHECK(!holds("part", "old"));
    write_file("whole", "old", 0644);
    COMPOSE({TAR_FILE, "whole", text, 0}, );
    buf_truncate(&archive, 512 + 4);
    CHECK(in(".") < 0 && holds("whole", "old") && is_clean("."));
}

TEST(owners_are_given)
{
    const struct tree_rules rules = {
        .through = true, .parents = true, .has_owner = true, .uid = 12, .gid = 34};
    static const char *const names[] = {"own", "own/d", "own/d/f", "own/l"};
    struct tree_rules atomic = rules;
    struct stat st;

    if (geteuid() != 0)
        SKIP("not root");
    start();
    COMPOSE({TAR_DIR, "d", NULL, 0755}, {TAR_FILE, "d/f", "1", 0}, {TAR_SYMLINK, "l", "d/f", 0}, );
    for (int i = 0; i < 2; i++) {
        CHECK(in_by("own/", i ? &atomic : &rules) == 0);
        for (size_t n = 0; n < ARRAY_SIZE(names); n++)
            CHECK(lstat(names[n], &st) == 0 && st.st_uid == 12 && st.st_gid == 34);
        atomic.through = false;
        atomic.uid = rules.uid;
    }
}

TEST(a_file_that_cannot_be_read_is_reported_with_its_path)
{
    bool root = geteuid() == 0;

    start();
    mkdir("a", 0755);
    mkdir("a/b", 0755);
    mkdir("a/b/c", 0755);
    write_file("a/b/c/f", "1", 0);
    CHECK(!root || (chmod(".", 0755) == 0 && seteuid(65534) == 0));
    CHECK(out("a/b") == -ERR_DENIED);
    CHECK(!root || seteuid(0) == 0);
    CHECK(err.msg && strstr(err.msg, "open 'a/b/c/f'"));
}

TEST(what_cannot_be_read)
{
    start();
    CHECK(out("no-such") == -ERR_NOT_FOUND && archive.len == 0);
    CHECK(strstr(err.msg, "'no-such'"));
}

TEST(top_names)
{
    start();
    mkdir("top", 0755);
    write_file("top/f", "1", 0644);
    (void)!symlink("top", "toplink");
    mkdir("dst", 0755);
    CHECK(out("top/.") == 0 && in("dst") == 0 && holds("dst/f", "1"));
    CHECK(out("top/../top/") == 0 && in("dst") == 0 && holds("dst/top/f", "1"));
    CHECK(out("toplink") == 0 && in("dst") == 0 && exists("dst/toplink"));
    CHECK(!S_ISDIR(mode_of("dst/toplink")));
    unlink("dst/toplink");
    CHECK(out("toplink/") == 0 && in("dst") == 0 && holds("dst/toplink/f", "1"));
    CHECK(out("/proc/self/comm") == 0 && stats.bytes > 0); /* says that it is empty */
}
