/*
 * One file, opened as a program of the same user would open it: the kernel follows links from the
 * process's own root folder and checks the user's rights. Magic links of /proc are not followed:
 * they lead to files that no path inside names.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"

/* clang-format off */
static const struct {
    int errnum;
    enum err_code code;
} tree_codes[] = {
    {ENOENT, ERR_NOT_FOUND},
    {EACCES, ERR_DENIED}, {EPERM, ERR_DENIED}, {EROFS, ERR_DENIED}, {ELOOP, ERR_DENIED},
    {ENOSPC, ERR_LIMIT}, {EDQUOT, ERR_LIMIT}, {EFBIG, ERR_LIMIT}, {ENAMETOOLONG, ERR_LIMIT},
    {EISDIR, ERR_CONFLICT}, {ENOTDIR, ERR_CONFLICT}, {ENOTEMPTY, ERR_CONFLICT}, {EEXIST, ERR_CONFLICT},
    {ETXTBSY, ERR_CONFLICT}, {EBUSY, ERR_CONFLICT},
};
/* clang-format on */

int tree_err(struct err *err, int errnum, const char *fmt, ...)
{
    _cleanup_free_ char *what = NULL;
    enum err_code code = ERR_SYSTEM;
    va_list ap;

    for (size_t i = 0; i < ARRAY_SIZE(tree_codes); i++)
        if (tree_codes[i].errnum == errnum)
            code = tree_codes[i].code;
    va_start(ap, fmt);
    what = xvasprintf(fmt, ap);
    va_end(ap);
    err_set(err, code, "%s: %s", what, strerror(errnum));
    if (err)
        err->errnum = errnum;
    return -(int)code;
}

/* O_NONBLOCK: a FIFO without a reader is an error (ENXIO) and not a wait. */
static int tree_file_open_now(int dirfd, const char *name, int flags, mode_t mode)
{
    return fd_open_resolved(dirfd, name, O_WRONLY | O_NONBLOCK | O_NOCTTY | flags, mode,
                            RESOLVE_NO_MAGICLINKS);
}

static int tree_file_refused(int errnum, const char *shown, struct err *err)
{
    int r;

    if (errnum == ENXIO)
        return err_set(err, ERR_CONFLICT, "'%s' is not a regular file", shown);
    r = tree_err(err, errnum, "open '%s'", shown);
    if (errnum == ETXTBSY)
        err_hint(err, "A program runs from this file. Use --atomic (`atomic=1` in the API).");
    return r;
}

/* A file that was created with the right mode sees no further chmod: watchers of the folder expect
 * one event per change. */
static int tree_file_prepare(int fd, const char *shown, const struct tree_rules *rules, mode_t mode,
                             bool created, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return tree_err(err, errno, "stat '%s'", shown);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_CONFLICT, "'%s' is not a regular file", shown);
    if (rules->has_owner && fchown(fd, rules->uid, rules->gid) < 0)
        return tree_err(err, errno, "change the owner of '%s'", shown);
    if ((created || rules->has_mode) && (st.st_mode & 07777) != mode && fchmod(fd, mode) < 0)
        return tree_err(err, errno, "set the mode of '%s'", shown);
    if (st.st_size && ftruncate(fd, 0) < 0)
        return tree_err(err, errno, "truncate '%s'", shown);
    return 0;
}

static int tree_file_check(const struct tree_condition *c, int fd, struct err *err)
{
    return c->check ? c->check(c->arg, fd, err) : 0;
}

int tree_file_open_if(int dirfd, const char *name, const char *shown,
                      const struct tree_rules *rules, mode_t mode,
                      const struct tree_condition *condition, int *ret, bool *ret_created,
                      struct err *err)
{
    bool exclusive = condition->exclusive;
    _cleanup_close_ int fd = exclusive ? -1 : tree_file_open_now(dirfd, name, 0, 0);
    bool created = exclusive || (fd < 0 && errno == ENOENT);
    int r = fd >= 0 || created ? tree_file_check(condition, fd, err) : 0;

    if (r < 0)
        return r;
    if (rules->has_mode)
        mode = rules->mode;
    if (created)
        fd = tree_file_open_now(dirfd, name, O_CREAT | (exclusive ? O_EXCL : 0), mode);
    if (fd < 0)
        return tree_file_refused(errno, shown, err);
    r = tree_file_prepare(fd, shown, rules, mode, created, err);
    if (r < 0)
        return r;
    *ret = TAKE_FD(fd);
    *ret_created = created;
    return 0;
}

int tree_file_open(int dirfd, const char *name, const char *shown, const struct tree_rules *rules,
                   mode_t mode, int *ret, struct err *err)
{
    static const struct tree_condition none;
    bool created;

    return tree_file_open_if(dirfd, name, shown, rules, mode, &none, ret, &created, err);
}
