/*
 * Entries: what stat(2) says, as the fields of an item.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "files/job.h"
#include "lib/base/cleanup.h"
#include "lib/base/tree.h"

static uint64_t files_nanoseconds(const struct timespec *t)
{
    return t->tv_sec < 0 ? 0 : (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
}

/* The time of the last change counts too, which a program cannot set: a file that was written and
 * got its old time back has another tag. */
const char *files_etag(const struct stat *st, char buf[static FILES_ETAG_SIZE])
{
    snprintf(buf, FILES_ETAG_SIZE, "\"%llx-%llx-%llx-%llx\"", (unsigned long long)st->st_ino,
             (unsigned long long)st->st_size, (unsigned long long)files_nanoseconds(&st->st_mtim),
             (unsigned long long)files_nanoseconds(&st->st_ctim));
    return buf;
}

enum files_entry_type files_entry_type(const struct stat *st)
{
    if (S_ISREG(st->st_mode))
        return FILES_IS_FILE;
    if (S_ISDIR(st->st_mode))
        return FILES_IS_FOLDER;
    return S_ISLNK(st->st_mode) ? FILES_IS_LINK : FILES_IS_OTHER;
}

void files_put_entry(struct files_task *j, int dirfd, const char *name, const char *shown,
                     const struct stat *st)
{
    char etag[FILES_ETAG_SIZE], target[PATH_MAX];
    ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(dirfd, name, target, FILES_PATH_MAX) : -1;

    files_put_str(&j->out, FILES_TAG_PATH, shown);
    files_put_u64(&j->out, FILES_TAG_TYPE, files_entry_type(st));
    files_put_u64(&j->out, FILES_TAG_SIZE, (uint64_t)st->st_size);
    files_put_u64(&j->out, FILES_TAG_MODE, st->st_mode & 0777);
    files_put_u64(&j->out, FILES_TAG_UID, st->st_uid);
    files_put_u64(&j->out, FILES_TAG_GID, st->st_gid);
    files_put_u64(&j->out, FILES_TAG_LINKS, st->st_nlink);
    files_put_u64(&j->out, FILES_TAG_MODIFIED, files_nanoseconds(&st->st_mtim));
    if (S_ISREG(st->st_mode))
        files_put_str(&j->out, FILES_TAG_ETAG, files_etag(st, etag));
    if (n >= 0)
        files_put_bytes(&j->out, FILES_TAG_TARGET, target, (size_t)n);
}

int files_send_entry(struct files_task *j, enum files_type type, int dirfd, const char *name,
                     const char *shown, const struct stat *st, struct err *err)
{
    files_answer(j, type);
    files_put_entry(j, dirfd, name, shown, st);
    return files_send(j, err);
}

int files_stat(struct files_task *j, struct err *err)
{
    bool follow = files_has(j, FILES_TAG_FOLLOW);
    _cleanup_close_ int fd = files_open(j->path, O_PATH | (follow ? 0 : O_NOFOLLOW));
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return tree_err(err, errno, "stat '%s'", j->path);
    return files_send_entry(j, FILES_DONE, fd, "", j->path, &st, err);
}
