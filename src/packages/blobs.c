#include "packages/blobs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

#define NOTE_XATTR "user.ripcord.file"
enum { TOUCH_EVERY = 60 * 1000000 };

void blob_path(const struct digest *d, char ret[static BLOB_PATH_MAX])
{
    snprintf(ret, BLOB_PATH_MAX, "blobs/%s/%.2s/%s", digest_algo_name(d->algo), d->hex, d->hex);
}

/* -- the folders -- */

static void blobs_clear_tmp(int folder)
{
    _cleanup_close_ int fd = openat(folder, "tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (e->d_name[0] != '.')
            unlinkat(fd, e->d_name, 0);
}

static int blobs_make_folders(int dirfd, struct err *err)
{
    int r = dir_make_all(dirfd, "tmp", 0700, err);

    if (r < 0)
        return r;
    for (int a = 0; a < DIGEST_MAX; a++) {
        char path[BLOB_PATH_MAX];

        snprintf(path, sizeof(path), "blobs/%s", digest_algo_name((enum digest_algo)a));
        r = dir_make_all(dirfd, path, 0700, err);
        if (r < 0)
            return r;
    }
    return 0;
}

typedef void (*visit_fn)(void *arg, int dirfd, const char *name, const struct digest *d);

struct visit {
    enum digest_algo algo;
    visit_fn fn;
    void *arg;
};

static DIR *blobs_open_dir(int dirfd, const char *path)
{
    int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d)
        fd_close(fd);
    return d;
}

static void blobs_visit_files(const struct visit *v, int parent, const char *name)
{
    _cleanup_closedir_ DIR *dir = blobs_open_dir(parent, name);
    struct dirent *e;
    struct digest d;

    while (dir && (e = readdir(dir)))
        if (digest_from_hex(v->algo, e->d_name, &d) && STREQ(d.hex, e->d_name))
            v->fn(v->arg, dirfd(dir), e->d_name, &d);
}

static void blobs_visit_all(int folder, visit_fn fn, void *arg)
{
    for (int a = 0; a < DIGEST_MAX; a++) {
        struct visit v = {.algo = (enum digest_algo)a, .fn = fn, .arg = arg};
        char path[BLOB_PATH_MAX];
        _cleanup_closedir_ DIR *dir = NULL;
        struct dirent *e;

        snprintf(path, sizeof(path), "blobs/%s", digest_algo_name(v.algo));
        dir = blobs_open_dir(folder, path);
        while (dir && (e = readdir(dir)))
            if (e->d_name[0] != '.')
                blobs_visit_files(&v, dirfd(dir), e->d_name);
    }
}

/* -- the table -- */

static struct blob *blobs_insert(struct blobs *b, const struct digest *d, uint64_t size,
                                 int64_t used)
{
    struct blob *blob = xnew0(struct blob);
    char key[DIGEST_KEY_MAX];

    digest_key(d, key);
    *blob = (struct blob){.digest = *d, .size = size, .used = used};
    if (!map_add(&b->map, key, blob)) {
        free(blob);
        return map_get(&b->map, key);
    }
    b->n++;
    b->bytes += size;
    return blob;
}

static void blobs_found(void *arg, int dirfd, const char *name, const struct digest *d)
{
    struct stat st;

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        blobs_insert(arg, d, (uint64_t)st.st_size,
                     (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000);
}

int blobs_open(struct blobs *b, int dirfd, uint64_t budget, struct err *err)
{
    int r;

    *b = (struct blobs){.dirfd = dirfd, .budget = budget};
    r = blobs_make_folders(dirfd, err);
    if (r < 0)
        return r;
    blobs_clear_tmp(dirfd);
    blobs_visit_all(dirfd, blobs_found, b);
    return 0;
}

void blobs_done(struct blobs *b)
{
    void *blob;

    for (size_t i = 0; map_next(&b->map, &i, NULL, &blob);)
        free(blob);
    map_done(&b->map);
}

struct blob *blobs_get(struct blobs *b, const struct digest *d)
{
    char key[DIGEST_KEY_MAX];

    digest_key(d, key);
    return map_get(&b->map, key);
}

void blobs_forget(struct blobs *b, const struct digest *d)
{
    char key[DIGEST_KEY_MAX];
    struct blob *blob;

    digest_key(d, key);
    blob = map_remove(&b->map, key);
    if (!blob)
        return;
    b->bytes -= blob->size;
    b->n--;
    free(blob);
}

int blobs_use(struct blobs *b, const struct digest *d, uint64_t *ret_size)
{
    struct blob *blob = blobs_get(b, d);
    int64_t now = (int64_t)time_wall();
    char path[BLOB_PATH_MAX];
    struct stat st;
    int fd;

    if (!blob)
        return -1;
    blob_path(d, path);
    fd = openat(b->dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size != blob->size) {
        fd_close(fd);
        unlinkat(b->dirfd, path, 0);
        blobs_forget(b, d);
        return -1;
    }
    if (now - blob->used >= TOUCH_EVERY)
        futimens(fd, NULL);
    blob->used = now;
    *ret_size = blob->size;
    return fd;
}

void blobs_add(struct blobs *b, const struct digest *d, uint64_t size)
{
    blobs_insert(b, d, size, (int64_t)time_wall());
    if (b->bytes > b->budget)
        blobs_evict(b, b->budget - b->budget / 10, 0, NULL, NULL);
}

static int blobs_by_use(const void *a, const void *b)
{
    const struct blob *x = *(struct blob *const *)a, *y = *(struct blob *const *)b;

    return x->used < y->used ? -1 : x->used > y->used;
}

void blobs_evict(struct blobs *b, uint64_t keep, int64_t before, uint64_t *ret_n,
                 uint64_t *ret_bytes)
{
    _cleanup_free_ struct blob **all = xcalloc(b->n + 1, sizeof(struct blob *));
    uint64_t n_gone = 0, bytes_gone = 0;
    size_t n = 0;
    void *value;

    for (size_t i = 0; map_next(&b->map, &i, NULL, &value);)
        all[n++] = value;
    qsort(all, n, sizeof(struct blob *), blobs_by_use);
    for (size_t i = 0; i < n && (b->bytes > keep || all[i]->used < before); i++) {
        char path[BLOB_PATH_MAX];

        blob_path(&all[i]->digest, path);
        if (unlinkat(b->dirfd, path, 0) < 0 && errno != ENOENT)
            continue;
        n_gone++;
        bytes_gone += all[i]->size;
        blobs_forget(b, &all[i]->digest);
    }
    b->evicted += n_gone;
    if (ret_n)
        *ret_n = n_gone;
    if (ret_bytes)
        *ret_bytes = bytes_gone;
}

/* -- for workers -- */

int blob_tmp(int dirfd, char name[static 32], int *ret, struct err *err)
{
    static atomic_ulong counter;
    char path[48];
    int fd;

    snprintf(name, 32, "tmp/blob-%lu", atomic_fetch_add(&counter, 1));
    snprintf(path, sizeof(path), "%s", name);
    fd = openat(dirfd, path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(err, errno, "create '%s'", path);
    *ret = fd;
    return 0;
}

/* Creates the folder of the file on first use. */
static int blobs_rename_into(int dirfd, const char *tmp, const char *path)
{
    _cleanup_free_ char *folder = xstrndup(path, (size_t)(strrchr(path, '/') - path));

    if (renameat(dirfd, tmp, dirfd, path) == 0)
        return 0;
    if (errno != ENOENT)
        return -1;
    if (mkdirat(dirfd, folder, 0700) < 0 && errno != EEXIST)
        return -1;
    return renameat(dirfd, tmp, dirfd, path);
}

int blob_commit(int dirfd, int fd, const char *tmp, const struct digest *d, const char *note,
                struct err *err)
{
    _cleanup_free_ char *folder = NULL;
    _cleanup_close_ int parent = -1;
    char path[BLOB_PATH_MAX];

    blob_path(d, path);
    fsetxattr(fd, NOTE_XATTR, note, MIN(strlen(note), (size_t)BLOB_NOTE_MAX - 1), 0);
    if (fchmod(fd, 0400) < 0 || fsync(fd) < 0)
        return err_sys(err, errno, "sync '%s'", tmp);
    if (blobs_rename_into(dirfd, tmp, path) < 0)
        return err_sys(err, errno, "rename '%s' to '%s'", tmp, path);
    folder = xstrndup(path, (size_t)(strrchr(path, '/') - path));
    parent = openat(dirfd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0 || fsync(parent) < 0)
        return err_sys(err, errno, "sync the folder of '%s'", path);
    return 0;
}

struct blobs_walk {
    blob_walk_fn fn;
    void *arg;
};

static void blobs_walk_one(void *arg, int dirfd, const char *name, const struct digest *d)
{
    struct blobs_walk *w = arg;
    _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd >= 0)
        w->fn(w->arg, fd, d);
}

void blobs_walk(int dirfd, blob_walk_fn fn, void *arg)
{
    blobs_visit_all(dirfd, blobs_walk_one, &(struct blobs_walk){fn, arg});
}

void blob_note(int fd, char ret[static BLOB_NOTE_MAX])
{
    ssize_t n = fgetxattr(fd, NOTE_XATTR, ret, BLOB_NOTE_MAX - 1);

    ret[n > 0 ? n : 0] = '\0';
}
