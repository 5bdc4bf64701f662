#include "image/archive/mount-cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/oci/digest.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/usage.h"
#include "lib/base/xalloc.h"

static const char all_mounts[] = "mounts";

/* A cache can hold millions of small files. A walk that takes longer returns the bytes that it has
 * seen so far. */
#define MEASURE_TIMEOUT (60 * USEC_PER_SEC)

/* ---- locks ---- */

/*
 * The use lock. Every user of a mount holds it shared, with any slot; removing a mount needs it
 * exclusively. It is an OFD lock, because F_OFD_GETLK can test it without taking it: a process that
 * only lists mounts must not prevent another from removing one.
 */
static int mount_cache_use_lock_open(int dir, int *ret, struct err *err)
{
    int fd = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(err, errno, "open the lock of a cache mount");
    *ret = fd;
    return 0;
}

static int mount_cache_use_lock_call(int fd, int op, short type, struct flock *ret)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET};
    int r;

    while ((r = fcntl(fd, op, &l)) < 0 && errno == EINTR)
        ;
    if (r >= 0 && ret)
        *ret = l;
    return r < 0 ? -errno : 0;
}

/* A lock that cannot be tested counts as held. */
static bool mount_cache_is_in_use(int dir)
{
    _cleanup_close_ int fd = -1;
    struct flock l = {.l_type = F_WRLCK};

    return mount_cache_use_lock_open(dir, &fd, NULL) < 0 ||
           mount_cache_use_lock_call(fd, F_OFD_GETLK, F_WRLCK, &l) < 0 || l.l_type != F_UNLCK;
}

static int mount_cache_lock_slot(int dir, unsigned slot, int how, int *ret, struct err *err)
{
    _cleanup_free_ char *name = xasprintf("%u.lock", slot);
    _cleanup_close_ int fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(err, errno, "open the lock of a cache mount");
    while (flock(fd, how) < 0) {
        if (errno == EWOULDBLOCK)
            return 0;
        if (errno != EINTR)
            return err_sys(err, errno, "lock a cache mount");
    }
    *ret = TAKE_FD(fd);
    return 1;
}

static int mount_cache_take_slot(struct mount_cache *c, enum mount_cache_share share,
                                 struct err *err)
{
    int r = 0;

    if (share != MOUNT_CACHE_PRIVATE)
        return mount_cache_lock_slot(c->dir, 0, share == MOUNT_CACHE_SHARED ? LOCK_SH : LOCK_EX,
                                     &c->lock, err);
    for (c->slot = 0; c->slot < MOUNT_CACHE_SLOTS; c->slot++) {
        r = mount_cache_lock_slot(c->dir, c->slot, LOCK_EX | LOCK_NB, &c->lock, err);
        if (r != 0)
            return r;
    }
    return err_set(err, ERR_LIMIT, "this private cache mount is already in use by %d builds",
                   MOUNT_CACHE_SLOTS);
}

/* ---- for builds ---- */

static char *mount_cache_folder_of(const char *id)
{
    char digest[DIGEST_MAX];

    digest_of(id, strlen(id), digest);
    return xasprintf("%s/%s", all_mounts, digest_hex(digest));
}

/* Whether the open folder is still at its path in the store. */
static bool mount_cache_is_current(const struct images *s, const struct mount_cache *c)
{
    struct stat held, named;

    return fstat(c->dir, &held) == 0 &&
           fstatat(s->dir, c->folder, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

/* Creates the folder if it is missing. A folder that was removed while we waited for the lock is
 * tried again. */
static int mount_cache_take_use_lock(const struct images *s, struct mount_cache *c, struct err *err)
{
    for (;;) {
        int r = dir_make_all(s->dir, c->folder, 0700, err);

        if (r < 0)
            return r;
        r = dir_open(s->dir, c->folder, &c->dir, err);
        if (r < 0)
            return r;
        r = mount_cache_use_lock_open(c->dir, &c->use_lock, err);
        if (r < 0)
            return r;
        r = mount_cache_use_lock_call(c->use_lock, F_OFD_SETLKW, F_RDLCK, NULL);
        if (r < 0)
            return err_sys(err, -r, "lock a cache mount");
        if (mount_cache_is_current(s, c))
            return 0;
        c->use_lock = fd_close(c->use_lock);
        c->dir = fd_close(c->dir);
    }
}

/* Fills *c as far as it gets. */
static int mount_cache_open(const struct images *s, const char *id, enum mount_cache_share share,
                            struct mount_cache *c, struct err *err)
{
    int r;

    c->folder = mount_cache_folder_of(id);
    r = mount_cache_take_use_lock(s, c, err);
    if (r < 0)
        return r;
    r = mount_cache_take_slot(c, share, err);
    if (r < 0)
        return r;
    return file_replace_shared(c->dir, "id", id, strlen(id), 0600, err);
}

int mount_cache_take(const struct images *s, const char *id, enum mount_cache_share share,
                     struct mount_cache *ret, struct err *err)
{
    struct mount_cache c = MOUNT_CACHE_INIT;
    int r;

    if (strlen(id) > MOUNT_CACHE_ID_MAX)
        return err_set(err, ERR_LIMIT, "the id of the cache mount is longer than %d bytes",
                       MOUNT_CACHE_ID_MAX);
    r = mount_cache_open(s, id, share, &c, err);
    if (r < 0) {
        mount_cache_done(&c);
        return r;
    }
    *ret = c;
    return r;
}

void mount_cache_done(struct mount_cache *c)
{
    fd_close(c->lock);
    fd_close(c->use_lock);
    fd_close(c->dir);
    free(c->folder);
    *c = (struct mount_cache)MOUNT_CACHE_INIT;
}

/* ---- listing ---- */

struct mount_cache_item {
    char *folder, *id;
    struct timespec used;
    uint64_t bytes;
    bool in_use;
};

struct mount_cache_items {
    struct mount_cache_item *v;
    size_t n;
};

static void mount_cache_items_done(struct mount_cache_items *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].folder);
        free(l->v[i].id);
    }
    free(l->v);
    *l = (struct mount_cache_items){0};
}

static int mount_cache_run_measure(void *arg, int root, void *out, struct err *err)
{
    struct deadline by = deadline_in(MEASURE_TIMEOUT);

    (void)arg;
    for (unsigned slot = 0; slot < MOUNT_CACHE_SLOTS; slot++) {
        _cleanup_free_ char *name = xasprintf("%u", slot);
        int r = usage_add(root, name, &by, out, err);

        if (r < 0)
            return r;
    }
    return 0;
}

/* In a child with the owners' ids: the caller may not be allowed to read all folders. */
static int mount_cache_measure(int dir, const struct confined_ids *ids, uint64_t *ret,
                               struct err *err)
{
    const struct confined_job job = {.fn = mount_cache_run_measure, .dir = dir, .trees = true};
    _cleanup_(confined_done) struct confined child = CONFINED_INIT;
    int r = confined_start(&job, ids, &child, err);

    if (r < 0)
        return r;
    return confined_wait(&child, ret, sizeof(*ret), err);
}

/* The saved size is valid if the mount was not used since it was measured. */
static bool mount_cache_read_size(int dir, const struct timespec *used, uint64_t *ret)
{
    _cleanup_free_ char *text = NULL;
    unsigned long long bytes, sec;
    unsigned long nsec;
    size_t len;

    if (file_read(dir, "size", 128, &text, &len, NULL) < 0 ||
        sscanf(text, "%llu %llu %lu", &bytes, &sec, &nsec) != 3 ||
        sec != (unsigned long long)used->tv_sec || nsec != (unsigned long)used->tv_nsec)
        return false;
    *ret = bytes;
    return true;
}

static void mount_cache_save_size(int dir, const struct mount_cache_item *i)
{
    _cleanup_free_ char *text =
        xasprintf("%llu %llu %lu\n", (unsigned long long)i->bytes,
                  (unsigned long long)i->used.tv_sec, (unsigned long)i->used.tv_nsec);

    file_replace_shared(dir, "size", text, strlen(text), 0600, NULL);
}

static int mount_cache_read_item(int dir, const struct confined_ids *ids,
                                 struct mount_cache_item *ret, struct err *err)
{
    struct stat st;
    size_t len;
    int r = file_read(dir, "id", MOUNT_CACHE_ID_MAX, &ret->id, &len, NULL);

    /* Without an id (just created, or damaged) the time of the folder is the time of use. */
    if (fstatat(dir, r < 0 ? "." : "id", &st, AT_SYMLINK_NOFOLLOW) < 0 && fstat(dir, &st) < 0)
        return err_sys(err, errno, "stat a cache mount");
    if (r < 0)
        ret->id = xstrdup("");
    ret->used = st.st_mtim;
    ret->in_use = mount_cache_is_in_use(dir);
    if (mount_cache_read_size(dir, &ret->used, &ret->bytes))
        return 0;
    r = mount_cache_measure(dir, ids, &ret->bytes, err);
    if (r < 0)
        return r;
    if (!ret->in_use)
        mount_cache_save_size(dir, ret);
    return 0;
}

static int mount_cache_longest_unused_first(const void *a, const void *b)
{
    const struct timespec *x = &((const struct mount_cache_item *)a)->used,
                          *y = &((const struct mount_cache_item *)b)->used;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static int mount_cache_open_all(const struct images *s, DIR **ret, struct err *err)
{
    int fd = openat(s->dir, all_mounts, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    *ret = fd < 0 ? NULL : fdopendir(fd);
    if (*ret || errno == ENOENT)
        return 0;
    fd_close(fd);
    return err_sys(err, errno, "read folder '%s' of the image store", all_mounts);
}

/* Sorted: the longest unused first. */
static int mount_cache_read_all(const struct images *s, const struct confined_ids *ids,
                                struct mount_cache_items *ret, struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    int r = mount_cache_open_all(s, &d, err);

    if (r < 0)
        return r;
    for (const struct dirent *e; d && (e = readdir(d));) {
        _cleanup_close_ int dir = -1;
        struct mount_cache_item *i;

        if (e->d_name[0] == '.' || dir_open(dirfd(d), e->d_name, &dir, NULL) < 0)
            continue; /* another process has removed it */
        ret->v = xreallocarray(ret->v, ret->n + 1, sizeof(*ret->v));
        i = &ret->v[ret->n++];
        *i = (struct mount_cache_item){.folder = xasprintf("%s/%s", all_mounts, e->d_name)};
        r = mount_cache_read_item(dir, ids, i, err);
        if (r < 0)
            return r;
    }
    if (ret->n)
        qsort(ret->v, ret->n, sizeof(*ret->v), mount_cache_longest_unused_first);
    return 0;
}

int mount_cache_list(const struct images *s, const struct confined_ids *ids, json_t **ret,
                     struct err *err)
{
    _cleanup_(mount_cache_items_done) struct mount_cache_items all = {0};
    json_int_t sum = 0;
    json_t *list;
    int r = mount_cache_read_all(s, ids, &all, err);

    if (r < 0)
        return r;
    list = json_array();
    for (size_t n = all.n; n > 0; n--) {
        const struct mount_cache_item *i = &all.v[n - 1];

        sum += (json_int_t)i->bytes;
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:b}", "id", i->id, "bytes",
                                              (json_int_t)i->bytes, "last_used",
                                              (json_int_t)i->used.tv_sec, "in_use", i->in_use));
    }
    *ret = json_pack("{s:o, s:I}", "mounts", list, "bytes", sum);
    return 0;
}

/* ---- removing ---- */

/* 1: removed; 0: a build uses it, or another process has removed it. */
static int mount_cache_remove_one(const struct images *s, const struct confined_ids *ids,
                                  const char *folder, struct err *err)
{
    _cleanup_free_ char *tmp =
        xasprintf("tmp/mount-%d-%s", (int)getpid(), strrchr(folder, '/') + 1);
    _cleanup_close_ int use_lock = -1;
    _cleanup_close_ int dir =
        openat(s->dir, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int r;

    if (dir < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "open '%s' of the image store", folder);
    r = mount_cache_use_lock_open(dir, &use_lock, err);
    if (r < 0)
        return r;
    r = mount_cache_use_lock_call(use_lock, F_OFD_SETLK, F_WRLCK, NULL);
    if (r == -EAGAIN || r == -EACCES)
        return 0;
    if (r < 0)
        return err_sys(err, -r, "lock a cache mount");
    if (renameat(s->dir, folder, s->dir, tmp) < 0)
        return errno == ENOENT
                   ? 0
                   : err_sys(err, errno, "move a cache mount to the folder for deletion");
    use_lock = fd_close(use_lock);
    r = confined_remove(ids, s->dir, tmp, err);
    return r < 0 ? r : 1;
}

static json_t *mount_cache_removed_json(void)
{
    return json_pack("{s:i, s:i, s:[]}", "removed", 0, "bytes", 0, "mounts");
}

static void mount_cache_count_removed(json_t *doc, const char *id, uint64_t bytes)
{
    json_int_t n = json_integer_value(json_object_get(doc, "removed"));
    json_int_t sum = json_integer_value(json_object_get(doc, "bytes"));

    json_object_set_new(doc, "removed", json_integer(n + 1));
    json_object_set_new(doc, "bytes", json_integer(sum + (json_int_t)bytes));
    json_array_append_new(json_object_get(doc, "mounts"), json_string(id));
}

static int mount_cache_measure_and_remove(const struct images *s, const struct confined_ids *ids,
                                          const char *folder, uint64_t *ret_bytes, struct err *err)
{
    _cleanup_close_ int dir = -1;
    int r = dir_open(s->dir, folder, &dir, err);

    if (r < 0)
        return r;
    r = mount_cache_measure(dir, ids, ret_bytes, err);
    if (r < 0)
        return r;
    return mount_cache_remove_one(s, ids, folder, err);
}

int mount_cache_remove(const struct images *s, const struct confined_ids *ids, const char *id,
                       json_t **ret, struct err *err)
{
    _cleanup_free_ char *folder = mount_cache_folder_of(id);
    uint64_t bytes = 0;
    int r;

    if (faccessat(s->dir, folder, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
        err_set(err, ERR_NOT_FOUND, "no such cache mount: '%.200s'", id);
        return err_hint(err, "`ripcord cache ls` lists the ids of cache mounts.");
    }
    r = mount_cache_measure_and_remove(s, ids, folder, &bytes, err);
    if (r == 0)
        return err_set(err, ERR_CONFLICT, "cache mount '%.200s' is in use by a build", id);
    if (r < 0)
        return err_wrap(err, "remove cache mount '%.200s'", id);
    *ret = mount_cache_removed_json();
    mount_cache_count_removed(*ret, id, bytes);
    return 0;
}

int mount_cache_trim(const struct images *s, const struct confined_ids *ids, uint64_t keep,
                     uint64_t unused, json_t **ret, struct err *err)
{
    uint64_t sum = 0, now = time_wall() / USEC_PER_SEC;
    _cleanup_json_ json_t *doc = mount_cache_removed_json();
    _cleanup_(mount_cache_items_done) struct mount_cache_items all = {0};
    int r = mount_cache_read_all(s, ids, &all, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < all.n; i++)
        sum += all.v[i].bytes;
    for (size_t n = 0; n < all.n; n++) {
        const struct mount_cache_item *i = &all.v[n];
        bool old = unused && (uint64_t)i->used.tv_sec + unused <= now;

        if (i->in_use || (!old && keep && sum <= keep)) /* keep 0 also removes empty ones */
            continue;
        r = mount_cache_remove_one(s, ids, i->folder, err);
        if (r < 0)
            return r;
        if (r == 0)
            continue;
        sum -= i->bytes;
        mount_cache_count_removed(doc, i->id, i->bytes);
    }
    *ret = TAKE_PTR(doc);
    return 0;
}
