#include "image/build/content-stream.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "image/build/sources.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "proto/digest-context.h"

enum { PIECE = 256 << 10 };

struct content_stream_walk {
    struct tar_writer tar;
    struct tar_entry entry; /* its path grows and shrinks with the walk */
    char *piece;            /* owned */
    const struct filter *filter;
    size_t root;      /* length of the source's name in front of every path */
    uint64_t put;     /* entries so far */
    json_t *left_out; /* borrowed: collects files that were left out; NULL: write the stream */
};

static int content_stream_walk_folder(struct content_stream_walk *w, int fd, struct err *err);

static int content_stream_put(struct content_stream_walk *w, enum tar_type type,
                              const struct stat *st, struct err *err)
{
    w->entry.type = type;
    w->entry.mode = st->st_mode & 07777;
    w->put++;
    return tar_put(&w->tar, &w->entry, err);
}

static int content_stream_push(struct content_stream_walk *w, const char *name, size_t *ret_len,
                               struct err *err)
{
    size_t len = strlen(w->entry.path), room = sizeof(w->entry.path) - len;
    int n = snprintf(w->entry.path + len, room, "%s%s", len ? "/" : "", name);

    *ret_len = len;
    if (n < 0 || (size_t)n + 1 >= room)
        return err_set(err, ERR_LIMIT, "'%.100s…/%.100s': the path is too long", w->entry.path,
                       name);
    return 0;
}

/* A file that was left out has the digest of its contents in an attribute. */
static bool content_stream_file_is_left_out(int fd, char value[static DIGEST_CONTEXT_VALUE_MAX])
{
    ssize_t n = fgetxattr(fd, DIGEST_CONTEXT_XATTR, value, DIGEST_CONTEXT_VALUE_MAX - 1);

    value[MAX(n, (ssize_t)0)] = '\0';
    return n >= 0;
}

static int content_stream_put_file(struct content_stream_walk *w, int fd, const struct stat *st,
                                   struct err *err)
{
    char value[DIGEST_CONTEXT_VALUE_MAX];
    struct tar_xattr x = {.name = DIGEST_CONTEXT_XATTR, .value = value};
    bool left_out = content_stream_file_is_left_out(fd, value);
    int r;

    if (left_out && !digest_context_digits(value))
        return err_set(err, ERR_INVALID, "'%.200s': invalid digest '%.90s'", w->entry.path, value);
    if (left_out && w->left_out)
        json_object_set_new(w->left_out, digest_context_digits(value), json_true());
    if (w->left_out)
        return 0;
    if (!left_out) {
        r = digest_context_read(fd, w->piece, PIECE, value);
        if (r < 0)
            return err_sys(err, -r, "read '%.200s'", w->entry.path);
    }
    x.len = strlen(value);
    w->entry.xattrs = &x;
    w->entry.n_xattrs = 1;
    r = content_stream_put(w, TAR_FILE, st, err);
    w->entry.n_xattrs = 0;
    return r;
}

static int content_stream_put_opened(struct content_stream_walk *w, int fd, const struct stat *st,
                                     struct err *err)
{
    int r;

    if (S_ISREG(st->st_mode))
        return content_stream_put_file(w, fd, st, err);
    r = content_stream_put(w, TAR_DIR, st, err);
    if (r < 0)
        return r;
    return content_stream_walk_folder(w, fd, err);
}

/* A folder that the filter only passes through: written after its entries, if it has any. */
static int content_stream_put_parent(struct content_stream_walk *w, int fd, const struct stat *st,
                                     struct err *err)
{
    uint64_t before = w->put;
    int r = content_stream_walk_folder(w, fd, err);

    return r < 0 || w->put == before ? r : content_stream_put(w, TAR_DIR, st, err);
}

static int content_stream_put_symlink(struct content_stream_walk *w, int dir, const char *name,
                                      const struct stat *st, struct err *err)
{
    ssize_t n = readlinkat(dir, name, w->entry.link, sizeof(w->entry.link) - 1);
    int r;

    if (n < 0)
        return err_sys(err, errno, "read link '%.200s'", w->entry.path);
    w->entry.link[n] = '\0';
    r = content_stream_put(w, TAR_SYMLINK, st, err);
    w->entry.link[0] = '\0';
    return r;
}

static int content_stream_walk_filtered(struct content_stream_walk *w, int dir, const char *name,
                                        enum filter_answer answer, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "stat '%.200s'", w->entry.path);
    if (answer == FILTER_LOOK && !S_ISDIR(st.st_mode))
        return 0;
    if (S_ISLNK(st.st_mode))
        return content_stream_put_symlink(w, dir, name, &st, err);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return 0;
    fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%.200s'", w->entry.path);
    return answer == FILTER_LOOK ? content_stream_put_parent(w, fd, &st, err)
                                 : content_stream_put_opened(w, fd, &st, err);
}

static int content_stream_walk_one(struct content_stream_walk *w, int dir, const char *name,
                                   struct err *err)
{
    enum filter_answer answer;
    size_t len;
    int r = content_stream_push(w, name, &len, err);

    if (r < 0)
        return r;
    answer = filter_ask(w->filter, w->entry.path + w->root + 1);
    if (answer != FILTER_SKIP)
        r = content_stream_walk_filtered(w, dir, name, answer, err);
    w->entry.path[len] = '\0';
    return r;
}

static int content_stream_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int content_stream_walk_folder(struct content_stream_walk *w, int fd, struct err *err)
{
    _cleanup_strv_ char **names = NULL;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3), r;
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
        qsort(names, strv_len(names), sizeof(*names), content_stream_compare);
    for (char **n = names; n && *n; n++) {
        r = content_stream_walk_one(w, fd, *n, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static void content_stream_walk_free(struct content_stream_walk *w)
{
    free(w->piece);
    free(w);
}
DEFINE_CLEANUP(struct content_stream_walk *, content_stream_walk_free);

static int content_stream_walk_path(int root, const char *path, const char *name,
                                    const struct filter *filter, tar_write_fn write, void *arg,
                                    json_t *left_out, struct err *err)
{
    _cleanup_close_ int fd = sources_open(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    _cleanup_(content_stream_walk_freep) struct content_stream_walk *w =
        xnew0(struct content_stream_walk);
    struct stat st;
    int r;

    if (fd < 0)
        return err_sys(err, -fd, "open '%.200s'", path);
    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "stat '%.200s'", path);
    w->piece = xmalloc(PIECE);
    w->filter = filter;
    w->root = strlen(name);
    w->left_out = left_out;
    tar_writer_init(&w->tar, write, arg);
    snprintf(w->entry.path, sizeof(w->entry.path), "%s", name);
    /* A source that is a file is filtered by its name. */
    if (S_ISDIR(st.st_mode) ||
        (S_ISREG(st.st_mode) && filter_ask(filter, sources_name(path)) == FILTER_TAKE)) {
        r = content_stream_put_opened(w, fd, &st, err);
        if (r < 0)
            return r;
    }
    return tar_finish(&w->tar, err);
}

int content_stream_write(int root, const char *path, const char *name, const struct filter *filter,
                         tar_write_fn write, void *arg, struct err *err)
{
    return content_stream_walk_path(root, path, name, filter, write, arg, NULL, err);
}

static int content_stream_discard(void *arg, const void *data, size_t len)
{
    (void)arg;
    (void)data;
    (void)len;
    return 0;
}

int content_stream_left_out(int root, const char *path, const struct filter *filter, json_t *set,
                            struct err *err)
{
    const char *name = *sources_name(path) ? sources_name(path) : ".";

    return content_stream_walk_path(root, path, name, filter, content_stream_discard, NULL, set,
                                    err);
}
