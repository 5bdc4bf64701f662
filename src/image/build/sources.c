#include "image/build/sources.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { MATCHES_MAX = 1 << 16, OPEN_TRIES = 100000 };

/*
 * openat2() fails with EAGAIN when the path has ".." and a rename or mount happens anywhere on the
 * machine at the same time, because the kernel cannot be sure that the path stays below the root.
 * The caller is expected to try again.
 */
int sources_open(int root, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd, tries = OPEN_TRIES;

    do
        fd = (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));
    while (fd < 0 && (errno == EAGAIN || errno == EINTR) && tries--);
    return fd < 0 ? -errno : fd;
}

int sources_open_path(int root, const char *path, int *ret, struct err *err)
{
    int fd = sources_open(root, path, O_PATH);

    if (fd == -ENOENT || fd == -ENOTDIR)
        return err_set(err, ERR_NOT_FOUND, "'%.200s': no such file or folder", path);
    if (fd < 0)
        return err_sys(err, -fd, "open '%.200s'", path);
    *ret = fd;
    return 0;
}

const char *sources_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool sources_is_pattern(const char *s)
{
    return strpbrk(s, "*?[\\") != NULL;
}

static char *sources_join(const char *folder, const char *name)
{
    return *folder ? xasprintf("%s/%s", folder, name) : xstrdup(name);
}

/* Entries of a folder that match one part of a pattern. A folder that cannot be read has none. */
static int sources_match_in(int root, const char *folder, const char *part, char ***ret,
                            struct err *err)
{
    int fd = sources_open(root, folder, O_RDONLY | O_DIRECTORY);
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        fd_close(fd);
        return 0;
    }
    for (const struct dirent *e; (e = readdir(d));) {
        if (STREQ(e->d_name, ".") || STREQ(e->d_name, "..") || fnmatch(part, e->d_name, 0) != 0)
            continue;
        if (strv_len(*ret) >= MATCHES_MAX)
            return err_set(err, ERR_LIMIT, "over %d files match", MATCHES_MAX);
        strv_push(ret, sources_join(folder, e->d_name));
    }
    return 0;
}

/* Extends each of the paths by one part of the pattern. */
static int sources_step(int root, char ***folders, const char *part, struct err *err)
{
    _cleanup_strv_ char **next = NULL;
    int r;

    for (char **f = *folders; f && *f; f++) {
        if (!sources_is_pattern(part)) {
            strv_push(&next, sources_join(*f, part));
            continue;
        }
        r = sources_match_in(root, *f, part, &next, err);
        if (r < 0)
            return r;
    }
    strv_free(*folders);
    *folders = TAKE_PTR(next);
    return 0;
}

static int sources_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Keeps the paths that exist. A plain path must exist. */
static int sources_keep_existing(int root, char *const *found, bool plain, char ***ret,
                                 struct err *err)
{
    for (; found && *found; found++) {
        _cleanup_close_ int fd = -1;
        int r = sources_open_path(root, *found, &fd, plain ? err : NULL);

        if (r < 0 && plain)
            return r;
        if (r >= 0)
            strv_add(ret, *found);
    }
    if (*ret)
        qsort(*ret, strv_len(*ret), sizeof(**ret), sources_compare);
    return 0;
}

int sources_match(int root, const char *pattern, char ***ret, struct err *err)
{
    _cleanup_free_ char *copy = xstrdup(pattern);
    _cleanup_strv_ char **found = NULL, **existing = NULL;
    char *rest = copy, *part;
    int r;

    strv_add(&found, "");
    while ((part = strsep(&rest, "/"))) {
        if (!*part || STREQ(part, "."))
            continue;
        r = sources_step(root, &found, part, err);
        if (r < 0)
            return r;
    }
    r = sources_keep_existing(root, found, !sources_is_pattern(pattern), &existing, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(existing);
    return 0;
}

char *sources_literal(const char *path)
{
    _cleanup_buf_ struct buf b = BUF_INIT(strlen(path) * 2 + 1);

    for (; *path; path++) {
        if (strchr("*?[\\", *path))
            (void)!buf_append_c(&b, '\\');
        (void)!buf_append_c(&b, *path);
    }
    return buf_steal(&b);
}
