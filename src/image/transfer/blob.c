#include "image/transfer/blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "image/oci/digest.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { ATTEMPTS = 5, PIECE = 256 << 10, PAUSE_MS = 100, STALE_DAYS = 7 };

/* One running download. */
struct blob_download {
    const struct blob_fetch *b;
    int fd;
    uint64_t at;                 /* bytes in the file */
    struct digest_state *digest; /* owned: of these bytes */
};

/* ---- the file ---- */

/* Another pull may download the same blob: waits for it, until the caller gives up. */
static int blob_lock(int fd, const atomic_bool *stop, struct err *err)
{
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(err, errno, "lock a download");
        if (atomic_load(stop))
            return err_set(err, ERR_TIMEOUT, "the download was cancelled");
        poll(NULL, 0, PAUSE_MS);
    }
    return 0;
}

/* The pull that held the lock may have removed the file: then a new one is made. */
static int blob_open_locked(int dir, const char *name, const atomic_bool *stop, int *ret,
                            struct err *err)
{
    for (;;) {
        _cleanup_close_ int fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        struct stat st;
        int r;

        if (fd < 0)
            return err_sys(err, errno, "make file '%s'", name);
        r = blob_lock(fd, stop, err);
        if (r < 0)
            return r;
        if (fstat(fd, &st) < 0)
            return err_sys(err, errno, "stat '%s'", name);
        if (st.st_nlink == 0)
            continue;
        *ret = TAKE_FD(fd);
        return 0;
    }
}

static int blob_restart(struct blob_download *t, struct err *err)
{
    if (ftruncate(t->fd, 0) < 0)
        return err_sys(err, errno, "truncate a download");
    digest_end(t->digest, NULL);
    t->digest = digest_begin();
    t->at = 0;
    atomic_store(t->b->done, 0);
    return 0;
}

/* Reads the bytes of an earlier, interrupted download. */
static int blob_read_partial(struct blob_download *t, struct err *err)
{
    _cleanup_free_ char *buf = xmalloc(PIECE);

    for (;;) {
        ssize_t n = pread(t->fd, buf, PIECE, (off_t)t->at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "read an interrupted download");
        if (n == 0)
            break;
        digest_add(t->digest, buf, (size_t)n);
        t->at += (uint64_t)n;
        if (t->at > t->b->d->size)
            return blob_restart(t, err);
    }
    atomic_store(t->b->done, t->at);
    return 0;
}

/* ---- the transfer ---- */

static int blob_on_head(void *arg, const struct fetch_head *head, struct err *err)
{
    struct blob_download *t = arg;

    if (head->status == 206 && head->from != t->at)
        return err_set(err, ERR_ENGINE, "the registry sent bytes from %llu, expected %llu",
                       (unsigned long long)head->from, (unsigned long long)t->at);
    return head->status == 200 && t->at ? blob_restart(t, err) : 0;
}

static int blob_on_data(void *arg, const char *data, size_t len, struct err *err)
{
    struct blob_download *t = arg;
    const struct oci_descriptor *d = t->b->d;
    int r;

    if (len > d->size - t->at)
        return err_set(err, ERR_INVALID, "longer than the %llu bytes in the manifest",
                       (unsigned long long)d->size);
    r = fd_write_all(t->fd, data, len);
    if (r < 0)
        return err_sys(err, -r, "write a download");
    digest_add(t->digest, data, len);
    t->at += len;
    atomic_store(t->b->done, t->at);
    return 0;
}

static int blob_attempt(struct blob_download *t, struct err *err)
{
    const struct oci_descriptor *d = t->b->d;
    _cleanup_free_ char *path = xasprintf("blobs/%s", d->digest);
    const struct fetch f = {.url = path,
                            .from = t->at,
                            .size_max = d->size + 1,
                            .on_head = blob_on_head,
                            .on_data = blob_on_data,
                            .arg = t,
                            .stop = t->b->stop};
    _cleanup_(fetch_head_done) struct fetch_head head = {0};
    int r;

    if (lseek(t->fd, (off_t)t->at, SEEK_SET) < 0)
        return err_sys(err, errno, "seek in a download");
    r = repository_fetch(t->b->repository, &f, &head, err);
    if (r < 0)
        return r;
    if (head.status != 200 && head.status != 206)
        return repository_status_error(t->b->repository, head.status, "this layer", err);
    if (t->at < d->size)
        return err_set(err, ERR_ENGINE, "the connection ended after %llu of %llu bytes",
                       (unsigned long long)t->at, (unsigned long long)d->size);
    return 0;
}

/*
 * Tries again after a broken connection or a server error, but not after a refusal. Progress resets
 * the count of attempts.
 */
static int blob_receive(struct blob_download *t, struct err *err)
{
    for (int i = 1;; i++) {
        _cleanup_err_ struct err why = ERR_INIT;
        uint64_t before = t->at;
        int r;

        if (t->at == t->b->d->size)
            return 0;
        r = blob_attempt(t, &why);
        if (r >= 0)
            return 0;
        if (t->at > before)
            i = 1;
        if ((r != -ERR_ENGINE && r != -ERR_TIMEOUT) || i >= ATTEMPTS || atomic_load(t->b->stop))
            return err_move(err, &why);
        poll(NULL, 0, PAUSE_MS << i);
    }
}

static int blob_check(struct blob_download *t, struct err *err)
{
    const char *want = t->b->d->digest;
    char found[DIGEST_MAX];

    digest_end(TAKE_PTR(t->digest), found);
    if (STREQ(found, want))
        return 0;
    blob_remove(t->b->dir, want);
    return err_set(err, ERR_INVALID, "the registry sent damaged data (its digest is '%s')", found);
}

static int blob_complete(struct blob_download *t, struct err *err)
{
    const struct blob_fetch *b = t->b;
    int r;

    r = blob_open_locked(b->dir, digest_hex(b->d->digest), b->stop, &t->fd, err);
    if (r < 0)
        return r;
    t->digest = digest_begin();
    r = blob_read_partial(t, err);
    if (r < 0)
        return r;
    r = blob_receive(t, err);
    if (r < 0)
        return r;
    return blob_check(t, err);
}

int blob_fetch(const struct blob_fetch *b, int *ret, struct err *err)
{
    struct blob_download t = {.b = b, .fd = -1};
    int r = blob_complete(&t, err);

    if (t.digest)
        digest_end(t.digest, NULL);
    if (r < 0) {
        fd_close(t.fd);
        return err_wrap(err, "layer '%s'", b->d->digest);
    }
    *ret = t.fd;
    return 0;
}

void blob_remove(int dir, const char *digest)
{
    unlinkat(dir, digest_hex(digest), 0);
}

void blob_remove_stale(int dir)
{
    _cleanup_closedir_ DIR *d = NULL;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    time_t old = time(NULL) - STALE_DAYS * 24 * 3600;

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        fd_close(fd);
        return;
    }
    for (const struct dirent *e; (e = readdir(d));) {
        struct stat st;

        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_mtime < old)
            unlinkat(fd, e->d_name, 0);
    }
}
