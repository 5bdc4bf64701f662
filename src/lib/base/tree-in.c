/*
 * Each entry is created through a descriptor of its parent folder. That folder is opened below
 * the destination, and no symlink is followed. So neither the archive nor a process
 * that swaps folders for links can make a write go elsewhere. Links, and files without
 * rules->through, are created under a temporary name and renamed: a reader sees the old one or the
 * new one. With rules->through the last name of a file may be a link that was there before.
 */
#include "lib/base/tree.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/name-set.h"
#include "lib/base/xalloc.h"

enum { TREE_CHUNK = 256 << 10, TEMP_NAME_SIZE = 40, TREE_LINKS_MAX = 1 << 20 };

static const struct tree_rules tree_in_own; /* of callers that give none */
static const uint64_t tree_in_below = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;

/*
 * A folder that we made. Its mode may forbid writing, and its mtime changes with every entry, so
 * both are set after its last entry. Archives go depth first, so a stack as deep as the tree is
 * enough.
 */
struct late_dir {
    struct late_dir *up;
    mode_t mode;
    int64_t mtime;
    char path[];
};

struct placer {
    struct tar_reader tar;
    struct tree_stats *stats;
    const struct tree_rules *rules;
    int dest;              /* the folder that names are relative to */
    const char *dest_path; /* its path, for errors */
    const char *rename;    /* the top entry's new name, or NULL: it keeps its own */
    char *top;             /* owned; the one top name seen, when renaming; "" for "." */
    struct late_dir *late; /* owned */
    struct name_set links; /* with rules->through: names of links that the archive made */
    char *chunk;           /* owned */
    char temp[TEMP_NAME_SIZE];
};

/* The whole path of an entry. */
static char *tree_in_shown(const struct placer *p, const char *name)
{
    const char *dir = p->dest_path;

    if (STREQ(dir, "."))
        return xstrdup(name);
    if (STREQ(name, "."))
        return xstrdup(dir);
    return xasprintf("%s%s%s", dir, dir[strlen(dir) - 1] == '/' ? "" : "/", name);
}

static int tree_in_err(const struct placer *p, struct err *err, int errnum, const char *what,
                       const char *name)
{
    _cleanup_free_ char *shown = tree_in_shown(p, name);

    return tree_err(err, errnum, "%s '%s'", what, shown);
}

static int tree_in_open(int dirfd, const char *path, int flags, uint64_t resolve)
{
    return fd_open_resolved(dirfd, path, flags, 0, resolve);
}

static int tree_in_open_below(int dirfd, const char *path, int flags)
{
    return tree_in_open(dirfd, path, flags, GUARD("beneath") ? tree_in_below : 0);
}

/* ---- names ---- */

/* Copies `path` to `ret` without leading "/", "//" and "."; `ret` is as long as `path`. */
static int tree_in_normalize(const char *path, char *ret, struct err *err)
{
    size_t at = 0;

    for (const char *c = path; *c; c += strspn(c, "/")) {
        size_t len = strcspn(c, "/");

        if (len == 2 && memcmp(c, "..", 2) == 0 && GUARD("dotdot"))
            return err_set(err, ERR_DENIED, "archive entry '%.80s' points outside its folder",
                           path);
        if (len && !(len == 1 && *c == '.')) {
            if (at)
                ret[at++] = '/';
            memcpy(ret + at, c, len);
            at += len;
        }
        c += len;
    }
    ret[at] = '\0';
    return 0;
}

/* Where an entry goes, relative to p->dest; "." for that folder itself. */
static int tree_in_place_name(struct placer *p, const char *path, char **ret, struct err *err)
{
    _cleanup_free_ char *clean = xmalloc(strlen(path) + 1), *shown = NULL;
    size_t top;
    int r;

    r = tree_in_normalize(path, clean, err);
    if (r < 0)
        return r;
    if (!p->rename) {
        *ret = *clean ? TAKE_PTR(clean) : xstrdup(".");
        return 0;
    }
    top = strcspn(clean, "/");
    if (!p->top)
        p->top = xstrndup(clean, top);
    if (*p->top == '\0') { /* all that follows "." lies in it */
        *ret = xasprintf("%s%s%s", p->rename, *clean ? "/" : "", clean);
        return 0;
    }
    if (strlen(p->top) != top || memcmp(p->top, clean, top) != 0) {
        shown = tree_in_shown(p, p->rename);
        err_set(err, ERR_NOT_FOUND, "'%s' is not a folder, and the archive has several top entries",
                shown);
        return err_hint(err, "Make the folder first.");
    }
    *ret = xasprintf("%s%s", p->rename, clean + top);
    return 0;
}

/* ---- folders ---- */

/* 0, or -1 with errno: EEXIST if the name is taken. */
static int tree_in_mkdir(const struct placer *p, int dirfd, const char *name, mode_t mode)
{
    _cleanup_close_ int fd = -1;

    if (mkdirat(dirfd, name, mode) < 0)
        return -1;
    if (!p->rules->has_owner)
        return 0;
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -1 : fchown(fd, p->rules->uid, p->rules->gid);
}

static int tree_in_make_and_open(const struct placer *p, int dirfd, const char *name,
                                 uint64_t resolve)
{
    int fd = tree_in_open(dirfd, name, O_PATH | O_DIRECTORY, resolve);

    if (fd >= 0 || errno != ENOENT)
        return fd;
    if (tree_in_mkdir(p, dirfd, name, 0777) < 0 && errno != EEXIST)
        return -1;
    return tree_in_open(dirfd, name, O_PATH | O_DIRECTORY, resolve);
}

/* The folder `path` below `from`. Missing folders on the way are made. -1 with errno. */
static int tree_in_make_path(const struct placer *p, int from, const char *path, uint64_t resolve)
{
    int fd = fcntl(from, F_DUPFD_CLOEXEC, 0);

    for (const char *c = path + strspn(path, "/"); *c && fd >= 0; c += strspn(c, "/")) {
        size_t len = strcspn(c, "/");
        _cleanup_free_ char *name = xstrndup(c, len);
        int next = tree_in_make_and_open(p, fd, name, resolve);

        fd_close(fd);
        fd = next;
        c += len;
    }
    return fd;
}

/* A folder of the archive may be missing, but it may not be a link. */
static int tree_in_open_folder(struct placer *p, const char *path, int *ret, struct err *err)
{
    int fd = tree_in_open_below(p->dest, path, O_PATH | O_DIRECTORY), r;

    if (fd < 0 && errno == ENOENT)
        fd = tree_in_make_path(p, p->dest, path, GUARD("beneath") ? tree_in_below : 0);
    if (fd >= 0) {
        *ret = fd;
        return 0;
    }
    r = tree_in_err(p, err, errno, "open folder", path);
    if (err && err->errnum == ELOOP)
        err_hint(err, "A link is in the way. Copy to the folder that it names.");
    return r;
}

/* The parent folder of `name`; *ret_base points into name. */
static int tree_in_open_parent(struct placer *p, char *name, int *ret, const char **ret_base,
                               struct err *err)
{
    char *slash = strrchr(name, '/');
    int fd, r;

    *ret_base = slash ? slash + 1 : name;
    if (!slash) {
        fd = fcntl(p->dest, F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            return err_sys(err, errno, "dup");
        *ret = fd;
        return 0;
    }
    *slash = '\0';
    r = tree_in_open_folder(p, name, ret, err);
    *slash = '/';
    return r;
}

static void tree_in_late_push(struct placer *p, const char *path, const struct tar_entry *e)
{
    size_t len = strlen(path) + 1;
    struct late_dir *d = xmalloc(sizeof(*d) + len);

    *d = (struct late_dir){.up = p->late, .mode = e->mode & 0777, .mtime = e->mtime};
    memcpy(d->path, path, len);
    p->late = d;
}

static void tree_in_times(int64_t mtime, struct timespec ret[static 2])
{
    ret[0] = (struct timespec){.tv_nsec = UTIME_NOW};
    ret[1] = (struct timespec){.tv_sec = mtime};
}

/* Ignores errors: a mode or time that cannot be set must not fail the copy. */
static void tree_in_late_pop(struct placer *p)
{
    struct late_dir *d = p->late;
    struct timespec times[2];
    _cleanup_close_ int fd = tree_in_open_below(p->dest, d->path, O_RDONLY | O_DIRECTORY);

    tree_in_times(d->mtime, times);
    if (fd >= 0) {
        (void)futimens(fd, times);
        (void)fchmod(fd, d->mode);
    }
    p->late = d->up;
    free(d);
}

/* Sets mode and time of the folders that do not contain `path`; NULL: of all folders. */
static void tree_in_late_leave(struct placer *p, const char *path)
{
    while (p->late) {
        size_t len = strlen(p->late->path);

        if (path && strncmp(path, p->late->path, len) == 0 && path[len] == '/')
            return;
        tree_in_late_pop(p);
    }
}

static int tree_in_place_dir(struct placer *p, int parent, const char *base, const char *path,
                             const struct tar_entry *e, struct err *err)
{
    _cleanup_close_ int fd = -1;

    if (STREQ(base, "."))
        return 0;
    if (tree_in_mkdir(p, parent, base, 0700) == 0) {
        tree_in_late_push(p, path, e);
        return 0;
    }
    if (errno != EEXIST)
        return tree_in_err(p, err, errno, "make folder", path);
    fd = tree_in_open_below(parent, base, O_PATH | O_DIRECTORY);
    return fd < 0 ? tree_in_err(p, err, errno, "open folder", path) : 0;
}

/* ---- files and links ---- */

static int tree_in_write_data(struct placer *p, int fd, const char *path, struct err *err)
{
    ssize_t n;
    int r;

    while ((n = tar_read(&p->tar, p->chunk, TREE_CHUNK, err)) > 0) {
        r = fd_write_all(fd, p->chunk, (size_t)n);
        if (r < 0)
            return tree_in_err(p, err, -r, "write", path);
        p->stats->bytes += (uint64_t)n;
    }
    return (int)n;
}

static mode_t tree_in_file_mode(const struct placer *p, const struct tar_entry *e)
{
    if (p->rules->has_mode)
        return p->rules->mode;
    return e->mode & (GUARD("set-id bits") ? 0777 : 07777);
}

static int tree_in_place_temp_file(struct placer *p, int parent, const char *path,
                                   const struct tar_entry *e, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    fd = openat(parent, p->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return tree_in_err(p, err, errno, "create", path);
    r = tree_in_write_data(p, fd, path, err);
    if (r < 0)
        return r;
    if (p->rules->has_owner && fchown(fd, p->rules->uid, p->rules->gid) < 0)
        return tree_in_err(p, err, errno, "change the owner of", path);
    if (fchmod(fd, tree_in_file_mode(p, e)) < 0)
        return tree_in_err(p, err, errno, "set the mode of", path);
    return 0;
}

/* The old content is gone once the file is open, so a later failure says what is left. */
static int tree_in_place_through(struct placer *p, int parent, const char *base, const char *path,
                                 const struct tar_entry *e, struct err *err)
{
    _cleanup_free_ char *shown = tree_in_shown(p, path);
    uint64_t before = p->stats->bytes;
    _cleanup_close_ int fd = -1;
    struct timespec times[2];
    int r;

    r = tree_file_open(parent, base, shown, p->rules, tree_in_file_mode(p, e), &fd, err);
    if (r < 0)
        return r;
    r = tree_in_write_data(p, fd, path, err);
    if (r < 0)
        return err_wrap(err, "'%s' is incomplete (%llu of %llu bytes written)", shown,
                        (unsigned long long)(p->stats->bytes - before),
                        (unsigned long long)e->size);
    tree_in_times(e->mtime, times);
    (void)futimens(fd, times); /* only the owner may, and the copy is complete without it */
    return 0;
}

/* The target of a hard link is in the same archive, so its name is resolved below the destination
 * like every other name. */
static int tree_in_place_hardlink(struct placer *p, int parent, const char *path,
                                  const struct tar_entry *e, struct err *err)
{
    _cleanup_free_ char *target = NULL;
    _cleanup_close_ int up = -1;
    const char *base = NULL;
    struct stat st;
    int r;

    r = tree_in_place_name(p, e->link, &target, err);
    if (r < 0)
        return r;
    r = tree_in_open_parent(p, target, &up, &base, err);
    if (r < 0)
        return r;
    if (fstatat(up, base, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return err_set(
            err, ERR_INVALID,
            "archive: '%.80s' is a hard link to '%.80s', which is not a file in the archive", path,
            e->link);
    if (linkat(up, base, parent, p->temp, 0) < 0)
        return tree_in_err(p, err, errno, "link", path);
    return 0;
}

/* A file of the archive never goes through a link of the archive, so the names of these links are
 * kept. */
static int tree_in_place_symlink(struct placer *p, int parent, const char *path,
                                 const struct tar_entry *e, struct err *err)
{
    const struct tree_rules *rules = p->rules;

    if (rules->through && p->links.used >= TREE_LINKS_MAX)
        return err_set(err, ERR_LIMIT, "archive: more than %d links", TREE_LINKS_MAX);
    if (symlinkat(e->link, parent, p->temp) < 0)
        return tree_in_err(p, err, errno, "make link", path);
    if (rules->through)
        name_set_add(&p->links, path);
    if (rules->has_owner &&
        fchownat(parent, p->temp, rules->uid, rules->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return tree_in_err(p, err, errno, "change the owner of", path);
    return 0;
}

static int tree_in_place_temp(struct placer *p, int parent, const char *path,
                              const struct tar_entry *e, struct err *err)
{
    switch (e->type) {
    case TAR_FILE:
        return tree_in_place_temp_file(p, parent, path, e, err);
    case TAR_HARDLINK:
        return tree_in_place_hardlink(p, parent, path, e, err);
    case TAR_SYMLINK:
        return tree_in_place_symlink(p, parent, path, e, err);
    case TAR_DIR:
    case TAR_OTHER:
        break;
    }
    return err_set(err, ERR_INVALID, "archive: '%.80s' has an unknown type", path);
}

static int tree_in_place_leaf(struct placer *p, int parent, const char *base, const char *path,
                              const struct tar_entry *e, struct err *err)
{
    struct timespec times[2];
    int r;

    if (p->rules->through && e->type == TAR_FILE &&
        !(GUARD("links of the archive") && name_set_has(&p->links, path)))
        return tree_in_place_through(p, parent, base, path, e, err);
    r = tree_in_place_temp(p, parent, path, e, err);
    tree_in_times(e->mtime, times);
    if (r == 0 && e->type != TAR_HARDLINK)
        (void)utimensat(parent, p->temp, times, AT_SYMLINK_NOFOLLOW);
    if (r == 0 && renameat(parent, p->temp, parent, base) < 0)
        r = tree_in_err(p, err, errno, "put in place", path);
    /* Also after success: rename() does nothing when both names are links to the same file. */
    if (r < 0 || e->type == TAR_HARDLINK)
        (void)unlinkat(parent, p->temp, 0);
    return r;
}

static int tree_in_place_entry(struct placer *p, const struct tar_entry *e, struct err *err)
{
    _cleanup_free_ char *name = NULL;
    _cleanup_close_ int parent = -1;
    const char *base;
    int r;

    if (e->type == TAR_OTHER) {
        p->stats->skipped++;
        return 0;
    }
    r = tree_in_place_name(p, e->path, &name, err);
    if (r < 0)
        return r;
    tree_in_late_leave(p, name);
    r = tree_in_open_parent(p, name, &parent, &base, err);
    if (r < 0)
        return r;
    p->stats->entries++;
    if (e->type == TAR_DIR)
        return tree_in_place_dir(p, parent, base, name, e, err);
    if (STREQ(base, "."))
        return err_set(err, ERR_INVALID, "archive: an entry has no name");
    return tree_in_place_leaf(p, parent, base, name, e, err);
}

/* ---- the whole ---- */

/* Opens the destination or its parent. Links are followed, except the magic links of /proc. */
static int tree_in_open_dir(const struct placer *p, const char *path)
{
    _cleanup_close_ int root = -1;
    int fd = tree_in_open(AT_FDCWD, path, O_PATH | O_DIRECTORY, RESOLVE_NO_MAGICLINKS);

    if (fd >= 0 || errno != ENOENT || !p->rules->parents)
        return fd;
    root = open(*path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? -1 : tree_in_make_path(p, root, path, RESOLVE_NO_MAGICLINKS);
}

static int tree_in_no_folder(const struct placer *p, const char *path, int errnum, struct err *err)
{
    int r = tree_err(err, errnum, "open folder '%s'", path);

    if (errnum == ENOENT)
        err_hint(err, "Make the folder first%s.",
                 p->rules == &tree_in_own ? "" : ", or use --parents (`parents=1` in the API)");
    return r;
}

static bool tree_in_is_link_to_folder(const char *path)
{
    struct stat link, target;

    return lstat(path, &link) == 0 && S_ISLNK(link.st_mode) && stat(path, &target) == 0 &&
           S_ISDIR(target.st_mode);
}

/*
 * Where the archive goes: `path` itself when it is a folder, else its parent with the last
 * component as the new name. Among the user's own files an earlier copy may have put a link there,
 * which leads wherever the sandbox wants: it is not followed, not even with a slash behind it.
 */
static int tree_in_open_destination(struct placer *p, char *path, struct err *err)
{
    bool own = p->rules == &tree_in_own && GUARD("destination links");
    size_t len = strlen(path);
    bool folder = len && path[len - 1] == '/';
    char *slash;

    while (own && len > 1 && path[len - 1] == '/')
        path[--len] = '\0';
    p->dest_path = path;
    p->dest = folder && !own
                  ? tree_in_open_dir(p, path)
                  : tree_in_open(AT_FDCWD, path, O_PATH | O_DIRECTORY | (own ? O_NOFOLLOW : 0),
                                 RESOLVE_NO_MAGICLINKS);
    if (p->dest >= 0)
        return 0;
    if (own && errno == ENOTDIR && tree_in_is_link_to_folder(path)) {
        err_set(err, ERR_CONFLICT, "'%s' is a link to a folder", path);
        return err_hint(err, "Write '%s/.' to copy into that folder.", path);
    }
    if ((errno != ENOENT && errno != ENOTDIR) || folder)
        return tree_in_no_folder(p, path, errno, err);
    slash = strrchr(path, '/');
    p->rename = slash ? slash + 1 : path;
    if (slash)
        *slash = '\0';
    p->dest_path = !slash ? "." : *path ? path : "/";
    p->dest = tree_in_open_dir(p, p->dest_path);
    return p->dest < 0 ? tree_in_no_folder(p, p->dest_path, errno, err) : 0;
}

static int tree_in_place_all(struct placer *p, char *where, struct err *err)
{
    _cleanup_free_ struct tar_entry *e = xnew0(struct tar_entry);
    uint64_t v;
    int r;

    /* A random name: another copy may work in the same folder. */
    if (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
        return err_sys(err, errno, "get random bytes");
    snprintf(p->temp, sizeof(p->temp), ".ripcord-%016llx.tmp", (unsigned long long)v);
    r = tree_in_open_destination(p, where, err);
    if (r < 0)
        return r;
    while ((r = tar_next(&p->tar, e, err)) > 0) {
        r = tree_in_place_entry(p, e, err);
        if (r < 0)
            return r;
    }
    if (r < 0)
        return r;
    if (!p->tar.marked)
        return err_set(err, ERR_INVALID, "archive is truncated: its end mark is missing");
    return 0;
}

int tree_from_tar(const char *path, const struct tree_rules *rules, tar_read_fn read, void *arg,
                  struct tree_stats *stats, struct err *err)
{
    _cleanup_free_ char *chunk = xmalloc(TREE_CHUNK), *where = xstrdup(path);
    struct placer p = {
        .stats = stats, .rules = rules ? rules : &tree_in_own, .dest = -1, .chunk = chunk};
    int r;

    tar_reader_init(&p.tar, read, arg);
    r = tree_in_place_all(&p, where, err);
    stats->skipped += p.tar.left_out;
    tree_in_late_leave(&p, NULL);
    fd_close(p.dest);
    free(p.top);
    name_set_done(&p.links);
    return r;
}
