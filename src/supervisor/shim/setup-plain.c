#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/os/mount.h"
#include "lib/os/rmtree.h"
#include "lib/os/surroundings.h"
#include "supervisor/shim/setup-plain.h"

enum { SETUP_PLAIN_DEPTH = 32, SETUP_PLAIN_PIECE = 1 << 30 };

#define COPY "plain"         /* in data/root and data/home: complete */
#define COPY_NEW COPY ".new" /* under way */

bool setup_plain_is_possible(const struct plan *plan)
{
    return !plan->id_base && plan->image == PLAN_IMAGE_HOST && !plan->n_layers && !plan->bare &&
           surroundings_no_upper("data");
}

/* ---- copying ---- */

static int setup_plain_copy_folder(int from, int to, int depth, struct err *err);

static int setup_plain_copy_file(int from, int to, const char *name, const struct stat *st,
                                 struct err *err)
{
    _cleanup_close_ int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_close_ int out = -1;

    if (in < 0)
        return err_sys(err, errno, "open '%s' of the image", name);
    out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        return err_sys(err, errno, "make '%s'", name);
    for (;;) {
        ssize_t n = sendfile(out, in, NULL, SETUP_PLAIN_PIECE);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "copy '%s' of the image", name);
        if (n == 0)
            break;
    }
    return fchmod(out, st->st_mode & 01777) < 0 ? err_sys(err, errno, "set the mode of '%s'", name)
                                                : 0;
}

static int setup_plain_copy_link(int from, int to, const char *name, struct err *err)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

    if (n < 0)
        return err_sys(err, errno, "read link '%s' of the image", name);
    target[n] = '\0';
    return symlinkat(target, to, name) < 0 ? err_sys(err, errno, "make link '%s'", name) : 0;
}

static int setup_plain_copy_below(int from, int to, const char *name, const struct stat *st,
                                  int depth, struct err *err)
{
    _cleanup_close_ int in = -1, out = -1;
    int r;

    if (depth >= SETUP_PLAIN_DEPTH)
        return err_set(err, ERR_LIMIT, "the image has more than %d levels", SETUP_PLAIN_DEPTH);
    r = dir_open(from, name, &in, err);
    if (r < 0)
        return r;
    if (mkdirat(to, name, 0700) < 0)
        return err_sys(err, errno, "make '%s'", name);
    r = dir_open(to, name, &out, err);
    if (r < 0)
        return r;
    r = setup_plain_copy_folder(in, out, depth + 1, err);
    if (r < 0)
        return r;
    return fchmod(out, st->st_mode & 01777) < 0 ? err_sys(err, errno, "set the mode of '%s'", name)
                                                : 0;
}

/* The skeleton has folders, files and links only, and all belong to one id. */
static int setup_plain_copy_entry(int from, int to, const char *name, int depth, struct err *err)
{
    struct stat st;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "stat '%s' of the image", name);
    if (S_ISDIR(st.st_mode))
        return setup_plain_copy_below(from, to, name, &st, depth, err);
    if (S_ISLNK(st.st_mode))
        return setup_plain_copy_link(from, to, name, err);
    return S_ISREG(st.st_mode) ? setup_plain_copy_file(from, to, name, &st, err) : 0;
}

static int setup_plain_copy_folder(int from, int to, int depth, struct err *err)
{
    int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        fd_close(fd);
        return err_sys(err, errno, "read a folder of the image");
    }
    for (const struct dirent *e; (e = readdir(d));) {
        int r = STREQ(e->d_name, ".") || STREQ(e->d_name, "..")
                    ? 0
                    : setup_plain_copy_entry(from, to, e->d_name, depth, err);

        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- the copies of a sandbox ---- */

/* Files of an overlay's upper layer are only a part of a root: a copy beside them would hide
 * them. */
static int setup_plain_check_unused(int at, struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    int fd = openat(at, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    d = fd < 0 ? NULL : fdopendir(fd);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (!STREQ(e->d_name, ".") && !STREQ(e->d_name, ".."))
            return err_set(err, ERR_CONFLICT,
                           "the sandbox has files from a place where overlays worked");
    return 0;
}

static int setup_plain_make(int at, const char *source, struct err *err)
{
    _cleanup_close_ int from = -1, to = -1;
    struct stat st;
    int r;

    if (faccessat(at, COPY, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    r = setup_plain_check_unused(at, err);
    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, source, &from, err);
    if (r < 0)
        return r;
    r = rmtree(at, COPY_NEW, err); /* of a start that was cut short */
    if (r < 0)
        return r;
    if (fstat(from, &st) < 0 || mkdirat(at, COPY_NEW, 0700) < 0)
        return err_sys(err, errno, "make a folder for the copy");
    r = dir_open(at, COPY_NEW, &to, err);
    if (r < 0)
        return r;
    r = setup_plain_copy_folder(from, to, 0, err);
    if (r < 0)
        return r;
    if (fchmod(to, st.st_mode & 01777) < 0 || renameat(at, COPY_NEW, at, COPY) < 0)
        return err_sys(err, errno, "finish the copy");
    return 0;
}

static int setup_plain_mount(const char *path, int *ret, struct err *err)
{
    _cleanup_close_ int fd = -1;

    if (mount_clone(AT_FDCWD, path, 0, &fd, err) < 0 || mount_set(fd, MOUNT_SAFE, -1, err) < 0)
        return err_wrap(err, "prepare '%s'", path);
    *ret = TAKE_FD(fd);
    return 0;
}

static int setup_plain_tree(const char *folder, const char *source, int *ret, struct err *err)
{
    _cleanup_close_ int at = -1;
    char path[32];
    int r;

    r = dir_open(AT_FDCWD, folder, &at, err);
    if (r < 0)
        return r;
    r = setup_plain_make(at, source, err);
    if (r < 0)
        return err_wrap(err, "copy image 'host'");
    snprintf(path, sizeof(path), "%s/" COPY, folder);
    return setup_plain_mount(path, ret, err);
}

/* The caches' base, which is a layer of an overlay, holds /cache. */
int setup_plain_root(int *ret, struct err *err)
{
    int r = setup_plain_tree("data/root", "lower", ret, err);

    if (r < 0)
        return r;
    return mkdirat(*ret, "cache", 0755) < 0 && errno != EEXIST
               ? err_sys(err, errno, "make '/cache'")
               : 0;
}

int setup_plain_home(int *ret, struct err *err)
{
    return setup_plain_tree("data/home", "lower/home/agent", ret, err);
}

int setup_plain_cache(const char *tool, int *ret, struct err *err)
{
    char path[NAME_MAX + 32];

    snprintf(path, sizeof(path), "data/caches/%s/upper", tool);
    return setup_plain_mount(path, ret, err);
}
