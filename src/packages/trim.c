/*
 * Index pages have a budget too: a sandbox can ask for every name there is. After so many bytes of
 * new pages a worker looks what they take, and the oldest go.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "lib/loop/pool.h"
#include "packages/packages.h"

enum { PAGES_MAX = 1 << 20, LOOK_EVERY = 64 << 20 };

struct kept {
    char *path;      /* owned */
    int64_t fetched; /* nanoseconds: of two in one second, the new one stays */
    uint64_t size;
};

struct trim {
    struct packages *reg;
    uint64_t keep, bytes;
    struct kept *all; /* owned */
    size_t n, cap;
};

static void trim_add_page(struct trim *t, const char *folder, const char *name,
                          const struct stat *st)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 256;
        t->all = xreallocarray(t->all, t->cap, sizeof(*t->all));
    }
    t->all[t->n++] =
        (struct kept){.path = xasprintf("%s/%s", folder, name),
                      .fetched = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
                      .size = (uint64_t)st->st_size};
    t->bytes += (uint64_t)st->st_size;
}

/* pages/<ecosystem>/<upstream>/<name>: two levels of folders, then files. */
static void trim_walk(struct trim *t, const char *folder, int depth)
{
    int fd = openat(t->reg->dirfd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    _cleanup_closedir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    struct stat st;

    while (dir && (e = readdir(dir)) && t->n < PAGES_MAX) {
        _cleanup_free_ char *path = xasprintf("%s/%s", folder, e->d_name);

        if (e->d_name[0] == '.')
            continue;
        if (depth < 2)
            trim_walk(t, path, depth + 1);
        else if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            trim_add_page(t, folder, e->d_name, &st);
    }
}

static int trim_by_age(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;

    return x->fetched < y->fetched ? -1 : x->fetched > y->fetched;
}

static void trim_work(void *arg)
{
    struct trim *t = arg;

    trim_walk(t, "pages", 0);
    qsort(t->all, t->n, sizeof(*t->all), trim_by_age);
    for (size_t i = 0; i < t->n && t->bytes > t->keep; i++) {
        unlinkat(t->reg->dirfd, t->all[i].path, 0);
        t->bytes -= t->all[i].size;
    }
}

static void trim_done(void *arg)
{
    struct trim *t = arg;

    t->reg->trimming = false;
    for (size_t i = 0; i < t->n; i++)
        free(t->all[i].path);
    free(t->all);
    free(t);
}

void trim_pages(struct packages *reg, uint64_t keep)
{
    struct trim *t;

    if (reg->trimming)
        return;
    t = xnew0(struct trim);
    t->reg = reg;
    t->keep = keep;
    reg->trimming = true;
    reg->page_bytes = 0;
    if (pool_submit(reg->disk, trim_work, trim_done, t, NULL) < 0)
        trim_done(t);
}

void trim_note(struct packages *reg, uint64_t bytes)
{
    uint64_t budget = reg->config.metadata_budget;

    reg->page_bytes += bytes;
    if (reg->page_bytes >= MIN((uint64_t)LOOK_EVERY, budget / 8))
        trim_pages(reg, budget - budget / 10);
}
