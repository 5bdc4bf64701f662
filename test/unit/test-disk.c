/* A sandbox's disk: making the image, and what is renewed on it. Mounting it needs a real sandbox:
 * see test/integration/test_disk.py. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/engine/native/disk.h"
#include "daemon/engine/native/program.h"
#include "lib/base/fd.h"
#include "lib/base/usage.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "supervisor/shim/disk.h"
#include "tap.h"

static char dir[] = "/tmp/ripcord-disk-XXXXXX";

static bool there(const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", dir, name);
    struct stat st;

    return lstat(path, &st) == 0;
}

TEST(an_image_is_sparse_private_and_made_once)
{
    _cleanup_free_ char *path = NULL;
    struct deadline by = deadline_in(30 * USEC_PER_SEC);
    struct stat st, again;

    CHECK(mkdtemp(dir));
    if (!program_find("mkfs.ext4"))
        return;
    path = xasprintf("%s/" DISK_IMAGE, dir);
    CHECK(disk_make(dir, GIB(1), &by, NULL) == 0);
    CHECK(stat(path, &st) == 0 && st.st_size == (off_t)GIB(1));
    CHECK((st.st_mode & 07777) == 0600);
    CHECK((size_t)st.st_blocks * 512 < MIB(4));
    CHECK(!there(DISK_IMAGE ".new"));
    CHECK(disk_make(dir, GIB(2), &by, NULL) == 0); /* there already: left alone */
    CHECK(stat(path, &again) == 0 && again.st_ino == st.st_ino && again.st_size == st.st_size);
    unlink(path);
}

TEST(a_failure_leaves_nothing)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct deadline by = deadline_in(30 * USEC_PER_SEC);

    CHECK(disk_make(dir, UINT64_C(1) << 62, &by, &err) < 0);
    CHECK(strstr(err.msg, "disk"));
    CHECK(!there(DISK_IMAGE) && !there(DISK_IMAGE ".new"));
    err_done(&err);
    CHECK(disk_make("/nonexistent", MIB(16), &by, &err) == -ERR_SYSTEM);
}

TEST(another_spec_renews_the_root_only)
{
    _cleanup_close_ int fd = -1;

    CHECK(dir_open(AT_FDCWD, dir, &fd, NULL) == 0);
    CHECK(mkdirat(fd, "home", 0700) == 0);
    CHECK(mkdirat(fd, "root", 0700) == 0 && mkdirat(fd, "root/upper", 0700) == 0);
    CHECK(mkdirat(fd, "root/upper/cache", 0700) == 0 && mkdirat(fd, "root/upper/old", 0700) == 0);
    CHECK(disk_renew(fd, "aaaa", NULL) == 0); /* the spec of this root is unknown: it is removed */
    CHECK(!there("root/upper/old") && there("home"));
    CHECK(there("root/upper/cache") && !there("root.next")); /* what tools keep there stays */
    CHECK(mkdirat(fd, "root/upper/old", 0700) == 0);
    CHECK(disk_renew(fd, "aaaa", NULL) == 0 && there("root/upper/old"));
    CHECK(disk_renew(fd, "bbbb", NULL) == 1 && !there("root/upper/old"));
    CHECK(there("home") && there("root/upper/cache"));
    CHECK(disk_drop_old(fd, NULL) == 0 && !there("root.old") && !there("spec.old"));
    CHECK(mkdirat(fd, "root/upper/old", 0700) == 0);
    CHECK(disk_renew(fd, "", NULL) == 1 && !there("root/upper/old"));
    CHECK(mkdirat(fd, "root/upper/old", 0700) == 0);
    CHECK(disk_renew(fd, "", NULL) == 1 && there("root/upper/old"));
    CHECK(disk_drop_old(fd, NULL) == 0 && disk_renew(fd, "", NULL) == 0);
    CHECK(rmtree(AT_FDCWD, dir, NULL) == 0);
}

TEST(a_root_returns_when_the_new_spec_does_not_start)
{
    _cleanup_close_ int fd = -1;

    CHECK(mkdir(dir, 0700) == 0 && dir_open(AT_FDCWD, dir, &fd, NULL) == 0);
    CHECK(mkdirat(fd, "root", 0700) == 0 && mkdirat(fd, "root/upper", 0700) == 0);
    CHECK(disk_renew(fd, "aaaa", NULL) == 0);
    CHECK(mkdirat(fd, "root/upper/mine", 0700) == 0 && mkdirat(fd, "root/upper/cache", 0700) == 0);
    CHECK(disk_renew(fd, "bbbb", NULL) == 1 && !there("root/upper/mine"));
    CHECK(there("root/upper/cache"));
    CHECK(disk_renew(fd, "aaaa", NULL) == 0); /* bbbb was never dropped: aaaa comes back whole */
    CHECK(there("root/upper/mine") && there("root/upper/cache"));
    CHECK(!there("root.old") && !there("spec.old") && !there("root.next"));
    /* interrupted between the two renames */
    CHECK(symlinkat("aaaa", fd, "spec.old") == 0 && renameat(fd, "root", fd, "root.old") == 0);
    CHECK(disk_renew(fd, "aaaa", NULL) == 0 && there("root/upper/mine") && !there("spec.old"));
    CHECK(symlinkat("aaaa", fd, "spec.old") == 0 && renameat(fd, "root", fd, "root.old") == 0);
    CHECK(disk_renew(fd, "bbbb", NULL) == 1 && there("root.old/upper/mine"));
    CHECK(!there("root/upper/mine") && there("root/upper/cache"));
    CHECK(disk_drop_old(fd, NULL) == 0 && !there("root.old"));
    CHECK(rmtree(AT_FDCWD, dir, NULL) == 0);
}

TEST(a_reserve_is_made_once_and_released_only_when_little_is_free)
{
    _cleanup_close_ int fd = -1;

    CHECK(mkdir(dir, 0700) == 0 && dir_open(AT_FDCWD, dir, &fd, NULL) == 0);
    CHECK(disk_release_reserve(fd, NULL) == 0); /* nothing to release */
    CHECK(disk_make_reserve(fd, NULL) == 0 && there("reserve/15"));
    CHECK(disk_release_reserve(fd, NULL) == 0 && there("reserve/15")); /* there is room */
    CHECK(unlinkat(fd, "reserve/15", AT_REMOVEDIR) == 0);
    CHECK(disk_make_reserve(fd, NULL) == 0 && there("reserve/15")); /* an interrupted one */
    CHECK(rmtree(AT_FDCWD, dir, NULL) == 0);
}

TEST(usage_counts_files_once_and_follows_nothing)
{
    char tree[] = "/tmp/ripcord-usage-XXXXXX", block[8192] = {1};
    struct deadline by = deadline_in(30 * USEC_PER_SEC), over = deadline_in(0);
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_close_ int fd = -1;
    uint64_t sum = 0, bigger = 0;

    CHECK(mkdtemp(tree) && dir_open(AT_FDCWD, tree, &fd, NULL) == 0);
    CHECK(mkdirat(fd, "a", 0700) == 0 && symlinkat("/usr", fd, "a/usr") == 0);
    CHECK(usage_add(AT_FDCWD, tree, &by, &sum, NULL) == 0);
    CHECK(sum < MIB(1));
    CHECK(file_replace(fd, "a/f", block, sizeof(block), 0600, false, NULL) == 0);
    CHECK(usage_add(AT_FDCWD, tree, &by, &bigger, NULL) == 0);
    CHECK(bigger >= sum + sizeof(block) && bigger < sum + MIB(1));
    CHECK(usage_add(AT_FDCWD, "/nonexistent", &by, &sum, NULL) == 0);
    CHECK(usage_add(AT_FDCWD, tree, &over, &sum, &err) == -ERR_TIMEOUT);
    CHECK(rmtree(AT_FDCWD, tree, NULL) == 0);
}

TEST(usage_gives_up_on_a_chain_without_end)
{
    char tree[] = "/tmp/ripcord-usage-XXXXXX";
    struct deadline by = deadline_in(30 * USEC_PER_SEC);
    _cleanup_err_ struct err err = ERR_INIT;
    uint64_t sum = 0;
    int fd = -1;

    CHECK(mkdtemp(tree) && dir_open(AT_FDCWD, tree, &fd, NULL) == 0);
    for (int i = 0; i < 300; i++) {
        int next = -1;

        CHECK(mkdirat(fd, "d", 0700) == 0 && dir_open(fd, "d", &next, NULL) == 0);
        fd_close(fd);
        fd = next;
    }
    fd_close(fd);
    CHECK(usage_add(AT_FDCWD, tree, &by, &sum, &err) == -ERR_LIMIT);
    CHECK(rmtree(AT_FDCWD, tree, NULL) == 0);
}
