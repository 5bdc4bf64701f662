#include "daemon/engine/native/cache-tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "proto/plan.h"

/* Each level holds two descriptors. npm's cache is five deep, Go's about twenty. */
enum { DEPTH_MAX = 100 };

static int cache_tree_open_folder(int dirfd, const char *name, DIR **ret, struct err *err)
{
    int fd = -1, r = dir_open(dirfd, name, &fd, err);

    if (r < 0)
        return r;
    *ret = fdopendir(fd);
    if (*ret)
        return 0;
    r = err_sys(err, errno, "read folder '%s'", name);
    fd_close(fd);
    return r;
}

/* The next entry except "." and ".."; NULL at the end. */
static const struct dirent *cache_tree_next_entry(DIR *d)
{
    const struct dirent *e;

    do
        e = readdir(d);
    while (e && (STREQ(e->d_name, ".") || STREQ(e->d_name, "..")));
    return e;
}

static int cache_tree_check_depth(unsigned depth, const char *name, struct err *err)
{
    return depth < DEPTH_MAX
               ? 0
               : err_set(err, ERR_LIMIT, "folder '%s' is over %d levels deep", name, DEPTH_MAX);
}

/* ---- copying ---- */

static int cache_tree_link_folder(int from, const char *name, int to, const char *as,
                                  unsigned depth, struct err *err);

static int cache_tree_link_entry(int from, const char *name, int to, unsigned depth,
                                 struct err *err)
{
    struct stat st;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "stat '%s'", name);
    if (S_ISDIR(st.st_mode))
        return cache_tree_link_folder(from, name, to, name, depth + 1, err);
    return linkat(from, name, to, name, 0) < 0 ? err_sys(err, errno, "link '%s'", name) : 0;
}

/* Makes a folder with the owner and mode of `like`. */
static int cache_tree_new_folder(int like, int to, const char *name, int *ret, struct err *err)
{
    struct stat st;
    int r;

    if (fstat(like, &st) < 0 || mkdirat(to, name, 0700) < 0)
        return err_sys(err, errno, "make folder '%s'", name);
    r = dir_open(to, name, ret, err);
    if (r < 0)
        return r;
    if (st.st_uid != geteuid() && fchown(*ret, st.st_uid, st.st_gid) < 0)
        return err_sys(err, errno, "set the owner of '%s'", name);
    if (fchmod(*ret, st.st_mode & 07777) < 0)
        return err_sys(err, errno, "set the mode of '%s'", name);
    return 0;
}

static int cache_tree_link_folder(int from, const char *name, int to, const char *as,
                                  unsigned depth, struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    _cleanup_close_ int dst = -1;
    int r;

    r = cache_tree_check_depth(depth, name, err);
    if (r < 0)
        return r;
    r = cache_tree_open_folder(from, name, &d, err);
    if (r < 0)
        return r;
    r = cache_tree_new_folder(dirfd(d), to, as, &dst, err);
    if (r < 0)
        return r;
    for (const struct dirent *e; (e = cache_tree_next_entry(d));) {
        r = cache_tree_link_entry(dirfd(d), e->d_name, dst, depth, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int cache_tree_link(int dirfd, const char *from, const char *to, struct err *err)
{
    return cache_tree_link_folder(dirfd, from, dirfd, to, 0, err);
}

/* ---- opening for all users ---- */

static int cache_tree_open_up_entry(int dirfd, const char *name, bool chown, unsigned depth,
                                    struct err *err);

static int cache_tree_open_up_folder(int dirfd_, const char *name, bool chown, unsigned depth,
                                     struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    int r;

    r = cache_tree_check_depth(depth, name, err);
    if (r < 0)
        return r;
    r = cache_tree_open_folder(dirfd_, name, &d, err);
    if (r < 0)
        return r;
    for (const struct dirent *e; (e = cache_tree_next_entry(d));) {
        r = cache_tree_open_up_entry(dirfd(d), e->d_name, chown, depth + 1, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int cache_tree_open_up_entry(int dirfd, const char *name, bool chown, unsigned depth,
                                    struct err *err)
{
    struct stat st;

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "stat '%s'", name);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return unlinkat(dirfd, name, 0) < 0 ? err_sys(err, errno, "remove '%s'", name) : 0;
    if (chown && fchownat(dirfd, name, PLAN_AGENT_ID, PLAN_AGENT_ID, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "set the owner of '%s'", name);
    if (S_ISLNK(st.st_mode))
        return 0;
    if (fchmodat(dirfd, name, S_ISDIR(st.st_mode) || st.st_mode & 0111 ? 0777 : 0666, 0) < 0)
        return err_sys(err, errno, "set the mode of '%s'", name);
    return S_ISDIR(st.st_mode) ? cache_tree_open_up_folder(dirfd, name, chown, depth, err) : 0;
}

int cache_tree_open_up(int dirfd, const char *path, bool chown, struct err *err)
{
    return cache_tree_open_up_entry(dirfd, path, chown, 0, err);
}
