/*
 * Every path is opened from the root of the layer, below it and without following a link. A deep
 * tree therefore needs no more descriptors than a flat one.
 */
#include "image/archive/pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "image/archive/unpack.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/map.h"
#include "lib/base/strv.h"
#include "lib/base/tar.h"
#include "lib/base/xalloc.h"
#include "lib/os/whiteout.h"

enum { PIECE = 256 << 10, LIST_MAX = 64 << 10, VALUE_MAX = 64 << 10, WHITEOUT_MODE = 0644 };

struct pack {
    int root, out;
    char *piece; /* owned: bytes that are not written yet */
    size_t len;
    struct tar_writer w;
    struct map links; /* inode -> path of its first name, owned, for files with several names */
    struct pack_stats stats;
};

/* Attributes of one entry. */
struct pack_attributes {
    char *names; /* owned: the result of flistxattr() */
    struct tar_xattr v[UNPACK_XATTRS_MAX];
    size_t n;
};

static void pack_attributes_done(struct pack_attributes *a)
{
    for (size_t i = 0; i < a->n; i++)
        free((void *)a->v[i].value);
    free(a->names);
}
#define _cleanup_attributes_ __attribute__((cleanup(pack_attributes_done)))

/* ---- bytes ---- */

static int pack_flush(struct pack *p)
{
    int r = fd_write_all(p->out, p->piece, p->len);

    p->len = 0;
    return r;
}

/* tar_write_fn */
static int pack_put_bytes(void *arg, const void *data, size_t len)
{
    struct pack *p = arg;
    int r = 0;

    while (r == 0 && len) {
        size_t n = MIN(len, (size_t)PIECE - p->len);

        memcpy(p->piece + p->len, data, n);
        p->len += n;
        data = (const char *)data + n;
        len -= n;
        if (p->len == PIECE)
            r = pack_flush(p);
    }
    return r;
}

/* ---- attributes ---- */

static int pack_by_name(const void *a, const void *b)
{
    return strcmp(((const struct tar_xattr *)a)->name, ((const struct tar_xattr *)b)->name);
}

static int pack_read_value(int fd, const char *name, struct pack_attributes *a, struct err *err)
{
    _cleanup_free_ char *value = xmalloc(VALUE_MAX);
    ssize_t n = fgetxattr(fd, name, value, VALUE_MAX);

    if (n < 0)
        return err_sys(err, errno, "read its attribute '%.100s'", name);
    if (a->n == UNPACK_XATTRS_MAX)
        return err_set(err, ERR_LIMIT, "too many extended attributes (the limit is %d)",
                       UNPACK_XATTRS_MAX);
    a->v[a->n++] = (struct tar_xattr){name, TAKE_PTR(value), (size_t)n};
    return 0;
}

static int pack_read_attributes(int fd, struct pack_attributes *a, struct err *err)
{
    ssize_t n = flistxattr(fd, NULL, 0);

    if (n == 0 || (n < 0 && errno == EOPNOTSUPP))
        return 0;
    a->names = xmalloc(LIST_MAX);
    n = flistxattr(fd, a->names, LIST_MAX);
    if (n < 0)
        return err_sys(err, errno, "list its attributes");
    for (const char *name = a->names; name < a->names + n; name += strlen(name) + 1) {
        int r = unpack_keeps_xattr(name) ? pack_read_value(fd, name, a, err) : 0;

        if (r < 0)
            return r;
    }
    if (a->n)
        qsort(a->v, a->n, sizeof(a->v[0]), pack_by_name);
    return 0;
}

/* ---- entries ---- */

static int pack_put_head(struct pack *p, struct tar_entry *e, const struct pack_attributes *a,
                         struct err *err)
{
    if (a) {
        e->xattrs = a->v;
        e->n_xattrs = a->n;
    }
    p->stats.entries++;
    return tar_put(&p->w, e, err);
}

static struct tar_entry *pack_entry_new(const char *path, const struct stat *st)
{
    struct tar_entry *e = xnew0(struct tar_entry);

    snprintf(e->path, sizeof(e->path), "%s", path);
    if (!st)
        return e;
    e->mode = st->st_mode & 07777;
    e->uid = st->st_uid;
    e->gid = st->st_gid;
    e->mtime = st->st_mtim.tv_sec;
    return e;
}

static int pack_put_data(struct pack *p, int fd, uint64_t size, struct err *err)
{
    _cleanup_free_ char *buf = xmalloc(PIECE);

    while (size) {
        ssize_t n = read(fd, buf, MIN(size, (uint64_t)PIECE));
        int r;

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, n < 0 ? errno : EIO, "read it");
        r = tar_write(&p->w, buf, (size_t)n, err);
        if (r < 0)
            return r;
        size -= (uint64_t)n;
    }
    return 0;
}

static int pack_put_file(struct pack *p, const char *path, const struct stat *st, struct err *err)
{
    _cleanup_close_ int fd = unpack_open(p->root, path, O_RDONLY | O_NONBLOCK);
    _cleanup_attributes_ struct pack_attributes a = {0};
    _cleanup_free_ struct tar_entry *e = pack_entry_new(path, st);
    int r;

    if (fd < 0)
        return err_sys(err, errno, "open it");
    r = pack_read_attributes(fd, &a, err);
    if (r < 0)
        return r;
    e->type = TAR_FILE;
    e->size = (uint64_t)st->st_size;
    r = pack_put_head(p, e, &a, err);
    if (r < 0)
        return r;
    return pack_put_data(p, fd, e->size, err);
}

static int pack_put_symlink(struct pack *p, const char *path, const struct stat *st,
                            struct err *err)
{
    _cleanup_free_ struct tar_entry *e = pack_entry_new(path, st);
    ssize_t n = readlinkat(p->root, path, e->link, sizeof(e->link) - 1);

    if (n < 0)
        return err_sys(err, errno, "read the link");
    e->link[n] = '\0';
    e->type = TAR_SYMLINK;
    e->mode = 0777;
    return pack_put_head(p, e, NULL, err);
}

static int pack_put_mark(struct pack *p, const char *path, struct err *err)
{
    _cleanup_free_ struct tar_entry *e = pack_entry_new(path, NULL);

    e->mode = WHITEOUT_MODE;
    return pack_put_head(p, e, NULL, err);
}

static int pack_put_whiteout(struct pack *p, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    int len = slash ? (int)(slash + 1 - path) : 0;
    _cleanup_free_ char *mark = xasprintf("%.*s.wh.%s", len, path, path + len);

    return pack_put_mark(p, mark, err);
}

/* 1: it was written as a link to an earlier entry. */
static int pack_put_link(struct pack *p, const char *path, const struct stat *st, struct err *err)
{
    _cleanup_free_ struct tar_entry *e = NULL;
    const char *first;
    char inode[32];
    int r;

    if (st->st_nlink < 2)
        return 0;
    snprintf(inode, sizeof(inode), "%llx", (unsigned long long)st->st_ino);
    first = map_get(&p->links, inode);
    if (!first) {
        map_add(&p->links, inode, xstrdup(path));
        return 0;
    }
    e = pack_entry_new(path, st);
    e->type = TAR_HARDLINK;
    snprintf(e->link, sizeof(e->link), "%s", first);
    r = pack_put_head(p, e, NULL, err);
    return r < 0 ? r : 1;
}

static int pack_put_other(struct pack *p, const char *path, const struct stat *st, struct err *err)
{
    int r;

    if (whiteout_is(st))
        return pack_put_whiteout(p, path, err);
    if (!S_ISREG(st->st_mode) && !S_ISLNK(st->st_mode)) {
        p->stats.dropped++;
        return 0;
    }
    r = pack_put_link(p, path, st, err);
    if (r != 0)
        return MIN(r, 0);
    return S_ISREG(st->st_mode) ? pack_put_file(p, path, st, err)
                                : pack_put_symlink(p, path, st, err);
}

/* ---- folders ---- */

static int pack_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Owns the descriptor. */
static int pack_list_names(int fd, char ***ret, struct err *err)
{
    _cleanup_closedir_ DIR *d = fdopendir(fd);
    const struct dirent *e;

    if (!d) {
        int saved = errno;

        fd_close(fd);
        return err_sys(err, saved, "read it");
    }
    for (errno = 0; (e = readdir(d)); errno = 0)
        if (!STREQ(e->d_name, ".") && !STREQ(e->d_name, ".."))
            strv_add(ret, e->d_name);
    if (errno)
        return err_sys(err, errno, "read it");
    if (*ret)
        qsort(*ret, strv_len(*ret), sizeof(**ret), pack_compare);
    return 0;
}

/* The root of the layer gets no entry if it has the default mode, owner and attributes: its time is
 * often only the time of unpacking, and would change the digest. */
static int pack_put_folder_entry(struct pack *p, const char *path, const struct stat *st, int fd,
                                 struct err *err)
{
    _cleanup_attributes_ struct pack_attributes a = {0};
    _cleanup_free_ struct tar_entry *e = NULL;
    _cleanup_free_ char *name = *path ? xasprintf("%s/", path) : xstrdup("./");
    int r = pack_read_attributes(fd, &a, err);

    if (r < 0)
        return r;
    if (!*path && (st->st_mode & 07777) == 0755 && !st->st_uid && !st->st_gid && !a.n)
        return 0;
    e = pack_entry_new(name, st);
    e->type = TAR_DIR;
    return pack_put_head(p, e, &a, err);
}

static int pack_put_any(struct pack *p, const char *path, unsigned depth, struct err *err);

static int pack_put_names(struct pack *p, const char *path, char *const *names, unsigned depth,
                          struct err *err)
{
    for (; names && *names; names++) {
        _cleanup_free_ char *child = xasprintf("%s%s%s", path, *path ? "/" : "", *names);
        const char *hidden;
        int r;

        if (whiteout_parse(*names, &hidden) != WHITEOUT_NONE)
            r = err_set(err, ERR_UNSUPPORTED, "the name is reserved for whiteouts in archives");
        else
            r = pack_put_any(p, child, depth + 1, err);
        if (r < 0)
            return err_wrap(err, "'%.200s'", *names);
    }
    return 0;
}

static int pack_put_folder(struct pack *p, const char *path, const struct stat *st, unsigned depth,
                           struct err *err)
{
    _cleanup_close_ int fd = unpack_open(p->root, *path ? path : ".", O_RDONLY | O_DIRECTORY);
    _cleanup_free_ char *mark = xasprintf("%s%s.wh..wh..opq", path, *path ? "/" : "");
    _cleanup_strv_ char **names = NULL;
    int r;

    if (fd < 0)
        return err_sys(err, errno, "open it");
    if (depth > UNPACK_DEPTH_MAX)
        return err_set(err, ERR_LIMIT, "the path is deeper than %d folders", UNPACK_DEPTH_MAX);
    r = pack_put_folder_entry(p, path, st, fd, err);
    if (r < 0)
        return r;
    if (whiteout_is_opaque(fd)) {
        r = pack_put_mark(p, mark, err);
        if (r < 0)
            return r;
    }
    r = pack_list_names(TAKE_FD(fd), &names, err);
    if (r < 0)
        return r;
    return pack_put_names(p, path, names, depth, err);
}

static int pack_put_any(struct pack *p, const char *path, unsigned depth, struct err *err)
{
    struct stat st;

    /* The limit of tar_entry, with a slash after the name of a folder. */
    if (strlen(path) + 2 > TAR_PATH_MAX)
        return err_set(err, ERR_LIMIT, "the path is longer than %d bytes", TAR_PATH_MAX - 2);
    if (fstatat(p->root, path, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0)
        return err_sys(err, errno, "stat it");
    return S_ISDIR(st.st_mode) ? pack_put_folder(p, path, &st, depth, err)
                               : pack_put_other(p, path, &st, err);
}

static void pack_done(struct pack *p)
{
    const char *inode;
    void *path;

    for (size_t i = 0; map_next(&p->links, &i, &inode, &path);)
        free(path);
    map_done(&p->links);
    free(p->piece);
}

int pack_layer(int dir, int out, struct pack_stats *ret, struct err *err)
{
    _cleanup_(pack_done) struct pack p = {.root = dir, .out = out, .piece = xmalloc(PIECE)};
    int r;

    tar_writer_init(&p.w, pack_put_bytes, &p);
    r = pack_put_any(&p, "", 0, err);
    if (r < 0)
        return r;
    r = tar_finish(&p.w, err);
    if (r < 0)
        return r;
    r = pack_flush(&p);
    if (r < 0)
        return err_sys(err, -r, "write archive");
    *ret = p.stats;
    return 0;
}
