/*
 * mkdir, remove, move and chmod.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files/copy.h"
#include "files/folder.h"
#include "lib/base/cleanup.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452 /* Linux 6.6 */
#endif

/* ---- mkdir ---- */

/* The owner is checked before the first folder is made. */
static int files_check_owner(const struct files_task *j, struct err *err)
{
    uid_t uid;
    gid_t gid;

    return files_owner(j, &uid, &gid, err);
}

/* The umask takes bits away from a mode that the request names. */
static int files_made(struct files_task *j, int dirfd, const char *name, bool created,
                      struct err *err)
{
    int flags = created ? O_RDONLY | O_NOFOLLOW : O_PATH;
    _cleanup_close_ int fd = openat(dirfd, name, flags | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return tree_err(err, errno, "open folder '%s'", j->path);
    if (created && files_has(j, FILES_TAG_MODE) && fchmod(fd, (mode_t)j->mode) < 0)
        return tree_err(err, errno, "set the mode of '%s'", j->path);
    if (fstat(fd, &st) < 0)
        return tree_err(err, errno, "stat '%s'", j->path);
    files_answer(j, FILES_DONE);
    files_put_u64(&j->out, FILES_TAG_CREATED, created);
    files_put_entry(j, fd, "", j->path, &st);
    return files_send(j, err);
}

int files_mkdir(struct files_task *j, struct err *err)
{
    bool parents = files_has(j, FILES_TAG_PARENTS);
    _cleanup_free_ char *name = NULL;
    _cleanup_close_ int dirfd = -1;
    int made, r = files_check_owner(j, err);

    if (r < 0)
        return r;
    r = files_open_parent(j, j->path, parents, &dirfd, &name, err);
    if (r < 0)
        return r;
    made = files_make_folder(j, dirfd, name, 0777);
    if (made < 0)
        return tree_err(err, errno, "make folder '%s'", j->path);
    if (!made && !parents) {
        err_set(err, ERR_CONFLICT, "'%s' exists", j->path);
        return err_hint(err, "Set 'parents' to accept a folder that exists.");
    }
    return files_made(j, dirfd, name, made, err);
}

/* ---- remove ---- */

/* rmtree() knows nothing of users; the reason of the system decides. */
int files_remove_tree(int dirfd, const char *name, const char *shown, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    int r = rmtree(dirfd, name, &why);

    if (r >= 0)
        return 0;
    if (why.code != ERR_SYSTEM || !why.errnum)
        return err_set(err, why.code, "remove '%s': %s", shown, why.msg);
    return tree_err(err, why.errnum, "remove '%s'", shown);
}

static int files_remove_entry(struct files_task *j, int dirfd, const char *name, struct err *err)
{
    struct stat st;
    int r;

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return tree_err(err, errno, "remove '%s'", j->path);
    if (S_ISDIR(st.st_mode) && files_has(j, FILES_TAG_RECURSIVE))
        return files_remove_tree(dirfd, name, j->path, err);
    if (unlinkat(dirfd, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) == 0)
        return 0;
    r = tree_err(err, errno, "remove '%s'", j->path);
    if (err->errnum == ENOTEMPTY)
        err_hint(err, "Set 'recursive' to remove a folder with its contents.");
    return r;
}

int files_remove(struct files_task *j, struct err *err)
{
    _cleanup_free_ char *name = NULL;
    _cleanup_close_ int dirfd = -1;
    int r = files_open_parent(j, j->path, false, &dirfd, &name, err);

    if (r >= 0)
        r = files_remove_entry(j, dirfd, name, err);
    if (r < 0 && !(err->errnum == ENOENT && files_has(j, FILES_TAG_MISSING_OK)))
        return r;
    files_answer(j, FILES_DONE);
    files_put_u64(&j->out, FILES_TAG_REMOVED, r >= 0);
    err_done(err);
    return files_send(j, err);
}

/* ---- move ---- */

int files_place(const struct files_task *j, int from, const char *name, int to, const char *to_name,
                struct err *err)
{
    bool overwrite = files_has(j, FILES_TAG_OVERWRITE);
    int r;

    if (renameat2(from, name, to, to_name, overwrite ? 0 : RENAME_NOREPLACE) == 0)
        return 0;
    if (errno == EXDEV)
        return 1;
    if (errno == EINVAL)
        return err_set(err, ERR_CONFLICT, "'%s' cannot be put into itself ('%s')", j->path, j->to);
    r = tree_err(err, errno, "put '%s' in place", j->to);
    if (err->errnum == EEXIST)
        err_hint(err, "Set 'overwrite' to replace it.");
    return r;
}

/* To another file system, and in an overlay for a folder of the image: as mv(1) does. */
static int files_move_by_copy(struct files_task *j, int from, const char *name, int to,
                              const char *to_name, struct err *err)
{
    struct files_copy_totals totals = {0};
    int r = files_copy_tree(j, from, name, to, to_name, &totals, err);

    if (r < 0)
        return r;
    if (totals.skipped)
        return err_set(err, ERR_UNSUPPORTED, "'%s' has sockets, FIFOs or devices, which stay there",
                       j->path);
    return files_remove_tree(from, name, j->path, err);
}

int files_move(struct files_task *j, struct err *err)
{
    _cleanup_free_ char *name = NULL, *to_name = NULL;
    _cleanup_close_ int from = -1, to = -1;
    struct stat st;
    int r = files_open_parent(j, j->path, false, &from, &name, err);

    if (r < 0)
        return r;
    r = files_open_parent(j, j->to, files_has(j, FILES_TAG_PARENTS), &to, &to_name, err);
    if (r < 0)
        return r;
    r = files_place(j, from, name, to, to_name, err);
    if (r > 0)
        r = files_move_by_copy(j, from, name, to, to_name, err);
    if (r < 0)
        return r;
    if (fstatat(to, to_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return tree_err(err, errno, "stat '%s'", j->to);
    return files_send_entry(j, FILES_DONE, to, to_name, j->to, &st, err);
}

/* ---- chmod ---- */

struct files_changer {
    struct files_task *job;
    bool has_mode, has_owner;
    uid_t uid;
    gid_t gid;
    uint64_t entries;
};

/* `fd` was opened with O_PATH. Older kernels need a descriptor for which a right to read or write
 * is needed. */
static int files_chmod_fd(int fd, int dirfd, const char *name, mode_t mode)
{
    _cleanup_close_ int open = -1;

    if (syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno != ENOSYS && errno != EOPNOTSUPP)
        return -1;
    open = openat(dirfd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
    return open < 0 ? -1 : fchmod(open, mode);
}

static int files_chmod_one(struct files_changer *c, int dirfd, const char *name, const char *shown,
                           struct err *err)
{
    _cleanup_close_ int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return tree_err(err, errno, "open '%s'", shown);
    if (S_ISLNK(st.st_mode) && !c->has_owner)
        return 0; /* a link has no mode */
    if (c->has_owner && fchownat(fd, "", c->uid, c->gid, AT_EMPTY_PATH) < 0)
        return tree_err(err, errno, "change the owner of '%s'", shown);
    if (c->has_mode && !S_ISLNK(st.st_mode) &&
        files_chmod_fd(fd, dirfd, name, (mode_t)c->job->mode) < 0)
        return tree_err(err, errno, "set the mode of '%s'", shown);
    c->entries++;
    return 0;
}

/* A folder is changed after its contents, so that a mode without rights does not lock us out. */
static int files_chmod_visit(void *arg, const struct files_node *n, struct err *err)
{
    return S_ISDIR(n->st.st_mode) ? FILES_GO_ON
                                  : files_chmod_one(arg, n->dirfd, n->name, n->path, err);
}

static int files_chmod_leave(void *arg, const struct files_node *n, struct err *err)
{
    return files_chmod_one(arg, n->dirfd, n->name, n->path, err);
}

static int files_chmod_below(struct files_changer *c, struct err *err)
{
    struct files_walk w = {.job = c->job,
                           .visit = files_chmod_visit,
                           .leave = files_chmod_leave,
                           .arg = c,
                           .depth_max = UINT32_MAX,
                           .strict = true};
    int r;

    c->job->by.at = DEADLINE_NEVER; /* half a change helps nobody */
    r = files_walk_tree(&w, c->job->path, err);
    return r;
}

static int files_chmod_top(struct files_changer *c, struct err *err)
{
    const char *path = c->job->path;
    _cleanup_close_ int fd = files_open(path, O_PATH);
    _cleanup_close_ int readable = -1;

    if (fd < 0)
        return tree_err(err, errno, "open '%s'", path);
    if (c->has_owner && fchownat(fd, "", c->uid, c->gid, AT_EMPTY_PATH) < 0)
        return tree_err(err, errno, "change the owner of '%s'", path);
    if (!c->has_mode || syscall(SYS_fchmodat2, fd, "", (mode_t)c->job->mode, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno == ENOSYS || errno == EOPNOTSUPP)
        readable = files_open(path, O_RDONLY | O_NONBLOCK);
    return readable >= 0 && fchmod(readable, (mode_t)c->job->mode) == 0
               ? 0
               : tree_err(err, errno, "set the mode of '%s'", path);
}

static int files_chmod_all(struct files_changer *c, struct err *err)
{
    struct stat st;
    _cleanup_close_ int fd = files_open(c->job->path, O_PATH);
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return tree_err(err, errno, "open '%s'", c->job->path);
    r = S_ISDIR(st.st_mode) && files_has(c->job, FILES_TAG_RECURSIVE) ? files_chmod_below(c, err)
                                                                      : 0;
    if (r < 0)
        return r;
    c->entries++;
    return files_chmod_top(c, err);
}

int files_chmod(struct files_task *j, struct err *err)
{
    struct files_changer c = {.job = j, .has_mode = files_has(j, FILES_TAG_MODE)};
    int r = files_owner(j, &c.uid, &c.gid, err);

    if (r < 0)
        return r;
    c.has_owner = r > 0;
    if (!c.has_mode && !c.has_owner)
        return err_set(err, ERR_INVALID, "chmod: give 'mode', 'owner' or both");
    r = files_chmod_all(&c, err);
    if (r < 0)
        return r;
    files_answer(j, FILES_DONE);
    files_put_u64(&j->out, FILES_TAG_ENTRIES, c.entries);
    return files_send(j, err);
}
