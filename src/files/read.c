/*
 * The bytes of one file, or a range of them, if the conditions of the request hold. The conditions
 * are decided here and not in the daemon, on the descriptor that is then read.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "files/job.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"

enum { FILES_READ_CHUNK = 256 << 10 };

struct files_answer_range {
    uint64_t status, first, length, size;
};

static bool files_read_unchanged(const struct files_task *j, const char *etag)
{
    return j->if_none_match && files_etag_listed(j->if_none_match, etag, true);
}

/* A range counts only for the version that the client has. */
static bool files_read_wants_range(const struct files_task *j, const char *etag)
{
    bool asked = files_has(j, FILES_TAG_FIRST) || files_has(j, FILES_TAG_SUFFIX);

    return asked && (!j->if_range || files_etag_listed(j->if_range, etag, false));
}

static struct files_answer_range files_read_range(const struct files_task *j, uint64_t size)
{
    struct files_answer_range a = {.status = 206, .size = size};
    uint64_t end = files_has(j, FILES_TAG_LAST) ? MIN(j->last + 1, size) : size;

    a.first = files_has(j, FILES_TAG_SUFFIX) ? size - MIN(j->suffix, size) : j->first;
    if (a.first >= end)
        return (struct files_answer_range){.status = 416, .size = size};
    a.length = end - a.first;
    return a;
}

static struct files_answer_range files_read_decide(const struct files_task *j, const char *etag,
                                                   uint64_t size)
{
    if (j->if_match && !files_etag_listed(j->if_match, etag, false))
        return (struct files_answer_range){.status = 412, .size = size};
    if (files_read_unchanged(j, etag))
        return (struct files_answer_range){.status = 304, .size = size};
    if (files_read_wants_range(j, etag))
        return files_read_range(j, size);
    return (struct files_answer_range){.status = 200, .length = size, .size = size};
}

static int files_read_send_head(struct files_task *j, const struct stat *st,
                                const struct files_answer_range *a, struct err *err)
{
    struct stat shown = *st;
    int r;

    shown.st_size = (off_t)a->size;
    files_answer(j, FILES_HEAD);
    files_put_u64(&j->out, FILES_TAG_STATUS, a->status);
    files_put_u64(&j->out, FILES_TAG_FIRST, a->first);
    files_put_u64(&j->out, FILES_TAG_LENGTH, files_has(j, FILES_TAG_NO_BODY) ? 0 : a->length);
    files_put_entry(j, -1, "", j->path, &shown);
    r = files_send(j, err);
    return r < 0 ? r : files_flush(j, err);
}

static int files_read_send_bytes(struct files_task *j, int fd, uint64_t left, struct err *err)
{
    _cleanup_free_ char *chunk = xmalloc(FILES_READ_CHUNK);

    while (left) {
        ssize_t n = read(fd, chunk, MIN(left, (uint64_t)FILES_READ_CHUNK));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tree_err(err, errno, "read '%s'", j->path);
        if (n == 0)
            return err_set(err, ERR_CONFLICT, "'%s' shrank while it was read", j->path);
        if (j->io->write(j->io->arg, chunk, (size_t)n) < 0)
            return files_lost(err);
        left -= (uint64_t)n;
    }
    return 0;
}

/* Files of /proc have the size 0 and still content. It is read first, because its length is told
 * first. */
static int files_read_unsized(struct files_task *j, int fd, const struct stat *st, struct err *err)
{
    _cleanup_free_ char *chunk = xmalloc(FILES_READ_CHUNK);
    ssize_t n = fd_read_full(fd, chunk, FILES_READ_CHUNK);
    struct files_answer_range a;
    char etag[FILES_ETAG_SIZE];
    int r;

    if (n < 0)
        return tree_err(err, (int)-n, "read '%s'", j->path);
    if (n == FILES_READ_CHUNK)
        return err_set(err, ERR_UNSUPPORTED, "'%s' has no size and does not end", j->path);
    a = files_read_decide(j, files_etag(st, etag), (uint64_t)n);
    r = files_read_send_head(j, st, &a, err);
    if (r < 0 || files_has(j, FILES_TAG_NO_BODY) || !a.length)
        return r;
    return j->io->write(j->io->arg, chunk + a.first, (size_t)a.length) < 0 ? files_lost(err) : 0;
}

static int files_read_open(const struct files_task *j, int *ret, struct stat *ret_st,
                           struct err *err)
{
    _cleanup_close_ int fd = files_open(j->path, O_RDONLY | O_NONBLOCK);

    if (fd < 0 || fstat(fd, ret_st) < 0)
        return tree_err(err, errno, "open '%s'", j->path);
    if (S_ISDIR(ret_st->st_mode)) {
        err_set(err, ERR_CONFLICT, "'%s' is a folder", j->path);
        return err_hint(err, "Send 'Accept: application/x-tar' to get a folder as an archive.");
    }
    if (!S_ISREG(ret_st->st_mode))
        return err_set(err, ERR_CONFLICT, "'%s' is not a regular file", j->path);
    *ret = TAKE_FD(fd);
    return 0;
}

int files_read(struct files_task *j, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct files_answer_range a;
    char etag[FILES_ETAG_SIZE];
    struct stat st;
    int r = files_read_open(j, &fd, &st, err);

    if (r < 0)
        return r;
    if (st.st_size == 0)
        return files_read_unsized(j, fd, &st, err);
    a = files_read_decide(j, files_etag(&st, etag), (uint64_t)st.st_size);
    if (a.first && lseek(fd, (off_t)a.first, SEEK_SET) < 0)
        return tree_err(err, errno, "read '%s'", j->path);
    r = files_read_send_head(j, &st, &a, err);
    return r < 0 || files_has(j, FILES_TAG_NO_BODY) ? r
                                                    : files_read_send_bytes(j, fd, a.length, err);
}
