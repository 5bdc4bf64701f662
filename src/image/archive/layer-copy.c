/*
 * Layers were created by unpack.c and never changed since. They contain only files, folders,
 * symbolic links and whiteouts, at most UNPACK_DEPTH_MAX deep. Names are looked up one by one below
 * an open folder, without following a link.
 */
#include "image/archive/layer-copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "image/archive/unpack.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/map.h"
#include "lib/base/xalloc.h"
#include "lib/os/whiteout.h"

enum { XATTR_NAMES_MAX = 64 << 10, XATTR_VALUE_MAX = 64 << 10, INODE_MAX = 24 };

struct layer_copy {
    int top; /* root of the new tree */
    bool owners;
    struct buf path;  /* of the current entry, from `top` */
    struct map links; /* inode -> path of its copy, owned, for files with several names */
    struct layer_copy_stats *stats;
    int depth;
};

/* ---- metadata ---- */

static int layer_copy_xattr(int from, int to, const char *name, struct err *err)
{
    _cleanup_free_ char *value = xmalloc(XATTR_VALUE_MAX);
    ssize_t n = fgetxattr(from, name, value, XATTR_VALUE_MAX);

    if (n < 0 || fsetxattr(to, name, value, (size_t)n, 0) < 0)
        return err_sys(err, errno, "copy attribute '%s'", name);
    return 0;
}

static int layer_copy_xattrs(int from, int to, struct err *err)
{
    _cleanup_free_ char *names = NULL;
    ssize_t n = flistxattr(from, NULL, 0);

    if (n <= 0)
        return n < 0 && errno != ENOTSUP ? err_sys(err, errno, "list attributes") : 0;
    names = xmalloc(XATTR_NAMES_MAX);
    n = flistxattr(from, names, XATTR_NAMES_MAX);
    if (n < 0)
        return err_sys(err, errno, "list attributes");
    for (const char *p = names; p < names + n; p += strlen(p) + 1) {
        int r = strncmp(p, "user.", 5) == 0 ? layer_copy_xattr(from, to, p, err) : 0;

        if (r < 0)
            return r;
    }
    return 0;
}

/* The owner before the mode, because fchown() clears set-uid bits; times last. */
static int layer_copy_attributes(const struct layer_copy *c, int from, int to,
                                 const struct stat *st, struct err *err)
{
    const struct timespec times[] = {st->st_atim, st->st_mtim};
    int r = layer_copy_xattrs(from, to, err);

    if (r < 0)
        return r;
    if (c->owners && fchown(to, st->st_uid, st->st_gid) < 0)
        return err_sys(err, errno, "set the owner");
    if (fchmod(to, st->st_mode & 07777) < 0 || futimens(to, times) < 0)
        return err_sys(err, errno, "set mode and time");
    return 0;
}

/* ---- files ---- */

static int layer_copy_range(int from, int to, off_t at, off_t end, struct err *err)
{
    off_t in = at, out = at;

    while (in < end) {
        ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(end - in), 0);

        if (n < 0 && errno != EINTR)
            return err_sys(err, errno, "copy bytes");
        if (n == 0)
            return err_set(err, ERR_SYSTEM, "the file became shorter during the copy");
    }
    return 0;
}

/* Shares the blocks if the file system can, else copies all data and keeps holes. */
static int layer_copy_bytes(int from, int to, off_t size, struct err *err)
{
    off_t at = 0;

    if (size == 0 || ioctl(to, FICLONE, from) == 0)
        return 0;
    if (ftruncate(to, size) < 0)
        return err_sys(err, errno, "set the size");
    while (at < size) {
        off_t data = lseek(from, at, SEEK_DATA), hole;
        int r;

        if (data < 0)
            return errno == ENXIO ? 0 : err_sys(err, errno, "find data in a file");
        hole = lseek(from, data, SEEK_HOLE);
        if (hole < 0)
            return err_sys(err, errno, "find a hole in a file");
        r = layer_copy_range(from, to, data, hole, err);
        if (r < 0)
            return r;
        at = hole;
    }
    return 0;
}

static int layer_copy_new_file(struct layer_copy *c, int from, int to, const char *name,
                               const struct stat *st, struct err *err)
{
    _cleanup_close_ int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_close_ int out = -1;
    int r;

    if (in < 0)
        return err_sys(err, errno, "open it");
    out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return err_sys(err, errno, "create it");
    r = layer_copy_bytes(in, out, st->st_size, err);
    if (r < 0)
        return r;
    r = layer_copy_attributes(c, in, out, st, err);
    if (r < 0)
        return r;
    c->stats->files++;
    c->stats->bytes += (uint64_t)st->st_size;
    return 0;
}

static int layer_copy_file(struct layer_copy *c, int from, int to, const char *name,
                           const struct stat *st, struct err *err)
{
    char inode[INODE_MAX];
    const char *first;

    if (st->st_nlink < 2)
        return layer_copy_new_file(c, from, to, name, st, err);
    snprintf(inode, sizeof(inode), "%llu", (unsigned long long)st->st_ino);
    first = map_get(&c->links, inode);
    if (first)
        return linkat(c->top, first, to, name, 0) < 0 ? err_sys(err, errno, "link it") : 0;
    map_add(&c->links, inode, xstrdup(buf_data(&c->path)));
    return layer_copy_new_file(c, from, to, name, st, err);
}

static int layer_copy_symlink(const struct layer_copy *c, int from, int to, const char *name,
                              const struct stat *st, struct err *err)
{
    const struct timespec times[] = {st->st_atim, st->st_mtim};
    char target[PATH_MAX];
    ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

    if (n < 0)
        return err_sys(err, errno, "read it");
    target[n] = '\0';
    if (symlinkat(target, to, name) < 0)
        return err_sys(err, errno, "create it");
    if (c->owners && fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "set its owner");
    return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? err_sys(err, errno, "set its time")
                                                               : 0;
}

/* ---- folders ---- */

static int layer_copy_entries(struct layer_copy *c, int from, int to, struct err *err);

static int layer_copy_folder(struct layer_copy *c, int from, int to, const char *name,
                             const struct stat *st, struct err *err)
{
    _cleanup_close_ int in = -1, out = -1;
    int r;

    if (c->depth >= UNPACK_DEPTH_MAX)
        return err_set(err, ERR_LIMIT, "the path is deeper than %d folders", UNPACK_DEPTH_MAX);
    if (mkdirat(to, name, 0700) < 0)
        return err_sys(err, errno, "create it");
    r = dir_open(from, name, &in, err);
    if (r < 0)
        return r;
    r = dir_open(to, name, &out, err);
    if (r < 0)
        return r;
    c->depth++;
    r = layer_copy_entries(c, in, out, err);
    c->depth--;
    if (r < 0)
        return r;
    return layer_copy_attributes(c, in, out, st, err);
}

static int layer_copy_entry(struct layer_copy *c, int from, int to, const char *name,
                            struct err *err)
{
    struct stat st;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "stat it");
    if (S_ISDIR(st.st_mode))
        return layer_copy_folder(c, from, to, name, &st, err);
    if (S_ISREG(st.st_mode))
        return layer_copy_file(c, from, to, name, &st, err);
    if (S_ISLNK(st.st_mode))
        return layer_copy_symlink(c, from, to, name, &st, err);
    if (whiteout_is(&st))
        return whiteout_make(to, name, err);
    return err_set(err, ERR_SYSTEM, "unsupported file type in a layer");
}

static int layer_copy_entries(struct layer_copy *c, int from, int to, struct err *err)
{
    size_t len = c->path.len;
    int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        r = err_sys(err, errno, "read folder '%s'", buf_data(&c->path));
        fd_close(fd);
        return r;
    }
    for (const struct dirent *e; (e = readdir(d));) {
        if (STREQ(e->d_name, ".") || STREQ(e->d_name, ".."))
            continue;
        if (buf_appendf(&c->path, "%s%s", len ? "/" : "", e->d_name) < 0)
            return err_set(err, ERR_LIMIT, "a path of the image is too long");
        r = layer_copy_entry(c, from, to, e->d_name, err);
        if (r < 0) {
            if (c->path.len) /* not empty: no inner folder has named the path yet */
                err_wrap(err, "copy '%s'", buf_data(&c->path));
            buf_clear(&c->path);
            return r;
        }
        buf_truncate(&c->path, len);
    }
    return 0;
}

static void layer_copy_done(struct layer_copy *c)
{
    const char *key;
    void *value;

    for (size_t i = 0; map_next(&c->links, &i, &key, &value);)
        free(value);
    map_done(&c->links);
    buf_done(&c->path);
}

int layer_copy_tree(int from, int to, bool owners, struct layer_copy_stats *stats, struct err *err)
{
    _cleanup_(layer_copy_done) struct layer_copy c = {.top = to,
                                                      .owners = owners,
                                                      .path = BUF_INIT(UNPACK_PATH_MAX),
                                                      .links = MAP_INIT,
                                                      .stats = stats};
    struct stat st;
    int r;

    if (fstat(from, &st) < 0)
        return err_sys(err, errno, "stat a layer");
    r = layer_copy_entries(&c, from, to, err);
    if (r < 0)
        return r;
    return layer_copy_attributes(&c, from, to, &st, err);
}

/* ---- an image ---- */

struct layer_copy_job {
    const struct images *store;
    const json_t *layers;
    int to;
    bool owners;
    struct layer_copy_stats *stats; /* shared with the child, if one runs this job */
};

static int layer_copy_layer(const struct layer_copy_job *j, const char *digest, struct err *err)
{
    _cleanup_free_ char *source = xasprintf("layers/%s/fs", digest_hex(digest));
    _cleanup_free_ char *target = xasprintf("%s/fs", digest_hex(digest));
    _cleanup_close_ int from = -1, to = -1;
    int r;

    if (mkdirat(j->to, digest_hex(digest), 0755) < 0)
        return errno == EEXIST ? 0 /* the layer occurs twice in the image */
                               : err_sys(err, errno, "create a layer folder");
    if (mkdirat(j->to, target, 0700) < 0)
        return err_sys(err, errno, "create a layer folder");
    r = dir_open(j->store->dir, source, &from, err);
    if (r < 0)
        return r;
    r = dir_open(j->to, target, &to, err);
    if (r < 0)
        return r;
    return layer_copy_tree(from, to, j->owners, j->stats, err);
}

static int layer_copy_layers(const struct layer_copy_job *j, struct err *err)
{
    const json_t *layer;
    size_t i;

    json_array_foreach (j->layers, i, layer) {
        int r;

        if (!digest_is_valid(json_string_value(layer)))
            return err_set(err, ERR_SYSTEM, "the image record is damaged");
        r = layer_copy_layer(j, json_string_value(layer), err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* submap_run() returns only a number; the message goes to the log. */
static int layer_copy_mapped(void *arg)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (layer_copy_layers(arg, &err) >= 0)
        return 0;
    fprintf(stderr, "%s\n", err.msg);
    return err.errnum > 0 && err.errnum < 255 ? err.errnum : EIO;
}

static int layer_copy_as(const struct confined_ids *ids, struct layer_copy_job *j, struct err *err)
{
    int r;

    if (ids->kind != CONFINED_SUB)
        return layer_copy_layers(j, err);
    r = submap_run(&ids->sub, layer_copy_mapped, j, err);
    return r > 0 ? err_sys(err, r, "copy the layers") : r;
}

int layer_copy_image(const struct images *s, const struct confined_ids *ids, const char *id, int to,
                     struct layer_copy_stats *ret, struct err *err)
{
    struct layer_copy_job j = {.store = s, .to = to, .owners = ids->kind != CONFINED_OWN};
    _cleanup_json_ json_t *record = NULL;
    int r;

    r = images_read(s, id, &record, err);
    if (r < 0)
        return r;
    j.layers = json_object_get(record, "layers");
    j.stats =
        mmap(NULL, sizeof(*j.stats), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (j.stats == MAP_FAILED)
        return err_sys(err, errno, "allocate shared memory");
    r = layer_copy_as(ids, &j, err);
    if (r >= 0)
        *ret = *j.stats;
    munmap(j.stats, sizeof(*j.stats));
    return r;
}
