#include "daemon/engine/native/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/engine/native/program.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "lib/os/quota.h"

/* Inode of the initial user namespace: constant since linux 3.8, USER_NS_INIT_INO of nsfs.h now. */
#define FIRST_USERNS_INO 0xEFFFFFFDU

enum {
    BYTES_PER_INODE = 16384, /* the default of mke2fs */
    INODES_MIN = 4096,       /* small disks hold many small files */
    INODES_MAX = 1 << 30,
    JOURNAL_MIB = 4, /* the minimum: the journal takes space from the sandbox */
};

bool disk_possible(const char **why)
{
    _cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    const char *missing = NULL;
    struct stat st;

    /* A block device can be mounted only from the initial user namespace, whatever our uid. */
    if (stat("/proc/self/ns/user", &st) < 0 || st.st_ino != FIRST_USERNS_INO)
        missing = "disk images can be mounted only from the initial user namespace";
    else if (control < 0)
        missing = "'/dev/loop-control' cannot be used";
    else if (!program_find("mkfs.ext4"))
        missing = "the program 'mkfs.ext4' is not installed";
    if (why)
        *why = missing;
    return !missing;
}

uint64_t disk_files(uint64_t size)
{
    uint64_t n = size / BYTES_PER_INODE;

    return size ? MIN(MAX(n, (uint64_t)INODES_MIN), (uint64_t)INODES_MAX) : 0;
}

bool disk_is_held(bool quota, int dir)
{
    return (quota && quota_assigned(dir)) ||
           faccessat(dir, DISK_IMAGE, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int native_disk_make_sparse(const char *path, uint64_t size, struct err *err)
{
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    char text[FORMAT_MAX];

    if (fd < 0)
        return err_sys(err, errno, "make '%s'", path);
    if (ftruncate(fd, (off_t)size) == 0)
        return 0;
    if (errno != EFBIG)
        return err_sys(err, errno, "size '%s'", path);
    err_set(err, ERR_LIMIT, "a disk of %s is more than the file system can hold in one file",
            format_size(size, text));
    return err_hint(err, "Ask for a smaller --disk.");
}

/*
 * Tables and journal are not zeroed: a new sparse file reads as zeros. The file system has a
 * journal, so that /home survives a crash of the machine, and no blocks reserved for root, as root
 * inside is not root.
 */
static int native_disk_format(const char *path, uint64_t size, const struct deadline *by,
                              struct err *err)
{
    char inodes[24], journal[24];
    const char *const argv[] = {"mkfs.ext4",
                                "-q",
                                "-F",
                                "-b",
                                "4096",
                                "-I",
                                "256",
                                "-m",
                                "0",
                                "-N",
                                inodes,
                                "-J",
                                journal,
                                "-O",
                                "^resize_inode",
                                "-E",
                                "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
                                path,
                                NULL};

    snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)disk_files(size));
    snprintf(journal, sizeof(journal), "size=%d", JOURNAL_MIB);
    return program_run(argv, NULL, by, NULL, err);
}

static int native_disk_make_image(const char *tmp, const char *path, uint64_t size,
                                  const struct deadline *by, struct err *err)
{
    int r = native_disk_make_sparse(tmp, size, err);

    if (r < 0)
        return r;
    r = native_disk_format(tmp, size, by, err);
    if (r < 0)
        return r;
    return rename(tmp, path) < 0 ? err_sys(err, errno, "rename '%s'", tmp) : 0;
}

int disk_make(const char *folder, uint64_t size, const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/" DISK_IMAGE, folder);
    _cleanup_free_ char *tmp = xasprintf("%s.new", path);

    if (access(path, F_OK) == 0 || native_disk_make_image(tmp, path, size, by, err) >= 0)
        return 0;
    unlink(tmp);
    return err_wrap(err, "make the sandbox's disk");
}
