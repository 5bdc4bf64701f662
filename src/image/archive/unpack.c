/*
 * The parent folder of each entry is opened with openat2() below the layer, without following
 * links, and the entry is created by its last name alone. The open parent is kept for the next
 * entry, because archives list the entries of a folder together.
 *
 * Modes and times of folders are set at the end: entries that are created in a folder later would
 * change them.
 */
#include "image/archive/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "lib/os/whiteout.h"
#include "proto/digest-context.h"

enum { BLOCK = 256 << 10, XATTR_MAX = 64 << 10 };

/* A folder that gets its mode and time at the end. */
struct unpack_folder {
    char *path;
    mode_t mode;
    struct timespec mtime;
};

struct unpack {
    struct archive *archive;
    int root;
    unsigned flags; /* enum unpack_flags */
    uint64_t max;   /* bytes of files */
    struct unpack_stats stats;
    int parent; /* of the last entry; -1: not open */
    char parent_path[UNPACK_PATH_MAX];
    struct unpack_folder *folders; /* owned */
    size_t n_folders;
};

/* The entry that is being unpacked. */
struct unpack_item {
    struct archive_entry *e;
    char path[UNPACK_PATH_MAX];
    const char *name; /* its last component, in path */
    int parent;       /* borrowed from struct unpack */
    mode_t mode;
    uid_t uid;
    gid_t gid;
    struct timespec mtime;
};

/* ---- names ---- */

static int unpack_add_component(const char *at, size_t n, char *ret, size_t *len, struct err *err)
{
    if (n > NAME_MAX)
        return err_set(err, ERR_INVALID, "a name in the path has %zu bytes", n);
    if (n == 2 && at[0] == '.' && at[1] == '.')
        return err_set(err, ERR_DENIED, "the path contains '..'");
    if (*len + n + 2 > UNPACK_PATH_MAX)
        return err_set(err, ERR_INVALID, "the path is longer than %d bytes", UNPACK_PATH_MAX - 1);
    if (*len)
        ret[(*len)++] = '/';
    memcpy(ret + *len, at, n);
    *len += n;
    return 0;
}

int unpack_name(const char *name, char ret[static UNPACK_PATH_MAX], struct err *err)
{
    size_t len = 0, depth = 0;

    if (*name == '/')
        return err_set(err, ERR_DENIED, "the path is absolute");
    while (*name) {
        size_t n = strcspn(name, "/");

        if (n && !(n == 1 && *name == '.')) {
            int r = unpack_add_component(name, n, ret, &len, err);

            if (r < 0)
                return r;
            if (++depth > UNPACK_DEPTH_MAX)
                return err_set(err, ERR_INVALID, "the path is deeper than %d folders",
                               UNPACK_DEPTH_MAX);
        }
        name += n + (name[n] == '/');
    }
    ret[len] = '\0';
    return 0;
}

/* ---- places ---- */

int unpack_open(int dir, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC | O_NOFOLLOW,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                      RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};

    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

static void unpack_forget_parent(struct unpack *u)
{
    u->parent = fd_close(u->parent);
}

/* Creates the parent folders that have no entry of their own: owned by root, mode 0755. */
static int unpack_make_parents(struct unpack *u, char *path, struct err *err)
{
    for (char *slash = path;;) {
        slash = strchr(slash, '/');
        if (slash)
            *slash = '\0';
        if (mkdirat(u->root, path, 0755) < 0 && errno != EEXIST)
            return err_sys(err, errno, "create folder '%s'", path);
        if (!slash)
            return 0;
        *slash++ = '/';
    }
}

/* mkdirat() in unpack_make_parents() would follow a link in the path, so each parent is checked
 * before, from the top. */
static int unpack_check_parents(struct unpack *u, char *path, struct err *err)
{
    for (char *slash = path;;) {
        struct stat st;

        slash = strchr(slash, '/');
        if (slash)
            *slash = '\0';
        if (fstatat(u->root, path, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            if (slash)
                *slash = '/';
            return errno == ENOENT ? 0 : err_sys(err, errno, "stat '%s'", path);
        }
        if (!S_ISDIR(st.st_mode))
            return err_set(err, ERR_DENIED, "the path goes through '%s', which is %s", path,
                           S_ISLNK(st.st_mode) ? "a link" : "not a folder");
        if (!slash)
            return 0;
        *slash++ = '/';
    }
}

static int unpack_open_parent(struct unpack *u, char *path, struct err *err)
{
    int r;

    if (u->parent >= 0 && STREQ(path, u->parent_path))
        return 0;
    unpack_forget_parent(u);
    u->parent = unpack_open(u->root, *path ? path : ".", O_PATH | O_DIRECTORY);
    if (u->parent < 0) {
        r = unpack_check_parents(u, path, err);
        if (r < 0)
            return r;
        r = unpack_make_parents(u, path, err);
        if (r < 0)
            return r;
        u->parent = unpack_open(u->root, path, O_PATH | O_DIRECTORY);
    }
    if (u->parent < 0)
        return err_sys(err, errno, "open folder '%s'", path);
    snprintf(u->parent_path, sizeof(u->parent_path), "%s", path);
    return 0;
}

/* Sets it->name, and opens or creates the parent. */
static int unpack_find_place(struct unpack *u, struct unpack_item *it, struct err *err)
{
    char *slash = strrchr(it->path, '/');
    int r;

    it->name = slash ? slash + 1 : it->path;
    if (slash)
        *slash = '\0';
    r = unpack_open_parent(u, slash ? it->path : (char *)"", err);
    if (slash)
        *slash = '/';
    it->parent = u->parent;
    return r;
}

/* ---- metadata ---- */

bool unpack_keeps_xattr(const char *name)
{
    return strncmp(name, "user.", 5) == 0 && strncmp(name, "user.overlay.", 13) != 0 &&
           !STREQ(name, DIGEST_CONTEXT_XATTR);
}

/* The attribute with the digest of an omitted file: unlike others, it must not be dropped. */
static bool unpack_is_digest_only(const struct unpack *u, const struct unpack_item *it,
                                  const char *name)
{
    return (u->flags & UNPACK_DIGEST_ONLY) && STREQ(name, DIGEST_CONTEXT_XATTR) &&
           archive_entry_filetype(it->e) == AE_IFREG && archive_entry_size(it->e) == 0;
}

static int unpack_set_xattrs(struct unpack *u, const struct unpack_item *it, int fd,
                             struct err *err)
{
    const char *name;
    const void *value;
    size_t size;

    if (archive_entry_xattr_count(it->e) > UNPACK_XATTRS_MAX)
        return err_set(err, ERR_LIMIT, "too many extended attributes (the limit is %d)",
                       UNPACK_XATTRS_MAX);
    archive_entry_xattr_reset(it->e);
    while (archive_entry_xattr_next(it->e, &name, &value, &size) == ARCHIVE_OK) {
        bool digest_only = name && unpack_is_digest_only(u, it, name);
        bool wanted = name && (digest_only || unpack_keeps_xattr(name)) && size <= XATTR_MAX;

        if (wanted && fsetxattr(fd, name, value, size, 0) == 0)
            continue;
        if (digest_only)
            return err_set(err, ERR_UNSUPPORTED, "the file system cannot mark omitted files (%s)",
                           strerror(errno));
        if (wanted && errno != EOPNOTSUPP && errno != ENOSPC) /* the file system cannot keep it */
            return err_sys(err, errno, "set its attribute '%.100s'", name);
        u->stats.dropped++;
    }
    return 0;
}

static int unpack_set_owner(const struct unpack *u, const struct unpack_item *it, int fd,
                            struct err *err)
{
    if ((u->flags & UNPACK_OWNERS) && fchown(fd, it->uid, it->gid) < 0)
        return err_sys(err, errno, "set the owner to %u:%u", it->uid, it->gid);
    return 0;
}

static int unpack_read_metadata(const struct unpack *u, struct unpack_item *it, struct err *err)
{
    int64_t uid = archive_entry_uid(it->e), gid = archive_entry_gid(it->e);
    int64_t seconds = archive_entry_mtime_is_set(it->e) ? archive_entry_mtime(it->e) : 0;

    if ((u->flags & UNPACK_OWNERS) &&
        (uid < 0 || gid < 0 || uid > UNPACK_ID_MAX || gid > UNPACK_ID_MAX))
        return err_set(err, ERR_UNSUPPORTED,
                       "the owner %lld:%lld is out of range (the largest id is %d)", (long long)uid,
                       (long long)gid, UNPACK_ID_MAX);
    it->uid = (uid_t)uid;
    it->gid = (gid_t)gid;
    it->mode = archive_entry_perm(it->e) & 07777;
    /* A time that file systems cannot store becomes 0; the image is still accepted. */
    it->mtime.tv_sec = seconds < 0 || seconds > INT32_MAX ? 0 : seconds;
    return 0;
}

/* ---- kinds of entries ---- */

/* Removes an earlier entry with the same name: the later one counts. */
static int unpack_clear_place(const struct unpack_item *it, struct err *err)
{
    struct stat st;

    if (fstatat(it->parent, it->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return unlinkat(it->parent, it->name, 0) < 0 ? err_sys(err, errno, "replace it") : 0;
    return rmtree(it->parent, it->name, err);
}

static int unpack_write_block(int fd, const char *data, size_t len, int64_t at, struct err *err)
{
    while (len) {
        ssize_t n = pwrite(fd, data, len, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, n < 0 ? errno : EIO, "write it");
        data += n;
        len -= (size_t)n;
        at += n;
    }
    return 0;
}

static int unpack_archive_error(struct archive *a, struct err *err)
{
    const char *why = archive_error_string(a);

    return err_set(err, ERR_INVALID, "%s", why ? why : "the archive is damaged");
}

static int unpack_too_large(const struct unpack *u, struct err *err)
{
    return err_set(err, ERR_LIMIT, "larger than the %llu bytes that are left of the size limit",
                   (unsigned long long)(u->max - u->stats.bytes));
}

static int unpack_write_data(struct unpack *u, int fd, struct err *err)
{
    uint64_t room = u->max - u->stats.bytes;
    int64_t end = 0;

    for (;;) {
        const void *data;
        int64_t at;
        size_t len;
        int r = archive_read_data_block(u->archive, &data, &len, &at);

        if (r == ARCHIVE_EOF)
            break;
        if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
            return unpack_archive_error(u->archive, err);
        if (at < end || len > room || (uint64_t)at > room - len)
            return unpack_too_large(u, err);
        end = at + (int64_t)len;
        r = unpack_write_block(fd, data, len, at, err);
        if (r < 0)
            return r;
    }
    u->stats.bytes += (uint64_t)end;
    return 0;
}

/* A sparse file may end with a hole. */
static int unpack_set_size(struct unpack *u, const struct unpack_item *it, int fd, struct err *err)
{
    int64_t size = archive_entry_size(it->e);
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "stat it");
    if (size <= st.st_size)
        return 0;
    if ((uint64_t)(size - st.st_size) > u->max - u->stats.bytes)
        return unpack_too_large(u, err);
    u->stats.bytes += (uint64_t)(size - st.st_size);
    return ftruncate(fd, size) < 0 ? err_sys(err, errno, "set its size") : 0;
}

static int unpack_put_file(struct unpack *u, struct unpack_item *it, struct err *err)
{
    const struct timespec times[2] = {it->mtime, it->mtime};
    _cleanup_close_ int fd = -1;
    int r;

    r = unpack_clear_place(it, err);
    if (r < 0)
        return r;
    fd = unpack_open(it->parent, it->name, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return err_sys(err, errno, "create it");
    r = unpack_write_data(u, fd, err);
    if (r < 0)
        return r;
    r = unpack_set_size(u, it, fd, err);
    if (r < 0)
        return r;
    r = unpack_set_owner(u, it, fd, err);
    if (r < 0)
        return r;
    r = unpack_set_xattrs(u, it, fd, err);
    if (r < 0)
        return r;
    if (fchmod(fd, it->mode) < 0) /* after fchown(), which clears set-uid bits */
        return err_sys(err, errno, "set its mode");
    return futimens(fd, times) < 0 ? err_sys(err, errno, "set its time") : 0;
}

/* A folder that exists in this layer keeps its contents. A folder in place of a whiteout hides the
 * lower layers. */
static int unpack_make_folder(const struct unpack_item *it, bool *hides, struct err *err)
{
    struct stat st;
    int r;

    *hides = false;
    if (fstatat(it->parent, it->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (S_ISDIR(st.st_mode))
            return 0;
        *hides = whiteout_is(&st);
        r = unpack_clear_place(it, err);
        if (r < 0)
            return r;
    }
    return mkdirat(it->parent, it->name, 0755) < 0 ? err_sys(err, errno, "create it") : 0;
}

static int unpack_put_folder(struct unpack *u, struct unpack_item *it, struct err *err)
{
    _cleanup_close_ int fd = -1;
    bool hides = false;
    int r;

    if (*it->path) {
        r = unpack_make_folder(it, &hides, err);
        if (r < 0)
            return r;
    }
    fd = unpack_open(*it->path ? it->parent : u->root, *it->path ? it->name : ".",
                     O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return err_sys(err, errno, "open it");
    r = unpack_set_owner(u, it, fd, err);
    if (r < 0)
        return r;
    r = unpack_set_xattrs(u, it, fd, err);
    if (r < 0)
        return r;
    if (hides) {
        r = whiteout_opaque(fd, err);
        if (r < 0)
            return r;
    }
    if ((u->n_folders & (u->n_folders - 1)) == 0)
        u->folders =
            xreallocarray(u->folders, u->n_folders ? 2 * u->n_folders : 1, sizeof(*u->folders));
    u->folders[u->n_folders++] = (struct unpack_folder){xstrdup(it->path), it->mode, it->mtime};
    return 0;
}

static int unpack_put_symlink(struct unpack *u, struct unpack_item *it, struct err *err)
{
    const struct timespec times[2] = {it->mtime, it->mtime};
    const char *target = archive_entry_symlink(it->e);
    int r;

    if (!target || !*target || strlen(target) >= UNPACK_PATH_MAX)
        return err_set(err, ERR_INVALID, "symbolic link without a target");
    r = unpack_clear_place(it, err);
    if (r < 0)
        return r;
    if (symlinkat(target, it->parent, it->name) < 0)
        return err_sys(err, errno, "create it");
    if ((u->flags & UNPACK_OWNERS) &&
        fchownat(it->parent, it->name, it->uid, it->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "set the owner to %u:%u", it->uid, it->gid);
    utimensat(it->parent, it->name, times, AT_SYMLINK_NOFOLLOW); /* not all file systems can */
    return 0;
}

/* Only files of this layer: tools write a full copy of a file that is linked from a lower layer. */
static int unpack_open_target(struct unpack *u, const char *target, int *ret, struct err *err)
{
    char path[UNPACK_PATH_MAX];
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r;

    r = unpack_name(target, path, err);
    if (r < 0)
        return err_wrap(err, "hard link to '%.200s'", target);
    fd = unpack_open(u->root, *path ? path : ".", O_PATH);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_DENIED, "hard link to '%.200s', which is not in this layer (%s)",
                       target, strerror(errno));
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return err_set(err, ERR_DENIED, "hard link to '%.200s', which is not a file", target);
    *ret = TAKE_FD(fd);
    return 0;
}

static int unpack_put_hardlink(struct unpack *u, struct unpack_item *it, struct err *err)
{
    const char *target = archive_entry_hardlink(it->e);
    char path[UNPACK_PATH_MAX];
    _cleanup_close_ int fd = -1;
    int r;

    r = unpack_open_target(u, target, &fd, err);
    if (r < 0)
        return r;
    unpack_name(target, path, NULL);
    if (STREQ(path, it->path))
        return 0;
    r = unpack_clear_place(it, err);
    if (r < 0)
        return r;
    /* By name, because linking a descriptor needs /proc, which a child does not have. linkat()
     * follows no link, and no other process writes to this layer. */
    if (linkat(u->root, path, it->parent, it->name, 0) < 0)
        return err_sys(err, errno, "create it");
    return 0;
}

/* ---- whiteouts ---- */

/* Hides the name in lower layers. An entry of this layer with that name stays. */
static int unpack_put_whiteout(struct unpack_item *it, const char *hidden, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (fstatat(it->parent, hidden, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return whiteout_make(it->parent, hidden, err);
    if (!S_ISDIR(st.st_mode))
        return 0;
    fd = unpack_open(it->parent, hidden, O_RDONLY | O_DIRECTORY);
    return fd < 0 ? err_sys(err, errno, "open '%s'", hidden) : whiteout_opaque(fd, err);
}

static int unpack_put_opaque(struct unpack_item *it, struct err *err)
{
    _cleanup_close_ int fd = unpack_open(it->parent, ".", O_RDONLY | O_DIRECTORY);

    return fd < 0 ? err_sys(err, errno, "open its folder") : whiteout_opaque(fd, err);
}

static int unpack_put_mark(struct unpack *u, struct unpack_item *it, struct err *err)
{
    const char *hidden;

    switch (whiteout_parse(it->name, &hidden)) {
    case WHITEOUT_HIDES:
        return unpack_put_whiteout(it, hidden, err);
    case WHITEOUT_OPAQUE:
        return unpack_put_opaque(it, err);
    case WHITEOUT_OTHER:
        u->stats.dropped++;
        return 0;
    case WHITEOUT_NONE:
    case WHITEOUT_BAD:
        break;
    }
    return err_set(err, ERR_INVALID, "invalid whiteout name");
}

/* ---- the archive ---- */

static int unpack_put_by_type(struct unpack *u, struct unpack_item *it, struct err *err)
{
    if (archive_entry_hardlink(it->e))
        return unpack_put_hardlink(u, it, err);
    switch (archive_entry_filetype(it->e)) {
    case AE_IFREG:
        return unpack_put_file(u, it, err);
    case AE_IFDIR:
        return unpack_put_folder(u, it, err);
    case AE_IFLNK:
        return unpack_put_symlink(u, it, err);
    default:
        u->stats.dropped++;
        return 0;
    }
}

static int unpack_put_entry(struct unpack *u, struct unpack_item *it, struct err *err)
{
    const char *hidden;
    int r;

    r = unpack_read_metadata(u, it, err);
    if (r < 0)
        return r;
    if (!*it->path)
        return archive_entry_filetype(it->e) == AE_IFDIR
                   ? unpack_put_folder(u, it, err)
                   : err_set(err, ERR_INVALID, "the entry for the layer's root is not a folder");
    r = unpack_find_place(u, it, err);
    if (r < 0)
        return r;
    if (whiteout_parse(it->name, &hidden) != WHITEOUT_NONE)
        return unpack_put_mark(u, it, err);
    return unpack_put_by_type(u, it, err);
}

static int unpack_take_entry(struct unpack *u, struct archive_entry *e, struct err *err)
{
    struct unpack_item it = {.e = e, .parent = -1};
    const char *name = archive_entry_pathname(e);
    int r;

    if (!name)
        return err_set(err, ERR_INVALID, "an entry has no readable name");
    if (++u->stats.entries > UNPACK_ENTRIES_MAX)
        return err_set(err, ERR_LIMIT, "too many entries (the limit is %d)", UNPACK_ENTRIES_MAX);
    r = unpack_name(name, it.path, err);
    if (r < 0)
        return err_wrap(err, "entry '%.200s'", name);
    r = unpack_put_entry(u, &it, err);
    if (r < 0)
        return err_wrap(err, "entry '%.200s'", name);
    return 0;
}

static int unpack_take_all(struct unpack *u, struct err *err)
{
    struct archive_entry *e;

    for (;;) {
        int r = archive_read_next_header(u->archive, &e);

        if (r == ARCHIVE_EOF)
            return 0;
        if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
            return unpack_archive_error(u->archive, err);
        r = unpack_take_entry(u, e, err);
        if (r < 0)
            return r;
    }
}

static int unpack_finish_folders(struct unpack *u, struct err *err)
{
    /* In order, because of two entries for one folder the later one counts. */
    for (size_t i = 0; i < u->n_folders; i++) {
        const struct unpack_folder *l = &u->folders[i];
        const struct timespec times[2] = {l->mtime, l->mtime};
        _cleanup_close_ int fd =
            unpack_open(u->root, *l->path ? l->path : ".", O_RDONLY | O_DIRECTORY);

        if (fd < 0)
            continue; /* a later entry has replaced it */
        if (fchmod(fd, l->mode) < 0 || futimens(fd, times) < 0)
            return err_sys(err, errno, "set mode and time of '%s'", l->path);
    }
    return 0;
}

static void unpack_done(struct unpack *u)
{
    unpack_forget_parent(u);
    for (size_t i = 0; i < u->n_folders; i++)
        free(u->folders[i].path);
    free(u->folders);
    archive_read_free(u->archive);
}

int unpack_layer(int in, int dir, unsigned flags, uint64_t max, struct unpack_stats *ret,
                 struct err *err)
{
    _cleanup_(unpack_done) struct unpack u = {
        .archive = archive_read_new(), .root = dir, .flags = flags, .max = max, .parent = -1};
    int r;

    archive_read_support_format_tar(u.archive);
    /* Mode and owner for a layer without an entry for its root. */
    if ((flags & UNPACK_OWNERS) && fchown(dir, 0, 0) < 0)
        return err_sys(err, errno, "set the owner of the layer's folder");
    if (fchmod(dir, 0755) < 0)
        return err_sys(err, errno, "set the mode of the layer's folder");
    if (archive_read_open_fd(u.archive, in, BLOCK) != ARCHIVE_OK)
        return unpack_archive_error(u.archive, err);
    r = unpack_take_all(&u, err);
    if (r < 0)
        return r;
    r = unpack_finish_folders(&u, err);
    if (r < 0)
        return r;
    *ret = u.stats;
    return 0;
}
