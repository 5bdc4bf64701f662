/*
 * The walk keeps one open folder per level, up to RMTREE_DEPTH levels. A folder that is deeper is
 * first renamed into the top folder. So a chain of 100,000 folders is cut into pieces of
 * RMTREE_DEPTH levels.
 */
#include "lib/os/rmtree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/xalloc.h"

enum { RMTREE_DEPTH = 64 };

struct rmtree {
    int top;               /* the folder that is removed */
    unsigned long renames; /* counts the names given to moved folders */
    DIR *stack[RMTREE_DEPTH];
    bool seen[RMTREE_DEPTH];                /* this pass over stack[i] has met entries */
    char names[RMTREE_DEPTH][NAME_MAX + 1]; /* of stack[i] in stack[i - 1] */
    int depth;                              /* folders open on the stack */
};

/* Without CAP_DAC_OVERRIDE a folder of mode 0 must be opened up first; by O_PATH, not by name. */
static int rmtree_open_up(int at, const char *name)
{
    _cleanup_close_ int fd = openat(at, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
    char path[64];

    if (fd < 0)
        return -errno;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return chmod(path, 0700) < 0 ? -errno : 0;
}

/* The guest of a container with a writable mount has no openat2(). There the device number shows
 * a mount; a bind mount of the same file system stays unseen. */
static int rmtree_openat(int at, const char *name, const struct open_how *how)
{
    int fd = (int)syscall(SYS_openat2, at, name, how, sizeof(*how));
    struct stat above, st;

    if (fd >= 0 || errno != ENOSYS)
        return fd;
    fd = openat(at, name, (int)how->flags);
    if (fd < 0 || !(how->resolve & RESOLVE_NO_XDEV) || fstat(at, &above) < 0 || fstat(fd, &st) < 0)
        return fd;
    if (above.st_dev == st.st_dev)
        return fd;
    close(fd);
    errno = EXDEV;
    return -1;
}

static DIR *rmtree_open_folder(int at, const char *name, struct err *err)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC};
    struct stat st;
    DIR *dir;
    int fd;

    if (GUARD("removed links")) {
        how.flags |= O_NOFOLLOW;
        how.resolve |= RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH;
    }
    if (GUARD("removed mounts"))
        how.resolve |= RESOLVE_NO_XDEV;
    fd = rmtree_openat(at, name, &how);
    if (fd < 0 && errno == EACCES && rmtree_open_up(at, name) >= 0)
        fd = rmtree_openat(at, name, &how);
    if (fd < 0) {
        if (errno == EXDEV)
            err_set(err, ERR_CONFLICT, "'%s' is a mount point: not removed", name);
        else
            err_sys(err, errno, "open folder '%s'", name);
        return NULL;
    }
    /* Entries of a read-only folder cannot be removed or moved up either. */
    if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
        fchmod(fd, 0700); /* when this fails, the removal reports the error */
    dir = fdopendir(fd);
    if (!dir) {
        err_sys(err, errno, "read folder '%s'", name);
        fd_close(fd);
    }
    return dir;
}

static int rmtree_push(struct rmtree *t, int at, const char *name, struct err *err)
{
    DIR *dir = rmtree_open_folder(at, name, err);

    if (!dir)
        return err ? -(int)err->code : -ERR_SYSTEM;
    t->seen[t->depth] = false;
    snprintf(t->names[t->depth], sizeof(t->names[0]), "%s", name);
    t->stack[t->depth++] = dir;
    return 0;
}

/* Moves a folder that lies too deep into the top one, under a name that is free. */
static int rmtree_lift(struct rmtree *t, int at, const char *name, struct err *err)
{
    char to[32];

    do {
        snprintf(to, sizeof(to), ".lifted-%lu", t->renames++);
        if (renameat2(at, name, t->top, to, RENAME_NOREPLACE) == 0)
            return 0;
        /* Moving a folder to another parent needs write permission on the folder itself. */
        if (errno == EACCES && rmtree_open_up(at, name) >= 0 &&
            renameat2(at, name, t->top, to, RENAME_NOREPLACE) == 0)
            return 0;
    } while (errno == EEXIST);
    return err_sys(err, errno, "move folder '%s' up to remove it", name);
}

/* 0: removed; 1: it is a folder that is not empty; or -code. */
static int rmtree_remove_entry(int at, const struct dirent *de, struct err *err)
{
    bool folder = de->d_type == DT_DIR;
    bool keeps_links_closed = GUARD("removed links"), keeps_mounts = GUARD("removed mounts");

    if (de->d_type == DT_LNK && !keeps_links_closed)
        return 1;
    if (!folder && unlinkat(at, de->d_name, 0) < 0) {
        if (errno != EISDIR && errno != EPERM && errno != EACCES && errno != ENOENT)
            return err_sys(err, errno, "remove '%s'", de->d_name);
        if (errno == EACCES && de->d_type != DT_UNKNOWN)
            return err_sys(err, errno, "remove '%s'", de->d_name);
        folder = errno != ENOENT;
    }
    if (folder && unlinkat(at, de->d_name, AT_REMOVEDIR) < 0) {
        if (errno == ENOTEMPTY || errno == EEXIST || errno == EACCES ||
            (errno == EBUSY && !keeps_mounts))
            return 1;
        if (errno == EBUSY)
            return err_set(err, ERR_CONFLICT, "'%s' is a mount point: not removed", de->d_name);
        if (errno != ENOENT)
            return err_sys(err, errno, "remove folder '%s'", de->d_name);
    }
    return 0;
}

/*
 * Ends a pass over the innermost folder. A folder that could be removed is closed (the top folder:
 * when the pass found no entry). Otherwise new entries may have appeared, so another pass begins.
 */
static int rmtree_finish_pass(struct rmtree *t, struct err *err)
{
    int i = t->depth - 1;
    bool gone = !t->seen[i];

    if (i > 0) {
        int parent = dirfd(t->stack[i - 1]);

        gone = unlinkat(parent, t->names[i], AT_REMOVEDIR) == 0 || errno == ENOENT;
        if (!gone && (!t->seen[i] || (errno != ENOTEMPTY && errno != EEXIST)))
            return err_sys(err, errno, "remove folder '%s'", t->names[i]);
    }
    if (gone) {
        closedir(t->stack[i]);
        t->depth--;
        return 0;
    }
    rewinddir(t->stack[i]);
    t->seen[i] = false;
    return 0;
}

/* Works on the innermost open folder until the pass ends or a deeper folder is open. */
static int rmtree_step(struct rmtree *t, struct err *err)
{
    DIR *dir = t->stack[t->depth - 1];
    struct dirent *de;
    int r;

    while ((de = readdir(dir))) {
        if (STREQ(de->d_name, ".") || STREQ(de->d_name, ".."))
            continue;
        t->seen[t->depth - 1] = true;
        r = rmtree_remove_entry(dirfd(dir), de, err);
        if (r > 0 && t->depth < RMTREE_DEPTH)
            return rmtree_push(t, dirfd(dir), de->d_name, err);
        if (r > 0)
            r = rmtree_lift(t, dirfd(dir), de->d_name, err);
        if (r < 0)
            return r;
    }
    return rmtree_finish_pass(t, err);
}

static int rmtree_walk(struct rmtree *t, int at, const char *name, struct err *err)
{
    int r = rmtree_push(t, at, name, err);

    if (r < 0)
        return r;
    t->top = dirfd(t->stack[0]);
    while (t->depth > 0) {
        r = rmtree_step(t, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int rmtree_empty_folder(int at, const char *name, struct err *err)
{
    struct rmtree *t = xnew0(struct rmtree);
    int r = rmtree_walk(t, at, name, err);

    while (t->depth > 0)
        closedir(t->stack[--t->depth]);
    free(t);
    return r;
}

static int rmtree_remove_name(int at, const char *name, struct err *err)
{
    int r;

    if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return err_sys(err, errno, "remove '%s'", name);
    r = rmtree_empty_folder(at, name, err);
    if (r < 0)
        return err_wrap(err, "remove tree '%s'", name);
    if (unlinkat(at, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return err_sys(err, errno, "remove folder '%s'", name);
    return 0;
}

int rmtree(int at, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    _cleanup_free_ char *parent = NULL;
    _cleanup_close_ int fd = -1;

    if (!slash)
        return rmtree_remove_name(at, path, err);
    parent = xstrndup(path, MAX((size_t)(slash - path), 1));
    fd = openat(at, parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return err_sys(err, errno, "open folder '%s'", parent);
    return rmtree_remove_name(fd, slash + 1, err);
}
