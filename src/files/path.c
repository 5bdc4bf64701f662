#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "files/job.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"
#include "lib/os/user.h"

/* Links are followed, except the magic links of /proc, which lead to files that no path names. */
int files_open(const char *path, int flags)
{
    if (!(flags & O_PATH)) /* openat2() refuses the two together */
        flags |= O_NOCTTY;
    return fd_open_resolved(AT_FDCWD, path, flags, 0, RESOLVE_NO_MAGICLINKS);
}

int files_open_folder(const char *path, int *ret, struct err *err)
{
    int fd = files_open(path, O_RDONLY | O_DIRECTORY);

    if (fd < 0)
        return tree_err(err, errno, "open folder '%s'", path);
    *ret = fd;
    return 0;
}

int files_make_folder(const struct files_task *j, int dirfd, const char *name, mode_t mode)
{
    _cleanup_close_ int fd = -1;
    _cleanup_err_ struct err none = ERR_INIT;
    uid_t uid = 0;
    gid_t gid = 0;
    int r;

    if (mkdirat(dirfd, name, mode) < 0)
        return errno == EEXIST ? 0 : -1;
    r = files_owner(j, &uid, &gid, &none);
    if (r <= 0)
        return r < 0 ? (errno = EPERM, -1) : 1;
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 || fchown(fd, uid, gid) < 0 ? -1 : 1;
}

static int files_enter_folder(const struct files_task *j, int at, const char *name, bool parents)
{
    int fd = fd_open_resolved(at, name, O_PATH | O_DIRECTORY, 0, RESOLVE_NO_MAGICLINKS);

    if (fd >= 0 || errno != ENOENT || !parents)
        return fd;
    if (files_make_folder(j, at, name, 0777) < 0)
        return -1;
    return fd_open_resolved(at, name, O_PATH | O_DIRECTORY, 0, RESOLVE_NO_MAGICLINKS);
}

/* Each component in its turn, as `mkdir -p` does. -1 and errno. */
static int files_make_path(const struct files_task *j, const char *path)
{
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (const char *c = path + strspn(path, "/"); *c && fd >= 0; c += strspn(c, "/")) {
        size_t len = strcspn(c, "/");
        _cleanup_free_ char *name = xstrndup(c, len);
        int next = files_enter_folder(j, fd, name, true);

        fd_close(fd);
        fd = next;
        c += len;
    }
    return fd;
}

static int files_no_parent(const char *dir, bool parents, struct err *err)
{
    int errnum = errno, r = tree_err(err, errnum, "open folder '%s'", dir);

    if (errnum == ENOENT && !parents)
        err_hint(err, "Make the folder first, or set 'parents'.");
    return r;
}

int files_open_parent(struct files_task *j, const char *path, bool parents, int *ret,
                      char **ret_name, struct err *err)
{
    _cleanup_free_ char *dir = xstrdup(path);
    size_t len = strlen(dir);
    char *name;
    int fd;

    while (len > 1 && dir[len - 1] == '/')
        dir[--len] = '\0';
    name = strrchr(dir, '/') + 1;
    if (!*name || STREQ(name, ".") || STREQ(name, ".."))
        return err_set(err, ERR_INVALID, "'%s' does not end with a name", path);
    *ret_name = xstrdup(name);
    name[name - dir > 1 ? -1 : 0] = '\0'; /* the slash too, unless it is the root */
    fd = files_open(dir, O_PATH | O_DIRECTORY);
    if (fd < 0 && errno == ENOENT && parents)
        fd = files_make_path(j, dir);
    if (fd < 0) {
        free(TAKE_PTR(*ret_name));
        return files_no_parent(dir, parents, err);
    }
    *ret = fd;
    return 0;
}

char *files_join(const char *dir, const char *name)
{
    size_t len = strlen(dir);

    return xasprintf("%s%s%s", dir, len && dir[len - 1] == '/' ? "" : "/", name);
}

int files_temp_name(char buf[static FILES_TEMP_SIZE], struct err *err)
{
    uint64_t v;

    if (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
        return err_sys(err, errno, "get random bytes");
    snprintf(buf, FILES_TEMP_SIZE, ".ripcord-%016llx.tmp", (unsigned long long)v);
    return 0;
}

int files_owner(const struct files_task *j, uid_t *ret_uid, gid_t *ret_gid, struct err *err)
{
    struct user owner = {0};
    int r;

    if (!j->owner)
        return 0;
    r = user_resolve_owner(j->owner, &owner, err);
    if (r < 0)
        return r;
    *ret_uid = owner.uid;
    *ret_gid = owner.gid;
    return 1;
}
