#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/folder.h"
#include "lib/base/cleanup.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"

enum { WALK_NAMES = 16384, WALK_PATH_MAX = 16 << 10 };

/* The next names of one folder: the smallest WALK_NAMES ones behind `from`, as a heap whose top is
 * the largest, and sorted at the end. */
struct walk_names {
    char **names;
    size_t n;
};

struct walk_state {
    struct files_walk *walk;
    struct buf path; /* of the present entry; rel lies behind `top` bytes */
    size_t top;
};

static void files_names_done(struct walk_names *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->names[i]);
    free(v->names);
}

static void files_names_sink(struct walk_names *v, size_t i)
{
    for (;;) {
        size_t child = 2 * i + 1;
        char *name;

        if (child >= v->n)
            return;
        if (child + 1 < v->n && strcmp(v->names[child + 1], v->names[child]) > 0)
            child++;
        if (strcmp(v->names[child], v->names[i]) <= 0)
            return;
        name = v->names[i];
        v->names[i] = v->names[child];
        v->names[child] = name;
        i = child;
    }
}

static int files_names_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void files_names_add(struct walk_names *v, const char *name)
{
    if (v->n < WALK_NAMES) {
        v->names[v->n++] = xstrdup(name);
        for (size_t i = v->n == WALK_NAMES ? WALK_NAMES / 2 : 0; i-- > 0;)
            files_names_sink(v, i); /* from here on it is a heap */
        return;
    }
    if (strcmp(name, v->names[0]) >= 0)
        return;
    free(v->names[0]);
    v->names[0] = xstrdup(name);
    files_names_sink(v, 0);
}

/* One pass over the folder. `from` NULL: from the beginning. */
static int files_names_read(struct files_walk *w, DIR *dir, const char *from, bool inclusive,
                            struct walk_names *ret, struct err *err)
{
    struct dirent *d;

    rewinddir(dir);
    ret->names = xmalloc(WALK_NAMES * sizeof(char *));
    while (errno = 0, (d = readdir(dir))) {
        int order = from ? strcmp(d->d_name, from) : 1, r;

        if (STREQ(d->d_name, ".") || STREQ(d->d_name, ".."))
            continue;
        r = files_tick(w->job, err);
        if (r < 0)
            return r;
        if (order > 0 || (order == 0 && inclusive))
            files_names_add(ret, d->d_name);
    }
    qsort(ret->names, ret->n, sizeof(char *), files_names_compare);
    return 0;
}

static int files_walk_folder(struct walk_state *s, int fd, unsigned depth, const char *after,
                             struct err *err);

/* A folder that is not readable, or is gone by now. */
static int files_walk_unreadable(struct walk_state *s, int errnum, struct err *err)
{
    if (s->walk->strict && errnum != ENOENT)
        return tree_err(err, errnum, "open folder '%s'", buf_data(&s->path));
    s->walk->unreadable += errnum != ENOENT;
    return 0;
}

static int files_walk_below(struct walk_state *s, const struct files_node *node, const char *after,
                            struct err *err)
{
    int fd, r;

    if (!S_ISDIR(node->st.st_mode) || node->depth >= s->walk->depth_max)
        return 0;
    if (node->depth >= FILES_DEEPEST)
        return files_walk_unreadable(s, ELOOP, err);
    fd = openat(node->dirfd, node->name,
                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return files_walk_unreadable(s, errno, err);
    r = files_walk_folder(s, fd, node->depth + 1, after, err);
    if (r == 0 && s->walk->leave)
        r = s->walk->leave(s->walk->arg, node, err);
    return r;
}

/* `after`: the rest of the cursor if it leads through this entry. Then the entry was visited. */
static int files_walk_entry(struct walk_state *s, int dirfd, const char *name, unsigned depth,
                            const char *after, struct err *err)
{
    struct files_walk *w = s->walk;
    struct files_node node = {.dirfd = dirfd, .name = name, .depth = depth};
    size_t len = s->path.len;
    int r;

    if (fstatat(dirfd, name, &node.st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : files_walk_unreadable(s, errno, err);
    if (buf_append_str(&s->path, s->top == len ? "" : "/") < 0 ||
        buf_append_str(&s->path, name) < 0) {
        buf_truncate(&s->path, len);
        return files_walk_unreadable(s, ENAMETOOLONG, err);
    }
    node.path = buf_data(&s->path);
    node.rel = node.path + s->top;
    r = files_tick(w->job, err);
    if (r > 0)
        r = FILES_STOP;
    if (r == 0 && !after)
        r = w->visit(w->arg, &node, err);
    if (r == FILES_GO_ON)
        r = files_walk_below(s, &node, after && *after ? after : NULL, err);
    else if (r == FILES_SKIP)
        r = 0;
    buf_truncate(&s->path, len);
    return r;
}

static int files_walk_names(struct walk_state *s, DIR *dir, const struct walk_names *names,
                            unsigned depth, const char *after, struct err *err)
{
    size_t len = after ? strcspn(after, "/") : 0;

    for (size_t i = 0; i < names->n; i++) {
        const char *name = names->names[i];
        bool through = after && strlen(name) == len && memcmp(name, after, len) == 0;
        int r = files_walk_entry(s, dirfd(dir), name, depth,
                                 through ? after + len + (after[len] == '/') : NULL, err);

        if (r != 0)
            return r;
    }
    return 0;
}

/* Takes fd. */
static int files_walk_folder(struct walk_state *s, int fd, unsigned depth, const char *after,
                             struct err *err)
{
    _cleanup_free_ char *from = after ? xstrndup(after, strcspn(after, "/")) : NULL;
    _cleanup_closedir_ DIR *dir = fdopendir(fd);
    bool inclusive = true, more = true;
    int r = 0;

    if (!dir) {
        fd_close(fd);
        return files_walk_unreadable(s, errno, err);
    }
    while (r == 0 && more) {
        __attribute__((cleanup(files_names_done))) struct walk_names names = {0};

        r = files_names_read(s->walk, dir, from, inclusive, &names, err);
        if (r < 0)
            return r;
        more = names.n == WALK_NAMES;
        r = files_walk_names(s, dir, &names, depth, after, err);
        free(from);
        from = more ? xstrdup(names.names[names.n - 1]) : NULL;
        inclusive = false;
        after = NULL;
    }
    return r;
}

int files_walk_from(struct files_walk *w, int fd, const char *top, struct err *err)
{
    struct walk_state s = {.walk = w, .path = BUF_INIT(WALK_PATH_MAX)};
    int r;

    if (buf_append_str(&s.path, top) < 0 ||
        (top[strlen(top) - 1] != '/' && buf_append_str(&s.path, "/") < 0)) {
        fd_close(fd);
        buf_done(&s.path);
        return err_set(err, ERR_LIMIT, "'%.80s...' is too long", top);
    }
    s.top = s.path.len;
    r = files_walk_folder(&s, fd, 1, w->after, err);
    buf_done(&s.path);
    return r < 0 ? r : r > 0;
}

int files_walk_tree(struct files_walk *w, const char *top, struct err *err)
{
    int fd, r = files_open_folder(top, &fd, err);

    return r < 0 ? r : files_walk_from(w, fd, top, err);
}
