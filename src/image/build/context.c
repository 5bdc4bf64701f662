#include "image/build/context.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/archive/layer-import.h"
#include "image/build/copy.h"
#include "image/build/filter.h"
#include "image/build/sources.h"
#include "image/dockerfile/ignore.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"

/* ---- reading ---- */

/* 1; 0: no such file. */
static int context_read_text(int context, const char *path, size_t max, char **ret, size_t *ret_len,
                             struct err *err)
{
    _cleanup_close_ int fd = sources_open(context, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    _cleanup_free_ char *text = NULL;
    struct stat st;
    ssize_t n;

    if (fd == -ENOENT || fd == -ENOTDIR)
        return 0;
    if (fd < 0)
        return err_sys(err, -fd, "open '%.200s' of the context", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "'%.200s' of the context is not a file", path);
    if ((uint64_t)st.st_size > max)
        return err_set(err, ERR_LIMIT, "'%.200s' is over %zu bytes", path, max);
    text = xmalloc((size_t)st.st_size + 1);
    n = fd_read_full(fd, text, (size_t)st.st_size);
    if (n < 0)
        return err_sys(err, (int)-n, "read '%.200s' of the context", path);
    text[n] = '\0';
    *ret = TAKE_PTR(text);
    *ret_len = (size_t)n;
    return 1;
}

/* ---- .dockerignore ---- */

static int context_prune(const struct ignore *ig, int dir, struct buf *path, struct err *err);

static int context_prune_one(const struct ignore *ig, int dir, const char *name, struct buf *path,
                             struct err *err)
{
    bool ignored = ignore_matches(ig, buf_data(path));
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "stat '%.200s'", buf_data(path));
    if (ignored && (!S_ISDIR(st.st_mode) || !ignore_has_exceptions(ig)))
        return rmtree(dir, name, err);
    if (!S_ISDIR(st.st_mode))
        return 0;
    r = dir_open(dir, name, &fd, err);
    if (r < 0)
        return r;
    r = context_prune(ig, fd, path, err);
    if (r < 0)
        return r;
    if (ignored)
        unlinkat(dir, name, AT_REMOVEDIR); /* fails if an exception has kept a file in it */
    return 0;
}

static int context_prune(const struct ignore *ig, int dir, struct buf *path, struct err *err)
{
    int copy = fcntl(dir, F_DUPFD_CLOEXEC, 3), r;
    _cleanup_closedir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
    size_t len = path->len;

    if (!d) {
        fd_close(copy);
        return err_sys(err, errno, "read '%.200s'", buf_data(path));
    }
    for (const struct dirent *e; (e = readdir(d));) {
        if (STREQ(e->d_name, ".") || STREQ(e->d_name, ".."))
            continue;
        if (buf_appendf(path, "%s%s", len ? "/" : "", e->d_name) < 0)
            return err_set(err, ERR_LIMIT, "a path of the context is too long");
        r = context_prune_one(ig, dir, e->d_name, path, err);
        buf_truncate(path, len);
        if (r < 0)
            return r;
    }
    return 0;
}

static int context_apply_ignore(int context, const char *dockerfile, struct err *err)
{
    _cleanup_free_ char *own = xasprintf("%s.dockerignore", dockerfile), *text = NULL;
    _cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX * 2);
    _cleanup_(ignore_freep) struct ignore *ig = NULL;
    size_t len;
    int r = context_read_text(context, own, IGNORE_SIZE_MAX, &text, &len, err);

    if (r == 0)
        r = context_read_text(context, ".dockerignore", IGNORE_SIZE_MAX, &text, &len, err);
    if (r <= 0)
        return r;
    r = ignore_parse(text, len, &ig, err);
    if (r < 0)
        return err_wrap(err, ".dockerignore");
    return context_prune(ig, context, &path, err);
}

/* ---- the Dockerfile ---- */

int context_dockerfile(struct workspace *w, const char *path, struct dockerfile **ret,
                       struct err *err)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df = NULL;
    _cleanup_free_ char *text = NULL;
    _cleanup_close_ int context = -1;
    size_t len;
    int r;

    r = dir_open(w->dir, "context", &context, err);
    if (r < 0)
        return r;
    r = context_read_text(context, path, DOCKERFILE_SIZE_MAX, &text, &len, err);
    if (r < 0)
        return r;
    if (r == 0) {
        err_set(err, ERR_NOT_FOUND, "not in the build context");
        return err_hint(err, "Name the file with `-f FILE`.");
    }
    r = dockerfile_parse(text, len, &df, NULL, err);
    if (r < 0)
        return r;
    r = context_apply_ignore(context, path, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(df);
    return 0;
}

/* ---- archives ---- */

enum archive { ARCHIVE_NONE, ARCHIVE_TAR, ARCHIVE_COMPRESSED, ARCHIVE_UNSUPPORTED };

static enum archive context_archive_of(int fd)
{
    static const struct {
        const char *magic;
        size_t len, at;
        enum archive is;
    } kinds[] = {
        {"ustar", 5, 257, ARCHIVE_TAR},
        {"\x1f\x8b", 2, 0, ARCHIVE_COMPRESSED},
        {"\xfd\x37zXZ", 5, 0, ARCHIVE_COMPRESSED},
        {"\x28\xb5\x2f\xfd", 4, 0, ARCHIVE_COMPRESSED},
        {"BZh", 3, 0, ARCHIVE_UNSUPPORTED},
    };
    char head[512] = {0};

    if (pread(fd, head, sizeof(head), 0) < 0)
        return ARCHIVE_NONE;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (memcmp(head + kinds[i].at, kinds[i].magic, kinds[i].len) == 0)
            return kinds[i].is;
    return ARCHIVE_NONE;
}

struct add_job {
    const struct build_plan_step *step;
    const char *folder;
};

/* In the child. Files of an archive keep their owners, unless --chown is given. */
static int context_run_add(void *arg, int dir, struct err *err)
{
    const struct add_job *a = arg;
    char *const all[] = {(char *)"", NULL};
    struct copy_job job = {.sources = all, .dest = a->step->dest, .mode = -1};
    _cleanup_close_ int from = -1, to = -1;
    int r;

    r = dir_open(dir, a->folder, &from, err);
    if (r < 0)
        return r;
    r = dir_open(dir, "root", &to, err);
    if (r < 0)
        return r;
    if (a->step->chown) {
        r = copy_owner_find(to, a->step->chown, &job.owner, err);
        if (r < 0)
            return r;
    }
    job.from = from;
    job.to = to;
    job.way = job.owner;
    job.way.given = true;
    return copy_files(&job, err);
}

/* 1: the archive was unpacked; 0: it only looked like an archive. */
static int context_add_archive(struct workspace *w, const struct build_plan_step *s,
                               char *const *layers, unsigned n, int fd, enum archive kind,
                               struct err *err)
{
    const struct layer_import_in in = {.range = {.fd = fd, .size = UINT64_MAX},
                                       .max = UNPACK_BYTES_MAX};
    _cleanup_err_ struct err why = ERR_INIT;
    _cleanup_free_ char *folder = NULL;
    _cleanup_close_ int dir = -1;
    struct layer_import_out out = {0};
    struct add_job job = {.step = s};
    int r;

    r = workspace_folder(w, 0755, &folder, err);
    if (r < 0)
        return r;
    r = dir_open(w->dir, folder, &dir, err);
    if (r < 0)
        return r;
    r = layer_import_unpack(dir, w->ids, &in, &out, &why);
    if (r == -ERR_INVALID && kind == ARCHIVE_COMPRESSED)
        return 0;
    if (r < 0)
        return err_move(err, &why);
    job.folder = folder;
    r = workspace_run(
        w,
        &(struct workspace_job){
            .n = n, .layers = layers, .mount_root = true, .fn = context_run_add, .arg = &job},
        err);
    return r < 0 ? r : 1;
}

static int context_add_one(struct workspace *w, const struct build_plan_step *s,
                           char *const *layers, unsigned n, int folder, const char *path,
                           const struct filter *filter, char ***ret, struct err *err)
{
    _cleanup_close_ int fd = sources_open(folder, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    enum archive kind = ARCHIVE_NONE;
    struct stat st;
    int r = 0;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        if (filter_ask(filter, sources_name(path)) != FILTER_TAKE)
            return 0;
        kind = context_archive_of(fd);
    }
    if (kind == ARCHIVE_UNSUPPORTED)
        return err_set(err, ERR_UNSUPPORTED, "'%.200s': bzip2 archives are not supported", path);
    if (kind != ARCHIVE_NONE)
        r = context_add_archive(w, s, layers, n, fd, kind, err);
    if (r == 0)
        strv_push(ret, *path ? sources_literal(path) : xstrdup("."));
    return r < 0 ? err_wrap(err, "unpack '%.200s'", path) : 0;
}

int context_add(struct workspace *w, const struct build_plan_step *s, const char *folder,
                char *const *sources, char *const *layers, unsigned n, char ***ret, struct err *err)
{
    const struct filter_want want = {.exclude = s->exclude};
    _cleanup_close_ int dir = -1;
    int r = dir_open(w->dir, folder, &dir, err);

    if (r < 0)
        return r;
    for (char *const *p = sources; p && *p; p++) {
        _cleanup_(filter_freep) struct filter *filter = NULL;
        _cleanup_strv_ char **found = NULL;

        r = filter_find(dir, *p, &want, &found, &filter, err);
        if (r < 0)
            return r;
        for (char **f = found; f && *f; f++) {
            r = context_add_one(w, s, layers, n, dir, *f, filter, ret, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}
