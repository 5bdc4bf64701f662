#include "build/contents.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/strv.h"
#include "base/xalloc.h"
#include "build/sources.h"

enum { PIECE = 256 << 10 };

struct walk {
    struct tar_writer tar;
    struct tar_entry entry; /* its path is the stack of names */
    char *piece;            /* owned */
};

static int walk_folder(struct walk *w, int fd, struct err *err);

static int put(struct walk *w, enum tar_type type, const struct stat *st, struct err *err)
{
    w->entry.type = type;
    w->entry.mode = st->st_mode & 07777;
    w->entry.size = type == TAR_FILE ? (uint64_t)st->st_size : 0;
    return tar_put(&w->tar, &w->entry, err);
}

static int push(struct walk *w, const char *name, size_t *ret_len, struct err *err)
{
    size_t len = strlen(w->entry.path), room = sizeof(w->entry.path) - len;
    int n = snprintf(w->entry.path + len, room, "%s%s", len ? "/" : "", name);

    *ret_len = len;
    if (n < 0 || (size_t)n + 1 >= room)
        return err_set(err, ERR_LIMIT, "'%.100s…/%.100s' is too long a path", w->entry.path, name);
    return 0;
}

static int put_file(struct walk *w, int fd, const struct stat *st, struct err *err)
{
    uint64_t left = (uint64_t)st->st_size;
    int r = put(w, TAR_FILE, st, err);

    while (r >= 0 && left) {
        ssize_t n = fd_read_full(fd, w->piece, MIN(left, (uint64_t)PIECE));

        if (n <= 0)
            return err_sys(err, n < 0 ? (int)-n : EIO, "read '%.200s'", w->entry.path);
        r = tar_write(&w->tar, w->piece, (size_t)n, err);
        left -= (uint64_t)n;
    }
    return r;
}

static int put_opened(struct walk *w, int fd, const struct stat *st, struct err *err)
{
    int r;

    if (S_ISREG(st->st_mode))
        return put_file(w, fd, st, err);
    r = put(w, TAR_DIR, st, err);
    return r < 0 ? r : walk_folder(w, fd, err);
}

static int put_symlink(struct walk *w, int dir, const char *name, const struct stat *st,
                       struct err *err)
{
    ssize_t n = readlinkat(dir, name, w->entry.link, sizeof(w->entry.link) - 1);
    int r;

    if (n < 0)
        return err_sys(err, errno, "read link '%.200s'", w->entry.path);
    w->entry.link[n] = '\0';
    r = put(w, TAR_SYMLINK, st, err);
    w->entry.link[0] = '\0';
    return r;
}

static int walk_one(struct walk *w, int dir, const char *name, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    size_t len;
    int r = push(w, name, &len, err);

    if (r >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = err_sys(err, errno, "look at '%.200s'", w->entry.path);
    if (r >= 0 && S_ISLNK(st.st_mode)) {
        r = put_symlink(w, dir, name, &st, err);
    } else if (r >= 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
        fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        r = fd < 0 ? err_sys(err, errno, "open '%.200s'", w->entry.path)
                   : put_opened(w, fd, &st, err);
    }
    w->entry.path[len] = '\0';
    return r;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int walk_folder(struct walk *w, int fd, struct err *err)
{
    _cleanup_strv_ char **names = NULL;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3), r = 0;
    DIR *d = copy < 0 ? NULL : fdopendir(copy);

    if (!d) {
        fd_close(copy);
        return err_sys(err, errno, "read folder '%.200s'", w->entry.path);
    }
    for (const struct dirent *e; (e = readdir(d));)
        if (!STREQ(e->d_name, ".") && !STREQ(e->d_name, ".."))
            strv_add(&names, e->d_name);
    closedir(d);
    if (names)
        qsort(names, strv_len(names), sizeof(*names), compare);
    for (char **n = names; r >= 0 && n && *n; n++)
        r = walk_one(w, fd, *n, err);
    return r;
}

int contents_of(int root, const char *path, const char *name, tar_write_fn write, void *arg,
                struct err *err)
{
    _cleanup_close_ int fd = sources_open(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct walk *w = xnew0(struct walk);
    struct stat st;
    int r = 0;

    w->piece = xmalloc(PIECE);
    tar_writer_init(&w->tar, write, arg);
    snprintf(w->entry.path, sizeof(w->entry.path), "%s", name);
    if (fd < 0 || fstat(fd, &st) < 0)
        r = err_sys(err, fd < 0 ? -fd : errno, "open '%.200s'", path);
    if (r >= 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
        r = put_opened(w, fd, &st, err);
    if (r >= 0)
        r = tar_finish(&w->tar, err);
    free(w->piece);
    free(w);
    return r;
}
