#include "files/copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"

enum { COPY_CHUNK = 256 << 10, COPY_DEPTH_MAX = 128 };

struct files_copier {
    struct files_task *job;
    struct files_copy_totals *totals;
    char *chunk; /* owned */
};

static int files_copy_entry(struct files_copier *c, int from, const char *name, int to,
                            const char *to_name, unsigned depth, struct err *err);

static int files_copy_failed(const struct files_copier *c, const char *name, struct err *err)
{
    int errnum = errno;

    return tree_err(err, errnum, "copy '%s' ('%s')", c->job->path, name);
}

static int files_copy_bytes(struct files_copier *c, int in, int out, const char *name,
                            struct err *err)
{
    for (;;) {
        ssize_t n = read(in, c->chunk, COPY_CHUNK);
        int r;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return files_copy_failed(c, name, err);
        if (n == 0)
            return 0;
        r = fd_write_all(out, c->chunk, (size_t)n);
        if (r < 0)
            return errno = -r, files_copy_failed(c, name, err);
        c->totals->bytes += (uint64_t)n;
        if (c->job->io->wait(c->job->io->arg, -1, 0) < 0)
            return files_lost(err);
    }
}

/* A mode or time that cannot be set must not fail the copy. */
static void files_copy_marks(int fd, const struct stat *st)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, st->st_mtim};

    (void)fchmod(fd, st->st_mode & 0777);
    (void)futimens(fd, times);
}

static int files_copy_file(struct files_copier *c, int from, const char *name, int to,
                           const char *to_name, struct err *err)
{
    _cleanup_close_ int out = -1;
    _cleanup_close_ int in =
        openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    int r;

    if (in < 0 || fstat(in, &st) < 0)
        return files_copy_failed(c, name, err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_CONFLICT, "'%s' was replaced while it was copied", name);
    out = openat(to, to_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return files_copy_failed(c, name, err);
    r = files_copy_bytes(c, in, out, name, err);
    if (r >= 0)
        files_copy_marks(out, &st);
    return r;
}

static int files_copy_link(struct files_copier *c, int from, const char *name, int to,
                           const char *to_name, struct err *err)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

    if (n < 0)
        return files_copy_failed(c, name, err);
    target[n] = '\0';
    return symlinkat(target, to, to_name) < 0 ? files_copy_failed(c, name, err) : 0;
}

static int files_copy_children(struct files_copier *c, DIR *dir, int to, unsigned depth,
                               struct err *err)
{
    struct dirent *d;

    while (errno = 0, (d = readdir(dir))) {
        int r;

        if (STREQ(d->d_name, ".") || STREQ(d->d_name, ".."))
            continue;
        r = files_tick(c->job, err);
        if (r >= 0)
            r = files_copy_entry(c, dirfd(dir), d->d_name, to, d->d_name, depth + 1, err);
        if (r < 0)
            return r;
    }
    return errno ? files_copy_failed(c, ".", err) : 0;
}

static int files_copy_folder(struct files_copier *c, int from, const char *name, int to,
                             const char *to_name, unsigned depth, struct err *err)
{
    _cleanup_closedir_ DIR *dir = NULL;
    _cleanup_close_ int out = -1;
    struct stat st;
    int r, fd;

    if (depth >= COPY_DEPTH_MAX)
        return err_set(err, ERR_LIMIT, "'%s' is more than %d folders deep", c->job->path,
                       COPY_DEPTH_MAX);
    fd = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return files_copy_failed(c, name, err);
    dir = fdopendir(fd);
    if (!dir) {
        fd_close(fd);
        return files_copy_failed(c, name, err);
    }
    if (fstat(fd, &st) < 0 || mkdirat(to, to_name, 0700) < 0)
        return files_copy_failed(c, name, err);
    out = openat(to, to_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (out < 0)
        return files_copy_failed(c, name, err);
    r = files_copy_children(c, dir, out, depth, err);
    if (r >= 0)
        files_copy_marks(out, &st);
    return r;
}

static int files_copy_entry(struct files_copier *c, int from, const char *name, int to,
                            const char *to_name, unsigned depth, struct err *err)
{
    struct stat st;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT && depth ? 0 : files_copy_failed(c, name, err);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode)) {
        c->totals->skipped++;
        return 0;
    }
    c->totals->entries++;
    if (S_ISREG(st.st_mode))
        return files_copy_file(c, from, name, to, to_name, err);
    if (S_ISLNK(st.st_mode))
        return files_copy_link(c, from, name, to, to_name, err);
    return files_copy_folder(c, from, name, to, to_name, depth, err);
}

/* Refused before anything is copied; files_place() decides for good. */
static int files_copy_check(const struct files_task *j, int to, const char *to_name,
                            struct err *err)
{
    struct stat st;

    if (files_has(j, FILES_TAG_OVERWRITE) || fstatat(to, to_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    err_set(err, ERR_CONFLICT, "'%s' exists", j->to);
    return err_hint(err, "Set 'overwrite' to replace it.");
}

int files_copy_tree(struct files_task *j, int from, const char *name, int to, const char *to_name,
                    struct files_copy_totals *totals, struct err *err)
{
    _cleanup_free_ char *chunk = xmalloc(COPY_CHUNK);
    struct files_copier c = {j, totals, chunk};
    char temp[FILES_TEMP_SIZE];
    int r = files_copy_check(j, to, to_name, err);

    if (r < 0)
        return r;
    r = files_temp_name(temp, err);
    if (r < 0)
        return r;
    j->by.at = DEADLINE_NEVER;
    r = files_copy_entry(&c, from, name, to, temp, 0, err);
    if (r >= 0 && totals->entries)
        r = files_place(j, to, temp, to, to_name, err);
    if (r < 0)
        (void)files_remove_tree(to, temp, j->to, NULL);
    return r;
}

/* A copy into itself would find itself. */
static int files_copy_not_below(const struct files_task *j, struct err *err)
{
    size_t len = strlen(j->path);

    while (len > 1 && j->path[len - 1] == '/')
        len--;
    if (strncmp(j->path, j->to, len) == 0 && (j->to[len] == '/' || j->to[len] == '\0'))
        return err_set(err, ERR_CONFLICT, "'%s' cannot be copied into itself ('%s')", j->path,
                       j->to);
    return 0;
}

static int files_copy_source(struct files_task *j, int *ret, char **ret_name, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r = files_open_parent(j, j->path, false, &fd, ret_name, err);

    if (r < 0)
        return r;
    if (fstatat(fd, *ret_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return tree_err(err, errno, "copy '%s'", j->path);
    if (S_ISDIR(st.st_mode) && !files_has(j, FILES_TAG_RECURSIVE)) {
        err_set(err, ERR_CONFLICT, "'%s' is a folder", j->path);
        return err_hint(err, "Set 'recursive' to copy a folder with its contents.");
    }
    *ret = TAKE_FD(fd);
    return S_ISDIR(st.st_mode) ? files_copy_not_below(j, err) : 0;
}

int files_copy(struct files_task *j, struct err *err)
{
    _cleanup_free_ char *name = NULL, *to_name = NULL;
    _cleanup_close_ int from = -1, to = -1;
    struct files_copy_totals totals = {0};
    int r = files_copy_source(j, &from, &name, err);

    if (r < 0)
        return r;
    r = files_open_parent(j, j->to, files_has(j, FILES_TAG_PARENTS), &to, &to_name, err);
    if (r < 0)
        return r;
    r = files_copy_tree(j, from, name, to, to_name, &totals, err);
    if (r < 0)
        return r;
    files_answer(j, FILES_DONE);
    files_put_u64(&j->out, FILES_TAG_ENTRIES, totals.entries);
    files_put_u64(&j->out, FILES_TAG_BYTES, totals.bytes);
    files_put_u64(&j->out, FILES_TAG_SKIPPED, totals.skipped);
    return files_send(j, err);
}
