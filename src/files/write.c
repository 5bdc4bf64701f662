/*
 * One file, written through as open(2) for writing does, or beside its place and renamed. The
 * conditions of a request are checked under flock(2), so that of two requests with the same
 * entity tag only one succeeds.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "files/job.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"

struct files_writer {
    struct files_task *job;
    struct tree_rules rules;
    bool refused; /* a condition does not hold */
    bool created;
    int lock; /* atomic: the file that is replaced, locked; owned */
    uint64_t bytes;
};

/* ---- conditions ---- */

static int files_write_refuse(struct files_writer *w, struct err *err)
{
    w->refused = true;
    return err_set(err, ERR_CONFLICT, "'%s' has changed", w->job->path);
}

static int files_write_lock(const struct files_writer *w, int fd, struct err *err)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return err_set(err, ERR_CONFLICT, "'%s' is locked (another request writes it)",
                       w->job->path);
    return tree_err(err, errno, "lock '%s'", w->job->path);
}

/* fd -1: the file does not exist. */
static int files_write_check(void *arg, int fd, struct err *err)
{
    struct files_writer *w = arg;
    const struct files_task *j = w->job;
    char etag[FILES_ETAG_SIZE];
    struct stat st;
    int r;

    if (!j->if_match && !j->if_none_match)
        return 0;
    if (fd < 0)
        return j->if_match ? files_write_refuse(w, err) : 0;
    r = files_write_lock(w, fd, err);
    if (r < 0)
        return r;
    if (fstat(fd, &st) < 0)
        return tree_err(err, errno, "stat '%s'", j->path);
    files_etag(&st, etag);
    if (j->if_match && !files_etag_listed(j->if_match, etag, false))
        return files_write_refuse(w, err);
    if (j->if_none_match && files_etag_listed(j->if_none_match, etag, true))
        return files_write_refuse(w, err);
    return 0;
}

/* "If-None-Match: *" means that the file must not exist. */
static bool files_write_is_exclusive(const struct files_task *j)
{
    return j->if_none_match && STREQ(j->if_none_match, "*");
}

/* ---- bytes ---- */

static int files_write_body(struct files_writer *w, int fd, struct err *err)
{
    struct files_message m;
    int r;

    while ((r = files_receive(w->job, &m, err)) > 0) {
        if (m.type == FILES_END)
            return 0;
        if (m.type != FILES_DATA)
            return err_set(err, ERR_INVALID, "files message: 0x%02x in a body", m.type);
        r = fd_write_all(fd, m.data, m.length);
        if (r < 0)
            return tree_err(err, -r, "write '%s'", w->job->path);
        w->bytes += m.length;
    }
    return r < 0 ? r : files_lost(err);
}

static int files_write_answer(struct files_writer *w, int fd, struct err *err)
{
    struct files_task *j = w->job;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return tree_err(err, errno, "stat '%s'", j->path);
    files_answer(j, FILES_DONE);
    files_put_u64(&j->out, FILES_TAG_STATUS, w->created ? 201 : 200);
    files_put_entry(j, -1, "", j->path, &st);
    return files_send(j, err);
}

/* ---- through ---- */

static int files_write_through(struct files_writer *w, struct err *err)
{
    struct files_task *j = w->job;
    const struct tree_condition condition = {
        .exclusive = files_write_is_exclusive(j), .check = files_write_check, .arg = w};
    _cleanup_close_ int fd = -1;
    int r = tree_file_open_if(AT_FDCWD, j->path, j->path, &w->rules, 0644, &condition, &fd,
                              &w->created, err);

    if (r < 0) {
        w->refused |= condition.exclusive && err->errnum == EEXIST;
        return r;
    }
    r = files_write_body(w, fd, err);
    if (r < 0)
        return err_wrap(err, "'%s' is incomplete (%llu bytes written)", j->path,
                        (unsigned long long)w->bytes);
    return files_write_answer(w, fd, err);
}

/* ---- beside its place ---- */

/* Locks the file that will be replaced, if the request has a condition for it. */
static int files_write_hold(struct files_writer *w, int dirfd, const char *name, struct err *err)
{
    struct stat held, now;
    int fd = openat(dirfd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC), r;

    if (fd < 0 && errno != ENOENT)
        return tree_err(err, errno, "open '%s'", w->job->path);
    w->lock = fd;
    r = files_write_check(w, fd, err);
    if (r < 0 || fd < 0)
        return r;
    if (fstat(fd, &held) < 0 || fstatat(dirfd, name, &now, AT_SYMLINK_NOFOLLOW) < 0 ||
        held.st_ino != now.st_ino)
        return files_write_refuse(w, err); /* replaced before we had the lock */
    return 0;
}

/* A replaced file passes its mode on. */
static mode_t files_write_mode(const struct files_writer *w, int dirfd, const char *name)
{
    struct stat st;

    if (w->rules.has_mode)
        return w->rules.mode;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        return st.st_mode & 0777;
    return 0644;
}

static int files_write_fill(struct files_writer *w, int fd, mode_t mode, struct err *err)
{
    if (w->rules.has_owner && fchown(fd, w->rules.uid, w->rules.gid) < 0)
        return tree_err(err, errno, "change the owner of '%s'", w->job->path);
    if (fchmod(fd, mode) < 0)
        return tree_err(err, errno, "set the mode of '%s'", w->job->path);
    return files_write_body(w, fd, err);
}

static int files_write_rename(struct files_writer *w, int dirfd, const char *temp, const char *name,
                              struct err *err)
{
    bool exclusive = files_write_is_exclusive(w->job);
    struct stat st;

    w->created = fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0;
    if (!w->created && S_ISDIR(st.st_mode))
        return err_set(err, ERR_CONFLICT, "'%s' is a folder", w->job->path);
    if ((exclusive ? renameat2(dirfd, temp, dirfd, name, RENAME_NOREPLACE)
                   : renameat(dirfd, temp, dirfd, name)) == 0)
        return 0;
    w->refused |= exclusive && errno == EEXIST;
    return tree_err(err, errno, "put '%s' in place", w->job->path);
}

static int files_write_beside(struct files_writer *w, int dirfd, const char *name, struct err *err)
{
    char temp[FILES_TEMP_SIZE];
    _cleanup_close_ int fd = -1;
    int r = files_temp_name(temp, err);

    if (r < 0)
        return r;
    if (w->job->if_match || w->job->if_none_match) {
        r = files_write_hold(w, dirfd, name, err);
        if (r < 0)
            return r;
    }
    fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return tree_err(err, errno, "make a file beside '%s'", w->job->path);
    r = files_write_fill(w, fd, files_write_mode(w, dirfd, name), err);
    if (r >= 0)
        r = files_write_rename(w, dirfd, temp, name, err);
    if (r < 0)
        (void)unlinkat(dirfd, temp, 0);
    return r < 0 ? r : files_write_answer(w, fd, err);
}

/* ---- the whole ---- */

static int files_write_rules(struct files_writer *w, struct err *err)
{
    const struct files_task *j = w->job;
    int r;

    w->rules.through = !files_has(j, FILES_TAG_ATOMIC);
    w->rules.has_mode = files_has(j, FILES_TAG_MODE);
    w->rules.mode = (mode_t)j->mode;
    r = files_owner(j, &w->rules.uid, &w->rules.gid, err);
    w->rules.has_owner = r > 0;
    return r;
}

static int files_write_file(struct files_writer *w, struct err *err)
{
    struct files_task *j = w->job;
    bool parents = files_has(j, FILES_TAG_PARENTS);
    _cleanup_close_ int dirfd = -1;
    _cleanup_free_ char *name = NULL;
    int r = files_write_rules(w, err);

    if (r < 0)
        return r;
    if (j->path[strlen(j->path) - 1] == '/')
        return err_set(err, ERR_CONFLICT, "'%s' is the name of a folder", j->path);
    r = files_open_parent(j, j->path, parents, &dirfd, &name, err);
    if (r < 0)
        return r;
    return w->rules.through ? files_write_through(w, err) : files_write_beside(w, dirfd, name, err);
}

int files_write(struct files_task *j, struct err *err)
{
    struct files_writer w = {.job = j, .lock = -1};
    int r = files_write_file(&w, err);

    fd_close(w.lock);
    if (r >= 0 || !w.refused)
        return r;
    err_done(err);
    files_answer(j, FILES_DONE);
    files_put_u64(&j->out, FILES_TAG_STATUS, 412);
    return files_send(j, err);
}
