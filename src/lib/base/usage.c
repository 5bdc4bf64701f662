#include "lib/base/usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"

/* Each level holds a descriptor and a buffer of readdir: no real tree is this deep. */
enum { DEPTH_MAX = 128, BYTES_PER_BLOCK = 512 };

struct usage_walk {
    const struct deadline *by;
    struct disk_usage *sum;
    dev_t dev;
    unsigned depth;
};

static int usage_walk_folder(struct usage_walk *w, int dirfd, const char *name, struct err *err);

static int usage_walk_entry(struct usage_walk *w, int dirfd, const char *name, struct err *err)
{
    struct stat st;

    if (STREQ(name, ".") || STREQ(name, "..") || fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* gone meanwhile */
    if (st.st_dev != w->dev)
        return 0;
    w->sum->bytes += (uint64_t)st.st_blocks * BYTES_PER_BLOCK;
    w->sum->files++;
    return S_ISDIR(st.st_mode) ? usage_walk_folder(w, dirfd, name, err) : 0;
}

static int usage_walk_folder(struct usage_walk *w, int dirfd, const char *name, struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    int fd, r = 0;

    if (w->depth == DEPTH_MAX)
        return err_set(err, ERR_LIMIT, "the tree is more than %d folders deep", DEPTH_MAX);
    if (deadline_passed(w->by))
        return err_set(err, ERR_TIMEOUT, "the tree is too big to be measured in time");
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        fd_close(fd);
        return 0; /* removed meanwhile, or not readable: it counts as 0 */
    }
    w->depth++;
    for (const struct dirent *e; r >= 0 && (e = readdir(d));)
        r = usage_walk_entry(w, fd, e->d_name, err);
    w->depth--;
    return r;
}

int usage_count(int dirfd, const char *path, const struct deadline *by, struct disk_usage *sum,
                struct err *err)
{
    struct usage_walk w = {.by = by, .sum = sum};
    struct stat st;

    if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "measure '%s'", path);
    w.dev = st.st_dev;
    return usage_walk_entry(&w, dirfd, path, err) < 0 ? err_wrap(err, "measure '%s'", path) : 0;
}

int usage_add(int dirfd, const char *path, const struct deadline *by, uint64_t *sum,
              struct err *err)
{
    struct disk_usage seen = {0};
    int r = usage_count(dirfd, path, by, &seen, err);

    *sum += seen.bytes;
    return r;
}
