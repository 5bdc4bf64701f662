/*
 * edit: exact replacements. Each must be found exactly as often as the request says, in the text
 * that the ones before it have left; else nothing is written. The text is replaced in the file
 * itself, or beside it.
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

struct files_editor {
    struct files_task *job;
    char *text; /* owned */
    size_t len;
    uint64_t replaced, edits;
};

/* ---- the text ---- */

static uint64_t files_edit_count(const char *text, size_t len, const struct files_field *old)
{
    uint64_t n = 0;

    for (const char *p = text; (p = memmem(p, len - (size_t)(p - text), old->data, old->length));
         p += old->length)
        n++;
    return n;
}

static int files_edit_mismatch(const struct files_editor *e, uint64_t found, uint64_t wanted,
                               struct err *err)
{
    err_set(err, ERR_CONFLICT, "'%s': edit %llu: found %llu times, expected %llu (nothing changed)",
            e->job->path, (unsigned long long)e->edits, (unsigned long long)found,
            (unsigned long long)wanted);
    if (!found)
        return err_hint(err, "Read the file again: 'old' must be its exact text, blanks included.");
    return err_hint(err, "Give more of the text around it in 'old', or set 'count'.");
}

static int files_edit_replace(struct files_editor *e, const struct files_field *old,
                              const struct files_field *new, uint64_t wanted, struct err *err)
{
    uint64_t found = files_edit_count(e->text, e->len, old);
    size_t size, left = e->len;
    char *text, *to;
    const char *from = e->text, *p;

    e->edits++;
    if (found != wanted)
        return files_edit_mismatch(e, found, wanted, err);
    if (new->length > old->length &&
        (new->length - old->length) > (FILES_EDIT_MAX - e->len) / found)
        return err_set(err, ERR_LIMIT, "'%s' would be larger than %d MiB", e->job->path,
                       FILES_EDIT_MAX >> 20);
    size = e->len - (size_t)found * old->length + (size_t)found * new->length;
    text = to = xmalloc(size + 1);
    while ((p = memmem(from, left, old->data, old->length))) {
        to = mempcpy(to, from, (size_t)(p - from));
        to = mempcpy(to, new->data, new->length);
        from = p + old->length;
        left = e->len - (size_t)(from - e->text);
    }
    memcpy(to, from, left);
    free(e->text);
    e->text = text;
    e->len = size;
    e->replaced += found;
    return 0;
}

/* OLD, NEW and COUNT, in this order, for each edit. */
static int files_edit_all(struct files_editor *e, struct err *err)
{
    struct files_reader r = files_fields(&e->job->asked), ahead;
    struct files_field f, old = {0}, next;
    int n;

    while ((n = files_next(&r, &f, err)) > 0) {
        uint64_t wanted = 1;

        if (f.tag == FILES_TAG_OLD)
            old = f;
        if (f.tag != FILES_TAG_NEW)
            continue;
        if (!old.length)
            return err_set(err, ERR_INVALID, "files message: NEW without OLD");
        ahead = r;
        if (files_next(&ahead, &next, NULL) > 0 && next.tag == FILES_TAG_COUNT)
            wanted = next.u64;
        n = files_edit_replace(e, &old, &f, wanted, err);
        if (n < 0)
            return n;
    }
    return n;
}

/* ---- the file ---- */

static int files_edit_read(struct files_editor *e, int fd, struct err *err)
{
    const struct files_task *j = e->job;
    char etag[FILES_ETAG_SIZE];
    struct stat st;
    ssize_t n;

    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? err_set(err, ERR_CONFLICT,
                                              "'%s' is locked (another request writes it)", j->path)
                                    : tree_err(err, errno, "lock '%s'", j->path);
    if (fstat(fd, &st) < 0)
        return tree_err(err, errno, "stat '%s'", j->path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_CONFLICT, "'%s' is not a regular file", j->path);
    if (j->if_match && !files_etag_listed(j->if_match, files_etag(&st, etag), false))
        return err_set(err, ERR_CONFLICT, "'%s' has changed (its etag is not in 'if_match')",
                       j->path);
    if (st.st_size > FILES_EDIT_MAX)
        return err_set(err, ERR_LIMIT, "'%s' is larger than %d MiB", j->path, FILES_EDIT_MAX >> 20);
    e->text = xmalloc((size_t)st.st_size + 1);
    n = fd_read_full(fd, e->text, (size_t)st.st_size + 1);
    if (n < 0)
        return tree_err(err, (int)-n, "read '%s'", j->path);
    if (n > st.st_size)
        return err_set(err, ERR_CONFLICT, "'%s' grew while it was read", j->path);
    e->len = (size_t)n;
    return 0;
}

static int files_edit_through(const struct files_editor *e, int fd, struct err *err)
{
    int r;

    if (lseek(fd, 0, SEEK_SET) < 0)
        return tree_err(err, errno, "write '%s'", e->job->path);
    r = fd_write_all(fd, e->text, e->len);
    if (r >= 0 && ftruncate(fd, (off_t)e->len) < 0)
        r = -errno;
    if (r >= 0)
        return 0;
    tree_err(err, -r, "write '%s'", e->job->path);
    return err_wrap(err, "'%s' is incomplete", e->job->path);
}

static int files_edit_beside(struct files_editor *e, int old, int *ret, struct err *err)
{
    _cleanup_free_ char *name = NULL;
    _cleanup_close_ int dirfd = -1, fd = -1;
    struct stat held, now;
    char temp[FILES_TEMP_SIZE];
    int r = files_open_parent(e->job, e->job->path, false, &dirfd, &name, err);

    if (r >= 0)
        r = files_temp_name(temp, err);
    if (r < 0)
        return r;
    fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return tree_err(err, errno, "make a file beside '%s'", e->job->path);
    r = files_edit_through(e, fd, err);
    if (r >= 0 && (fstat(old, &held) < 0 || fchmod(fd, held.st_mode & 0777) < 0))
        r = tree_err(err, errno, "set the mode of '%s'", e->job->path);
    if (r >= 0 && (fstatat(dirfd, name, &now, 0) < 0 || now.st_ino != held.st_ino))
        r = err_set(err, ERR_CONFLICT, "'%s' was replaced meanwhile", e->job->path);
    if (r >= 0 && renameat(dirfd, temp, dirfd, name) < 0)
        r = tree_err(err, errno, "put '%s' in place", e->job->path);
    if (r < 0)
        (void)unlinkat(dirfd, temp, 0);
    else
        *ret = TAKE_FD(fd);
    return r;
}

static int files_edit_file(struct files_editor *e, struct err *err)
{
    struct files_task *j = e->job;
    bool atomic = files_has(j, FILES_TAG_ATOMIC);
    _cleanup_close_ int fd = files_open(j->path, (atomic ? O_RDONLY : O_RDWR) | O_NONBLOCK);
    _cleanup_close_ int made = -1;
    struct stat st;
    int r;

    if (fd < 0)
        return tree_err(err, errno, "open '%s'", j->path);
    r = files_edit_read(e, fd, err);
    if (r >= 0)
        r = files_edit_all(e, err);
    if (r >= 0)
        r = atomic ? files_edit_beside(e, fd, &made, err) : files_edit_through(e, fd, err);
    if (r < 0)
        return r;
    if (fstat(atomic ? made : fd, &st) < 0)
        return tree_err(err, errno, "stat '%s'", j->path);
    files_answer(j, FILES_DONE);
    files_put_u64(&j->out, FILES_TAG_REPLACED, e->replaced);
    files_put_entry(j, -1, "", j->path, &st);
    return files_send(j, err);
}

int files_edit(struct files_task *j, struct err *err)
{
    struct files_editor e = {.job = j};
    int r = files_edit_file(&e, err);

    free(e.text);
    return r;
}
