#include "image/archive/tar-index.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/tar.h"
#include "lib/base/xalloc.h"

struct tar_index_walk {
    int fd;
    uint64_t at;
};

static ssize_t tar_index_walk_read(void *arg, void *data, size_t len)
{
    struct tar_index_walk *w = arg;
    ssize_t n;

    do
        n = pread(w->fd, data, len, (off_t)w->at);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    w->at += (uint64_t)n;
    return n;
}

static const char *tar_index_plain_name(const char *path)
{
    while (path[0] == '.' && path[1] == '/')
        path += 2;
    return path;
}

static void tar_index_file_free(struct tar_index_file *f)
{
    free(f->link);
    free(f);
}

/* "a/b/layer.tar" with the link "../c/layer.tar" is "a/c/layer.tar". NULL: the target is outside
 * of the archive. */
static char *tar_index_link_target(const char *path, const char *link)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;

    while (strncmp(link, "../", 3) == 0) {
        if (len == 0)
            return NULL;
        while (len && path[len - 1] != '/')
            len--;
        len -= len > 0;
        link += 3;
    }
    return xasprintf("%.*s%s%s", (int)len, path, len ? "/" : "", link);
}

/* Of two entries with the same name the later one counts, as in all tools that unpack. */
static void tar_index_add_file(struct tar_index *b, const struct tar_entry *e, uint64_t at)
{
    const char *name = tar_index_plain_name(e->path);
    struct tar_index_file *f, *old;

    if (e->type != TAR_FILE && e->type != TAR_SYMLINK)
        return;
    f = xnew0(struct tar_index_file);
    f->at = at;
    f->size = e->size;
    if (e->type == TAR_SYMLINK)
        f->link = tar_index_link_target(name, e->link);
    old = map_remove(&b->files, name);
    if (old)
        tar_index_file_free(old);
    map_add(&b->files, name, f);
}

int tar_index_open(int fd, struct tar_index *ret, struct err *err)
{
    struct tar_index b = {.fd = fd};
    _cleanup_free_ struct tar_entry *e = xnew0(struct tar_entry);
    struct tar_index_walk w = {.fd = fd};
    struct tar_reader reader;
    int r = 1;

    tar_reader_init(&reader, tar_index_walk_read, &w);
    while (b.files.used < TAR_INDEX_FILES_MAX && (r = tar_next(&reader, e, err)) > 0) {
        tar_index_add_file(&b, e, w.at);
        w.at += e->size; /* skips the content; tar_next() skips the padding */
        reader.left = 0;
    }
    if (r < 0) {
        tar_index_done(&b);
        return r;
    }
    *ret = b;
    return 0;
}

void tar_index_done(struct tar_index *b)
{
    const char *name;
    void *f;

    for (size_t i = 0; map_next(&b->files, &i, &name, &f);)
        tar_index_file_free(f);
    map_done(&b->files);
    *b = (struct tar_index){.fd = -1};
}

const struct tar_index_file *tar_index_find(const struct tar_index *b, const char *name)
{
    const struct tar_index_file *f = map_get(&b->files, tar_index_plain_name(name));

    if (f && f->link)
        f = map_get(&b->files, f->link);
    return f && !f->link ? f : NULL;
}

int tar_index_read(const struct tar_index *b, const char *name, size_t max, char **ret,
                   size_t *ret_len, struct err *err)
{
    const struct tar_index_file *f = tar_index_find(b, name);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;

    if (!f)
        return err_set(err, ERR_INVALID, "file '%.200s' is missing in the archive", name);
    if (f->size > max)
        return err_set(err, ERR_LIMIT, "'%.200s' is longer than %zu bytes", name, max);
    text = xmalloc(f->size + 1);
    while (len < f->size) {
        ssize_t n = pread(b->fd, text + len, f->size - len, (off_t)(f->at + len));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, n < 0 ? errno : EIO, "read '%.200s'", name);
        len += (size_t)n;
    }
    text[len] = '\0';
    *ret = TAKE_PTR(text);
    *ret_len = len;
    return 0;
}
