/*
 * Keeps the stored index pages within their budget, because a sandbox can ask for every name that
 * exists. After LOOK_EVERY bytes of new pages a worker measures all pages and removes the oldest.
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

struct page_trim_entry {
    char *path;      /* owned */
    int64_t fetched; /* nanoseconds, so that pages of one second keep their order */
    uint64_t size;
};

struct page_trim {
    struct packages *pkgs;
    uint64_t keep, bytes;
    struct page_trim_entry *all; /* owned */
    size_t n, cap;
};

static void page_trim_add(struct page_trim *t, const char *folder, const char *name,
                          const struct stat *st)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 256;
        t->all = xreallocarray(t->all, t->cap, sizeof(*t->all));
    }
    t->all[t->n++] = (struct page_trim_entry){.path = xasprintf("%s/%s", folder, name),
                                              .fetched = (int64_t)st->st_mtim.tv_sec * 1000000000 +
                                                         st->st_mtim.tv_nsec,
                                              .size = (uint64_t)st->st_size};
    t->bytes += (uint64_t)st->st_size;
}

/* pages/<ecosystem>/<upstream>/<name>: two levels of folders, then files. */
static void page_trim_walk(struct page_trim *t, const char *folder, int depth)
{
    int fd = openat(t->pkgs->dirfd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    _cleanup_closedir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    struct stat st;

    while (dir && (e = readdir(dir)) && t->n < PAGES_MAX) {
        _cleanup_free_ char *path = xasprintf("%s/%s", folder, e->d_name);

        if (e->d_name[0] == '.')
            continue;
        if (depth < 2)
            page_trim_walk(t, path, depth + 1);
        else if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            page_trim_add(t, folder, e->d_name, &st);
    }
}

static int page_trim_by_age(const void *a, const void *b)
{
    const struct page_trim_entry *x = a, *y = b;

    return x->fetched < y->fetched ? -1 : x->fetched > y->fetched;
}

static void page_trim_work(void *arg)
{
    struct page_trim *t = arg;

    page_trim_walk(t, "pages", 0);
    qsort(t->all, t->n, sizeof(*t->all), page_trim_by_age);
    for (size_t i = 0; i < t->n && t->bytes > t->keep; i++) {
        unlinkat(t->pkgs->dirfd, t->all[i].path, 0);
        t->bytes -= t->all[i].size;
    }
}

static void page_trim_done(void *arg)
{
    struct page_trim *t = arg;

    t->pkgs->trimming = false;
    for (size_t i = 0; i < t->n; i++)
        free(t->all[i].path);
    free(t->all);
    free(t);
}

void page_trim_start(struct packages *pkgs, uint64_t keep)
{
    struct page_trim *t;

    if (pkgs->trimming)
        return;
    t = xnew0(struct page_trim);
    t->pkgs = pkgs;
    t->keep = keep;
    pkgs->trimming = true;
    pkgs->page_bytes = 0;
    if (pool_submit(pkgs->disk, page_trim_work, page_trim_done, t, NULL) < 0)
        page_trim_done(t);
}

void page_trim_note(struct packages *pkgs, uint64_t bytes)
{
    uint64_t budget = pkgs->config.metadata_budget;

    pkgs->page_bytes += bytes;
    if (pkgs->page_bytes >= MIN((uint64_t)LOOK_EVERY, budget / 8))
        page_trim_start(pkgs, budget - budget / 10);
}
