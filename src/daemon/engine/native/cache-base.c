#include "daemon/engine/native/cache-base.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/engine/caches.h"
#include "daemon/engine/native/cache-tree.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/tree.h"
#include "lib/base/usage.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "proto/plan.h"

#define EMPTY "0"

enum { NAME_SIZE = 32, BYTES_PER_BLOCK = 512 };

void cache_base_init(struct cache_base *b)
{
    *b = (struct cache_base){.dirfd = -1};
    pthread_mutex_init(&b->publishing, NULL);
    pthread_mutex_init(&b->lock, NULL);
}

static void cache_base_close(struct cache_base *b)
{
    b->dirfd = fd_close(b->dirfd);
    free(TAKE_PTR(b->dir));
    free(TAKE_PTR(b->current));
    free(TAKE_PTR(b->trouble));
}

void cache_base_done(struct cache_base *b)
{
    cache_base_close(b);
    pthread_mutex_destroy(&b->publishing);
    pthread_mutex_destroy(&b->lock);
}

/* ---- generations ---- */

static bool cache_base_is_generation(const char *name)
{
    return *name && strlen(name) < NAME_SIZE / 2 && strspn(name, "0123456789") == strlen(name);
}

/* Makes a folder of a new generation, readable for everybody in the sandbox. */
static int cache_base_make_folder(const struct cache_base *b, const char *path, bool agents,
                                  struct err *err)
{
    if (mkdirat(b->dirfd, path, 0755) < 0)
        return errno == EEXIST ? 0 : err_sys(err, errno, "make folder '%s/%s'", b->dir, path);
    if (fchmodat(b->dirfd, path, 0755, 0) < 0)
        return err_sys(err, errno, "set the mode of '%s/%s'", b->dir, path);
    if (agents && b->chown && fchownat(b->dirfd, path, PLAN_AGENT_ID, PLAN_AGENT_ID, 0) < 0)
        return err_sys(err, errno, "set the owner of '%s/%s'", b->dir, path);
    return 0;
}

/* Makes the folders that are missing: a later version may know more tools. */
static int cache_base_complete(const struct cache_base *b, const char *name, struct err *err)
{
    _cleanup_free_ char *cache = xasprintf("%s/cache", name);
    const struct cache_tool *t;
    int r;

    r = cache_base_make_folder(b, name, false, err);
    if (r < 0)
        return r;
    r = cache_base_make_folder(b, cache, true, err);
    if (r < 0)
        return r;
    for (size_t i = 0; (t = cache_tool_at(i)); i++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", cache, t->name);

        r = cache_base_make_folder(b, path, true, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int cache_base_read_current(struct cache_base *b, struct err *err)
{
    char name[NAME_SIZE] = EMPTY;
    ssize_t n = readlinkat(b->dirfd, "current", name, sizeof(name) - 1);
    struct stat st;

    if (n < 0 && errno != ENOENT)
        return err_sys(err, errno, "read '%s/current'", b->dir);
    name[n < 0 ? 1 : n] = '\0';
    if (!cache_base_is_generation(name) ||
        (!STREQ(name, EMPTY) && fstatat(b->dirfd, name, &st, 0) < 0))
        return err_set(err, ERR_SYSTEM, "'%s/current' points to a missing generation: '%s'", b->dir,
                       name);
    b->current = xstrdup(name);
    return 0;
}

static int cache_base_open_folder(struct cache_base *b, struct err *err)
{
    int r = dir_make_all(AT_FDCWD, b->dir, 0700, err);

    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, b->dir, &b->dirfd, err);
    if (r < 0)
        return r;
    r = cache_base_read_current(b, err);
    if (r < 0)
        return r;
    r = cache_base_complete(b, EMPTY, err);
    if (r < 0)
        return r;
    return cache_base_complete(b, b->current, err);
}

int cache_base_open(struct cache_base *b, const char *dir, bool chown, struct err *err)
{
    cache_base_close(b);
    b->chown = chown;
    b->dir = xstrdup(dir);
    if (cache_base_open_folder(b, err) >= 0)
        return 0;
    err_wrap(err, "open the base of the package caches");
    cache_base_close(b);
    b->trouble = xstrdup(err->msg);
    return -(int)err->code;
}

static int cache_base_check_open(const struct cache_base *b, struct err *err)
{
    if (b->dir)
        return 0;
    return err_set(err, ERR_SYSTEM, "%s",
                   b->trouble ? b->trouble : "the base of the package caches is not open");
}

/* The link is made with the lock held, so that a sweep cannot miss it. */
int cache_base_take(struct cache_base *b, bool empty, int run, char **ret, struct err *err)
{
    const char *name;
    int r = cache_base_check_open(b, err);

    if (r < 0)
        return r;
    pthread_mutex_lock(&b->lock);
    name = empty ? EMPTY : b->current;
    if (!STREQ(name, EMPTY) && symlinkat(name, run, CACHE_BASE_LINK) < 0)
        r = err_sys(err, errno, "record the base of the package caches");
    else
        *ret = xasprintf("%s/%s", b->dir, name);
    pthread_mutex_unlock(&b->lock);
    return r;
}

/* ---- new generations ---- */

static char *cache_base_next_name(const struct cache_base *b)
{
    uint64_t n = 0, last = 0;
    _cleanup_closedir_ DIR *d = NULL;
    int fd = openat(b->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    d = fd < 0 ? NULL : fdopendir(fd);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (cache_base_is_generation(e->d_name) &&
            parse_u64(e->d_name, 0, INT64_MAX, &n, NULL) >= 0)
            last = MAX(last, n);
    return xasprintf("%llu", (unsigned long long)last + 1);
}

/* Links the caches of all other tools from the current generation. */
static int cache_base_link_others(const struct cache_base *b, const char *tmp, const char *but,
                                  struct err *err)
{
    const struct cache_tool *t;

    for (size_t i = 0; (t = cache_tool_at(i)); i++) {
        _cleanup_free_ char *from = xasprintf("%s/cache/%s", b->current, t->name);
        _cleanup_free_ char *to = xasprintf("%s/cache/%s", tmp, t->name);
        int r = STREQ(t->name, but) ? 0 : cache_tree_link(b->dirfd, from, to, err);

        if (r < 0)
            return r;
    }
    return 0;
}

static ssize_t cache_base_read_fd(void *arg, void *data, size_t len)
{
    return fd_read_full(*(const int *)arg, data, len);
}

/* Unpacks into a folder of its own and moves only the folder of the tool into the generation. */
static int cache_base_unpack(const struct cache_base *b, const char *tmp, const char *tool,
                             int tar_fd, struct err *err)
{
    _cleanup_free_ char *at = xasprintf("%s/%s/new", b->dir, tmp);
    _cleanup_free_ char *from = xasprintf("%s/new/%s", tmp, tool);
    _cleanup_free_ char *to = xasprintf("%s/cache/%s", tmp, tool);
    _cleanup_free_ char *apart = xasprintf("%s/new", tmp);
    struct tree_stats stats = {0};
    int r;

    r = cache_base_make_folder(b, apart, false, err);
    if (r < 0)
        return r;
    r = tree_from_tar(at, NULL, cache_base_read_fd, &tar_fd, &stats, err);
    if (r < 0)
        return r;
    r = cache_tree_open_up(b->dirfd, from, b->chown, err);
    if (r < 0)
        return r;
    if (renameat(b->dirfd, from, b->dirfd, to) < 0)
        return err_sys(err, errno, "move '%s'", from);
    return rmtree(b->dirfd, apart, err);
}

/* All data is on the disk before the first name points to it. */
static int cache_base_switch_to(struct cache_base *b, const char *tmp, const char *name,
                                struct err *err)
{
    if (syncfs(b->dirfd) < 0)
        return err_sys(err, errno, "write '%s' to the disk", tmp);
    if (renameat(b->dirfd, tmp, b->dirfd, name) < 0)
        return err_sys(err, errno, "rename '%s'", tmp);
    if ((unlinkat(b->dirfd, "current.new", 0) < 0 && errno != ENOENT) ||
        symlinkat(name, b->dirfd, "current.new") < 0)
        return err_sys(err, errno, "make '%s/current.new'", b->dir);
    pthread_mutex_lock(&b->lock);
    if (renameat(b->dirfd, "current.new", b->dirfd, "current") == 0) {
        free(b->current);
        b->current = xstrdup(name);
        pthread_mutex_unlock(&b->lock);
        fsync(b->dirfd);
        return 0;
    }
    pthread_mutex_unlock(&b->lock);
    return err_sys(err, errno, "rename '%s/current.new'", b->dir);
}

/* In folder `tmp`. tar_fd -1: the generation has nothing of `tool`. */
static int cache_base_fill_generation(struct cache_base *b, const char *tmp, const char *tool,
                                      int tar_fd, struct err *err)
{
    _cleanup_free_ char *cache = xasprintf("%s/cache", tmp);
    int r = rmtree(b->dirfd, tmp, err); /* a killed daemon may have left it */

    if (r < 0)
        return r;
    r = cache_base_make_folder(b, tmp, false, err);
    if (r < 0)
        return r;
    r = cache_base_make_folder(b, cache, true, err);
    if (r < 0)
        return r;
    r = cache_base_link_others(b, tmp, tool, err);
    if (r < 0)
        return r;
    if (tar_fd >= 0)
        r = cache_base_unpack(b, tmp, tool, tar_fd, err);
    if (r < 0)
        return r;
    return cache_base_complete(b, tmp, err);
}

static int cache_base_make_generation(struct cache_base *b, const char *tool, int tar_fd,
                                      struct err *err)
{
    _cleanup_free_ char *name = cache_base_next_name(b), *tmp = xasprintf("tmp-%s", name);
    int r = cache_base_fill_generation(b, tmp, tool, tar_fd, err);

    if (r >= 0)
        r = cache_base_switch_to(b, tmp, name, err);
    if (r < 0)
        rmtree(b->dirfd, tmp, NULL);
    return r;
}

int cache_base_publish(struct cache_base *b, const char *tool, int tar_fd, struct err *err)
{
    int r = cache_base_check_open(b, err);

    if (r < 0)
        return r;
    pthread_mutex_lock(&b->publishing);
    r = cache_base_make_generation(b, tool, tar_fd, err);
    pthread_mutex_unlock(&b->publishing);
    return r < 0 ? err_wrap(err, "make a new base of the package caches") : 0;
}

/* ---- removing ---- */

static int cache_base_point_to_empty(struct cache_base *b, struct err *err)
{
    int r = 0;

    pthread_mutex_lock(&b->lock);
    if (unlinkat(b->dirfd, "current", 0) < 0 && errno != ENOENT) {
        r = err_sys(err, errno, "remove '%s/current'", b->dir);
    } else {
        free(b->current);
        b->current = xstrdup(EMPTY);
    }
    pthread_mutex_unlock(&b->lock);
    return r;
}

int cache_base_drop(struct cache_base *b, const char *tool, struct err *err)
{
    int r;

    if (!b->dir || STREQ(b->current, EMPTY))
        return 0;
    if (tool)
        return cache_base_publish(b, tool, -1, err);
    pthread_mutex_lock(&b->publishing);
    r = cache_base_point_to_empty(b, err);
    pthread_mutex_unlock(&b->publishing);
    return r;
}

/* Reads the generation of a run; false: none, or the empty one. */
static bool cache_base_read_link(int runs, const char *id, char name[static NAME_SIZE])
{
    _cleanup_free_ char *link = xasprintf("%s/" CACHE_BASE_LINK, id);
    ssize_t n = readlinkat(runs, link, name, NAME_SIZE - 1);

    name[n < 0 ? 0 : n] = '\0';
    return n >= 0;
}

bool cache_base_is_old(struct cache_base *b, int runs, const char *id)
{
    char name[NAME_SIZE];
    bool old;

    if (!b->dir || !cache_base_read_link(runs, id, name))
        return false;
    pthread_mutex_lock(&b->lock);
    old = !STREQ(name, b->current);
    pthread_mutex_unlock(&b->lock);
    return old;
}

static char **cache_base_in_use(const struct cache_base *b, int runs)
{
    _cleanup_strv_ char **ids = NULL;
    char **used = NULL;

    strv_add(&used, EMPTY);
    strv_add(&used, b->current);
    if (sandbox_ids_add(runs, &ids, NULL) < 0)
        return used;
    for (char **id = ids; id && *id; id++) {
        char name[NAME_SIZE];

        if (cache_base_read_link(runs, *id, name))
            strv_add(&used, name);
    }
    return used;
}

/* Lists the generations without a run. Only the current one can get new runs, so the list stays
 * true after the lock is released. */
static char **cache_base_unused(struct cache_base *b, int runs)
{
    _cleanup_strv_ char **used = NULL;
    _cleanup_closedir_ DIR *d = NULL;
    char **names = NULL;
    int fd = openat(b->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        fd_close(fd);
        return NULL;
    }
    pthread_mutex_lock(&b->lock);
    used = cache_base_in_use(b, runs);
    pthread_mutex_unlock(&b->lock);
    for (const struct dirent *e; (e = readdir(d));)
        if ((cache_base_is_generation(e->d_name) && !strv_contains(used, e->d_name)) ||
            strncmp(e->d_name, "tmp-", 4) == 0)
            strv_add(&names, e->d_name);
    return names;
}

void cache_base_sweep(struct cache_base *b, int runs)
{
    _cleanup_strv_ char **names = NULL;

    if (!b->dir)
        return;
    pthread_mutex_lock(&b->publishing);
    names = cache_base_unused(b, runs);
    for (char **n = names; n && *n; n++) {
        _cleanup_err_ struct err err = ERR_INIT;

        if (rmtree(b->dirfd, *n, &err) < 0)
            log_debug("cannot remove the old base '%s' of the package caches: %s", *n, err.msg);
    }
    pthread_mutex_unlock(&b->publishing);
}

int cache_base_usage(struct cache_base *b, const char *tool, const struct deadline *by,
                     uint64_t *ret_bytes, uint64_t *ret_made, struct err *err)
{
    _cleanup_free_ char *path = NULL;
    uint64_t bytes = 0;
    struct stat st;
    int r;

    if (!b->dir)
        return 0;
    pthread_mutex_lock(&b->lock);
    path = xasprintf("%s/cache/%s", b->current, tool);
    pthread_mutex_unlock(&b->lock);
    r = usage_add(b->dirfd, path, by, &bytes, err);
    if (r < 0)
        return r;
    if (fstatat(b->dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    /* An empty folder counts as 0 bytes. */
    *ret_bytes = bytes == (uint64_t)st.st_blocks * BYTES_PER_BLOCK ? 0 : bytes;
    *ret_made = (uint64_t)st.st_mtim.tv_sec * USEC_PER_SEC;
    return 0;
}
