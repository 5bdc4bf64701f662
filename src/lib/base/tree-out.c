/*
 * Each folder is opened through a descriptor of its parent with O_NOFOLLOW. So a tree that changes
 * during the walk can hide or show files, but cannot lead the walk elsewhere. The copy fails when a
 * file shrinks while it is read, because its size is already in the header.
 */
#include "lib/base/tree.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { TREE_DEPTH_MAX = 256, TREE_CHUNK = 256 << 10 };

struct tree_walk {
    struct tar_writer tar;
    struct tar_entry entry; /* its path is the stack of names */
    struct tree_stats *stats;
    char *chunk;       /* owned */
    const char *given; /* the path of the top entry as the caller gave it; borrowed */
    size_t top;        /* length of the top entry's name, with which entry.path begins */
};

/* The whole path of the present entry, for messages. The caller frees it. */
static char *tree_out_shown(const struct tree_walk *w)
{
    const char *rest = w->entry.path + MIN(w->top, strlen(w->entry.path));

    return xasprintf("%s%s", *rest && STREQ(w->given, "/") ? "" : w->given, rest);
}

static int tree_out_err(const struct tree_walk *w, struct err *err, int errnum, const char *what)
{
    _cleanup_free_ char *shown = tree_out_shown(w);

    return tree_err(err, errnum, "%s '%s'", what, shown);
}

static int tree_out_changed(const struct tree_walk *w, struct err *err, const char *how)
{
    _cleanup_free_ char *shown = tree_out_shown(w);

    return err_set(err, ERR_CONFLICT, "'%s' %s while it was copied", shown, how);
}

static void tree_out_fill_entry(struct tar_entry *e, enum tar_type type, const struct stat *st)
{
    e->type = type;
    e->link[0] = '\0';
    e->mode = st->st_mode & 0777;
    e->uid = st->st_uid;
    e->gid = st->st_gid;
    e->size = type == TAR_FILE ? (uint64_t)st->st_size : 0;
    e->mtime = st->st_mtim.tv_sec;
}

static int tree_out_put_entry(struct tree_walk *w, struct err *err)
{
    w->stats->entries++;
    return tar_put(&w->tar, &w->entry, err);
}

/* Some files, such as those of /proc, report size 0 and have content. */
static int tree_out_put_unsized(struct tree_walk *w, int fd, struct err *err)
{
    ssize_t n = fd_read_full(fd, w->chunk, TREE_CHUNK);
    int r;

    if (n < 0)
        return tree_out_err(w, err, (int)-n, "read");
    if (n == TREE_CHUNK)
        return err_set(err, ERR_UNSUPPORTED, "'%s%s' has no size and does not end", w->given,
                       w->entry.path + w->top);
    w->entry.size = (uint64_t)n;
    r = tree_out_put_entry(w, err);
    if (r == 0 && n)
        r = tar_write(&w->tar, w->chunk, (size_t)n, err);
    w->stats->bytes += (uint64_t)n;
    return r;
}

static int tree_out_put_data(struct tree_walk *w, int fd, struct err *err)
{
    uint64_t left = w->entry.size;
    int r;

    while (left) {
        ssize_t n = read(fd, w->chunk, MIN(left, (uint64_t)TREE_CHUNK));

        if (n < 0)
            return tree_out_err(w, err, errno, "read");
        if (n == 0)
            return tree_out_changed(w, err, "shrank");
        r = tar_write(&w->tar, w->chunk, (size_t)n, err);
        if (r < 0)
            return r;
        left -= (uint64_t)n;
        w->stats->bytes += (uint64_t)n;
    }
    return 0;
}

static int tree_out_put_file(struct tree_walk *w, int dirfd, const char *name, struct err *err)
{
    _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return tree_out_err(w, err, errno, "open");
    if (!S_ISREG(st.st_mode))
        return tree_out_changed(w, err, "was replaced");
    tree_out_fill_entry(&w->entry, TAR_FILE, &st);
    if (w->entry.size == 0)
        return tree_out_put_unsized(w, fd, err);
    r = tree_out_put_entry(w, err);
    return r < 0 ? r : tree_out_put_data(w, fd, err);
}

static int tree_out_put_symlink(struct tree_walk *w, int dirfd, const char *name,
                                const struct stat *st, struct err *err)
{
    ssize_t n;

    tree_out_fill_entry(&w->entry, TAR_SYMLINK, st);
    n = readlinkat(dirfd, name, w->entry.link, sizeof(w->entry.link) - 1);
    if (n < 0)
        return tree_out_err(w, err, errno, "read link");
    w->entry.link[n] = '\0';
    return tree_out_put_entry(w, err);
}

static int tree_out_put_any(struct tree_walk *w, int dirfd, const char *name, unsigned depth,
                            struct err *err);

/* Appends "/name" to the entry's path; the length before, or an error. */
static int tree_out_push_name(struct tree_walk *w, const char *name, struct err *err)
{
    size_t len = strlen(w->entry.path);
    int n = snprintf(w->entry.path + len, TAR_PATH_MAX - len, "/%s", name);

    if (n < 0 || (size_t)n >= TAR_PATH_MAX - len) {
        w->entry.path[len] = '\0';
        return err_set(err, ERR_LIMIT, "a path below '%.60s...' is longer than %d bytes",
                       w->entry.path, TAR_PATH_MAX - 1);
    }
    return (int)len;
}

static int tree_out_put_children(struct tree_walk *w, DIR *dir, unsigned depth, struct err *err)
{
    struct dirent *d;

    while (errno = 0, (d = readdir(dir))) {
        int len, r;

        if (STREQ(d->d_name, ".") || STREQ(d->d_name, ".."))
            continue;
        len = tree_out_push_name(w, d->d_name, err);
        if (len < 0)
            return len;
        r = tree_out_put_any(w, dirfd(dir), d->d_name, depth + 1, err);
        if (r < 0)
            return r;
        w->entry.path[len] = '\0';
    }
    return errno ? tree_out_err(w, err, errno, "read folder") : 0;
}

static int tree_out_put_dir(struct tree_walk *w, int parent, const char *name, unsigned depth,
                            struct err *err)
{
    _cleanup_close_ int fd = -1;
    _cleanup_closedir_ DIR *dir = NULL;
    struct stat st;
    int r;

    if (depth >= TREE_DEPTH_MAX)
        return err_set(err, ERR_LIMIT, "'%.60s...' is more than %d folders deep", w->entry.path,
                       TREE_DEPTH_MAX);
    fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return tree_out_err(w, err, errno, "open folder");
    if (fstat(fd, &st) < 0)
        return tree_out_err(w, err, errno, "stat");
    tree_out_fill_entry(&w->entry, TAR_DIR, &st);
    r = tree_out_put_entry(w, err);
    if (r < 0)
        return r;
    dir = fdopendir(fd);
    if (!dir)
        return tree_out_err(w, err, errno, "open folder");
    TAKE_FD(fd);
    return tree_out_put_children(w, dir, depth, err);
}

static int tree_out_put_any(struct tree_walk *w, int dirfd, const char *name, unsigned depth,
                            struct err *err)
{
    struct stat st;

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT && depth)
            return 0; /* gone since the folder was read */
        return tree_out_err(w, err, errno, "stat");
    }
    if (S_ISDIR(st.st_mode))
        return tree_out_put_dir(w, dirfd, name, depth, err);
    if (S_ISREG(st.st_mode))
        return tree_out_put_file(w, dirfd, name, err);
    if (S_ISLNK(st.st_mode))
        return tree_out_put_symlink(w, dirfd, name, &st, err);
    w->stats->skipped++;
    return 0;
}

/* The last component; "." for "/", "." and "..". */
static const char *tree_out_top_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    return *name == '\0' || STREQ(name, "..") ? "." : name;
}

int tree_to_tar(const char *path, tar_write_fn write, void *arg, struct tree_stats *stats,
                struct err *err)
{
    _cleanup_free_ struct tree_walk *w = xnew0(struct tree_walk);
    _cleanup_free_ char *chunk = xmalloc(TREE_CHUNK);
    _cleanup_free_ char *clean = xstrdup(path);
    size_t len = strlen(clean);
    struct stat st;
    int r;

    /* A path with a trailing slash follows a link to a folder, as in other tools. */
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? err_set(err, ERR_NOT_FOUND, "no file or folder '%s'", path)
                               : tree_err(err, errno, "stat '%s'", path);
    while (len > 1 && clean[len - 1] == '/')
        clean[--len] = '\0';
    w->stats = stats;
    w->chunk = chunk;
    tar_writer_init(&w->tar, write, arg);
    snprintf(w->entry.path, TAR_PATH_MAX, "%s", tree_out_top_name(clean));
    w->given = clean;
    w->top = strlen(w->entry.path);
    r = tree_out_put_any(w, AT_FDCWD, path, 0, err);
    if (r < 0)
        return r;
    r = stats->skipped ? tar_put_left_out(&w->tar, stats->skipped, err) : 0;
    if (r < 0)
        return r;
    return tar_finish(&w->tar, err);
}
