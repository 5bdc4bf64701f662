/*
 * Every entry is placed through a descriptor of its parent folder, opened with openat2 below the
 * destination and without following any symlink, so that neither the archive nor a process inside
 * that swaps folders for links can lead a write elsewhere. Files and links are made under a
 * temporary name and renamed: a reader sees the old or the new one.
 */
#include "shim/copy.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/strv.h"
#include "base/tar.h"
#include "base/xalloc.h"

enum { COPY_CHUNK = 256 << 10, LATE_DIRS_MAX = 4096 };

static const char temp_name[] = ".ripcord-cp.tmp";

struct placer {
    struct tar_reader tar;
    struct copy_stats *stats;
    int dest;           /* the folder that names are relative to */
    const char *rename; /* the top entry's new name, or NULL: it keeps its own */
    char *top;          /* owned; the one top name seen, when renaming */
    char **late;        /* "MODE path" of folders whose mode forbids writing: set at the end */
    char *chunk;        /* owned */
    int in;
};

static ssize_t read_in(void *arg, void *data, size_t len)
{
    ssize_t n;

    do
        n = read(*(int *)arg, data, len);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static int open_below(int dirfd, const char *path, uint64_t flags)
{
    struct open_how how = {
        .flags = flags | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };

    return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
}

/* The archive's path without leading "/" and "./", refused when it climbs; renamed at the top when
 * asked. */
static int place_name(struct placer *p, const char *path, char **ret, struct err *err)
{
    const char *s = path;
    size_t top;

    for (;;) {
        s += strspn(s, "/");
        if (s[0] != '.' || (s[1] != '/' && s[1] != '\0'))
            break;
        s++;
    }
    for (const char *c = s; *c; c += strspn(c, "/")) {
        size_t len = strcspn(c, "/");

        if (len == 2 && memcmp(c, "..", 2) == 0)
            return err_set(err, ERR_DENIED, "archive entry '%.80s' leads out of its folder", path);
        c += len;
    }
    top = strcspn(s, "/");
    if (!p->rename) {
        *ret = xstrdup(*s ? s : ".");
        return 0;
    }
    if (!p->top)
        p->top = xstrndup(s, top);
    if (strlen(p->top) != top || memcmp(p->top, s, top) != 0)
        return err_set(err, ERR_NOT_FOUND,
                       "'%s' is not a folder, and the archive has more than one top entry",
                       p->rename);
    *ret = xasprintf("%s%s", p->rename, s + top);
    return 0;
}

/* The parent folder of `name`, made where missing; *ret_base points into name. */
static int open_parent(struct placer *p, char *name, int *ret, const char **ret_base,
                       struct err *err)
{
    char *slash = strrchr(name, '/');
    int fd;

    while (slash && slash[1] == '\0') { /* "dir/" */
        *slash = '\0';
        slash = strrchr(name, '/');
    }
    *ret_base = slash ? slash + 1 : name;
    if (!slash) {
        fd = fcntl(p->dest, F_DUPFD_CLOEXEC, 0);
        *ret = fd;
        return fd < 0 ? err_sys(err, errno, "dup") : 0;
    }
    *slash = '\0';
    fd = open_below(p->dest, name, O_PATH | O_DIRECTORY);
    if (fd < 0 && errno == ENOENT) {
        const char *base;
        _cleanup_free_ char *above = xstrdup(name);
        _cleanup_close_ int up = -1;
        int r = open_parent(p, above, &up, &base, err);

        if (r < 0)
            return r;
        if (mkdirat(up, base, 0777) < 0 && errno != EEXIST)
            return err_sys(err, errno, "make folder '%s'", name);
        fd = open_below(p->dest, name, O_PATH | O_DIRECTORY);
    }
    if (fd < 0)
        return err_sys(err, errno, "open folder '%s'", name);
    *slash = '/';
    *ret = fd;
    return 0;
}

/* A time that the file system cannot hold is no reason to lose the file, hence no result. */
static void set_time(int dirfd, const char *name, int64_t mtime)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = mtime}};

    (void)utimensat(dirfd, name, times, AT_SYMLINK_NOFOLLOW);
}

static int place_dir(struct placer *p, int parent, const char *base, const char *path,
                     const struct tar_entry *e, struct err *err)
{
    mode_t mode = e->mode & 0777;
    _cleanup_close_ int fd = -1;

    if (STREQ(base, "."))
        return 0;
    if (mkdirat(parent, base, mode | 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "make folder '%s'", path);
    fd = open_below(parent, base, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return err_sys(err, errno, "open folder '%s'", path);
    if ((mode & 0700) != 0700) {
        if (strv_len(p->late) >= LATE_DIRS_MAX)
            return err_set(err, ERR_LIMIT, "archive has over %d folders that may not be written",
                           LATE_DIRS_MAX);
        strv_push(&p->late, xasprintf("%o %s", (unsigned)mode, path));
        mode |= 0700;
    }
    (void)fchmod(
        fd, mode); /* not ours to change when it belongs to another user: the content still is */
    return 0;
}

static int write_data(struct placer *p, int fd, const char *path, struct err *err)
{
    ssize_t n;
    int r;

    while ((n = tar_read(&p->tar, p->chunk, COPY_CHUNK, err)) > 0) {
        r = fd_write_all(fd, p->chunk, (size_t)n);
        if (r < 0)
            return err_sys(err, -r, "write '%s'", path);
        p->stats->bytes += (uint64_t)n;
    }
    return (int)n;
}

static int place_file(struct placer *p, int parent, const char *path, const struct tar_entry *e,
                      struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    fd = openat(parent, temp_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, errno, "create '%s'", path);
    r = write_data(p, fd, path, err);
    if (r < 0)
        return r;
    if (fchmod(fd, e->mode & 0777) < 0)
        return err_sys(err, errno, "set the mode of '%s'", path);
    return 0;
}

/* The target of a hard link lies in the same archive: it is found below the destination by the same
 * rules as every name. */
static int place_hardlink(struct placer *p, int parent, const char *path, const struct tar_entry *e,
                          struct err *err)
{
    _cleanup_free_ char *target = NULL;
    _cleanup_close_ int up = -1;
    const char *base;
    struct stat st;
    int r;

    r = place_name(p, e->link, &target, err);
    if (r == 0)
        r = open_parent(p, target, &up, &base, err);
    if (r < 0)
        return r;
    if (fstatat(up, base, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID,
                       "archive: '%.80s' is linked to '%.80s', which is no file of it", path,
                       e->link);
    if (linkat(up, base, parent, temp_name, 0) < 0)
        return err_sys(err, errno, "link '%s'", path);
    return 0;
}

static int place_temp(struct placer *p, int parent, const char *path, const struct tar_entry *e,
                      struct err *err)
{
    switch (e->type) {
    case TAR_FILE:
        return place_file(p, parent, path, e, err);
    case TAR_HARDLINK:
        return place_hardlink(p, parent, path, e, err);
    case TAR_SYMLINK:
        if (symlinkat(e->link, parent, temp_name) < 0)
            return err_sys(err, errno, "make link '%s'", path);
        return 0;
    case TAR_DIR:
    case TAR_OTHER:
        break;
    }
    return err_set(err, ERR_INVALID, "archive: '%.80s' is of no known kind", path);
}

static int place_entry(struct placer *p, const struct tar_entry *e, struct err *err)
{
    _cleanup_free_ char *name = NULL, *path = NULL;
    _cleanup_close_ int parent = -1;
    const char *base;
    int r;

    if (e->type == TAR_OTHER) {
        p->stats->skipped++;
        return 0;
    }
    r = place_name(p, e->path, &name, err);
    if (r < 0)
        return r;
    path = xstrdup(name);
    r = open_parent(p, name, &parent, &base, err);
    if (r < 0)
        return r;
    p->stats->entries++;
    if (e->type == TAR_DIR)
        return place_dir(p, parent, base, path, e, err);
    if (*base == '\0' || STREQ(base, "."))
        return err_set(err, ERR_INVALID, "archive: an entry has no name");
    (void)unlinkat(parent, temp_name, 0); /* left by a copy that was killed */
    r = place_temp(p, parent, path, e, err);
    if (r == 0 && e->type != TAR_HARDLINK)
        set_time(parent, temp_name, e->mtime);
    if (r == 0 && renameat(parent, temp_name, parent, base) < 0)
        r = err_sys(err, errno, "put '%s' in place", path);
    if (r < 0)
        (void)unlinkat(parent, temp_name, 0);
    return r;
}

static void set_late_modes(struct placer *p)
{
    for (size_t i = strv_len(p->late); i-- > 0;) {
        char *rest;
        mode_t mode = (mode_t)strtoul(p->late[i], &rest, 8);
        _cleanup_close_ int fd = open_below(p->dest, rest + 1, O_RDONLY | O_DIRECTORY);

        if (fd >= 0)
            (void)fchmod(fd, mode);
    }
}

/* Where the archive goes: `path` itself when it is a folder, else its parent with the last
 * component as the new name. */
static int open_destination(struct placer *p, char *path, struct err *err)
{
    size_t len = strlen(path);
    bool folder = len && path[len - 1] == '/';
    char *slash;

    p->dest = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (p->dest >= 0)
        return 0;
    if ((errno != ENOENT && errno != ENOTDIR) || folder)
        return err_set(err, ERR_NOT_FOUND, "'%s' is not a folder in the sandbox: %s", path,
                       strerror(errno));
    slash = strrchr(path, '/');
    p->rename = slash ? slash + 1 : path;
    if (slash)
        *slash = '\0';
    p->dest = open(slash ? (*path ? path : "/") : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (p->dest < 0)
        return err_set(err, ERR_NOT_FOUND, "no such folder '%s' in the sandbox", path);
    return 0;
}

int copy_in(const char *path, int tar_fd, struct copy_stats *stats, struct err *err)
{
    _cleanup_free_ struct tar_entry *e = xnew0(struct tar_entry);
    _cleanup_free_ char *chunk = xmalloc(COPY_CHUNK), *where = xstrdup(path);
    struct placer p = {.stats = stats, .dest = -1, .chunk = chunk, .in = tar_fd};
    int r;

    tar_reader_init(&p.tar, read_in, &p.in);
    r = open_destination(&p, where, err);
    while (r >= 0 && (r = tar_next(&p.tar, e, err)) > 0)
        r = place_entry(&p, e, err);
    if (r >= 0)
        set_late_modes(&p);
    fd_close(p.dest);
    free(p.top);
    strv_free(p.late);
    return r;
}
