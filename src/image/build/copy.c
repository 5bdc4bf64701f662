#include "image/build/copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/build/sources.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/base/map.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { PIECE = 256 << 10, DEPTH_MAX = 200, ACCOUNTS_MAX = 1 << 20 };

struct build_copy {
    const struct copy_job *job;
    char *piece; /* owned */
    unsigned depth;
    int base;                    /* borrowed: destination of the folder; -1: copying a file */
    struct buf path;             /* of the current folder, below base: "a/b/" */
    struct map linked;           /* hard links: "dev:ino" in the source to the first name here */
    const struct filter *filter; /* borrowed: of the current source */
};

/*
 * A folder of the destination. A folder that the filter only passes through is made when the first
 * file in it is copied.
 */
struct copy_level {
    struct copy_level *up; /* NULL: the topmost folder, which exists */
    const char *name;      /* in the folder above */
    int fd;                /* -1: not made yet */
    bool is_new;
};

/* ---- owners ---- */

/* Field `want` of the line whose first field is `name`. */
static int build_copy_find_field(char *text, const char *name, unsigned want, uint32_t *ret)
{
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        char *field = strsep(&line, ":");

        if (!STREQ(field, name))
            continue;
        for (unsigned i = 0; field && i < want; i++)
            field = strsep(&line, ":");
        return field ? parse_u32(field, 0, COPY_ID_MAX, ret, NULL) : -ERR_INVALID;
    }
    return -ERR_NOT_FOUND;
}

static int build_copy_look_up(int root, const char *file, const char *name, unsigned want,
                              uint32_t *ret, struct err *err)
{
    _cleanup_close_ int fd = sources_open(root, file, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    _cleanup_free_ char *text = xmalloc(ACCOUNTS_MAX + 1);
    ssize_t n = fd < 0 ? 0 : fd_read_full(fd, text, ACCOUNTS_MAX);

    text[MAX(n, (ssize_t)0)] = '\0';
    if (build_copy_find_field(text, name, want, ret) < 0)
        return err_set(err, ERR_INVALID, "'%.64s' is not in the image's '/%s'", name, file);
    return 0;
}

static bool build_copy_is_number(const char *s)
{
    return *s && strspn(s, "0123456789") == strlen(s);
}

static int build_copy_find_user(int root, const char *name, struct copy_owner *ret, struct err *err)
{
    int r;

    if (build_copy_is_number(name)) {
        r = parse_u32(name, 0, COPY_ID_MAX, &ret->uid, err);
        ret->gid = ret->uid;
        return r;
    }
    r = build_copy_look_up(root, "etc/passwd", name, 2, &ret->uid, err);
    if (r < 0)
        return r;
    return build_copy_look_up(root, "etc/passwd", name, 3, &ret->gid, err);
}

int copy_owner_find(int root, const char *text, struct copy_owner *ret, struct err *err)
{
    _cleanup_free_ char *copy = xstrdup(text);
    char *group = copy, *user = strsep(&group, ":");
    struct copy_owner o = {.given = true};
    int r = *user ? build_copy_find_user(root, user, &o, err) : 0;

    if (r >= 0 && group && *group)
        r = build_copy_is_number(group)
                ? parse_u32(group, 0, COPY_ID_MAX, &o.gid, err)
                : build_copy_look_up(root, "etc/group", group, 2, &o.gid, err);
    if (r < 0)
        return err_wrap(err, "owner '%.64s'", text);
    *ret = o;
    return 0;
}

/* ---- parent folders ---- */

/* Each part is resolved from the root again, because a link may lead anywhere in the tree. */
int copy_make_folder(int root, const char *path, const struct copy_owner *owner, int *ret,
                     struct err *err)
{
    _cleanup_free_ char *copy = xstrdup(path), *so_far = xstrdup("");
    _cleanup_close_ int fd = sources_open(root, "", O_PATH | O_DIRECTORY);
    char *rest = copy, *part;

    if (fd < 0)
        return err_sys(err, -fd, "open the root");
    while ((part = strsep(&rest, "/"))) {
        char *next;
        int at;

        if (!*part)
            continue;
        next = xasprintf("%s/%s", so_far, part);
        free(so_far);
        so_far = next;
        at = sources_open(root, so_far, O_PATH | O_DIRECTORY);
        if (at == -ENOENT) {
            if (mkdirat(fd, part, 0755) < 0)
                return err_sys(err, errno, "make folder '%.200s'", part);
            if (owner->given && fchownat(fd, part, owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW) < 0)
                return err_sys(err, errno, "set the owner of folder '%.200s'", part);
            at = sources_open(root, so_far, O_PATH | O_DIRECTORY);
        }
        if (at < 0)
            return err_sys(err, -at, "open folder '%.200s'", so_far);
        fd_close(fd);
        fd = at;
    }
    *ret = TAKE_FD(fd);
    return 0;
}

/* ---- copying ---- */

static int build_copy_into(struct build_copy *c, int from, struct copy_level *to, struct err *err);

static mode_t build_copy_mode_of(const struct build_copy *c, const struct stat *st)
{
    return c->job->mode >= 0 ? (mode_t)c->job->mode : st->st_mode & 07777;
}

/* The owner comes first, because a change of the owner clears set-uid bits. */
static int build_copy_set_meta(const struct build_copy *c, int fd, const struct stat *st,
                               struct err *err)
{
    const struct copy_owner *o = &c->job->owner;
    const struct timespec times[2] = {st->st_mtim, st->st_mtim};

    if (fchown(fd, o->given ? o->uid : st->st_uid, o->given ? o->gid : st->st_gid) < 0)
        return err_sys(err, errno, "set the owner");
    if (fchmod(fd, build_copy_mode_of(c, st)) < 0)
        return err_sys(err, errno, "set the mode");
    if (futimens(fd, times) < 0)
        return err_sys(err, errno, "set the time");
    return 0;
}

static int build_copy_bytes(struct build_copy *c, int from, int to, struct err *err)
{
    for (;;) {
        ssize_t n = fd_read_full(from, c->piece, PIECE);
        int r;

        if (n < 0)
            return err_sys(err, (int)-n, "read");
        if (n == 0)
            return 0;
        r = fd_write_all(to, c->piece, (size_t)n);
        if (r < 0)
            return err_sys(err, -r, "write");
    }
}

static int build_copy_make_room(int to, const char *name, struct err *err)
{
    struct stat st;

    if (fstatat(to, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "read its attributes");
    if (S_ISDIR(st.st_mode))
        return err_set(err, ERR_CONFLICT, "the destination is a folder");
    return unlinkat(to, name, 0) < 0 ? err_sys(err, errno, "replace it") : 0;
}

/* Another name of a file that was copied already. 1: it is now a hard link; 0: copy the file. */
static int build_copy_link_again(struct build_copy *c, const struct stat *st, int to,
                                 const char *name)
{
    _cleanup_free_ char *key = NULL;
    const char *first;

    if (st->st_nlink < 2 || c->base < 0)
        return 0;
    key = xasprintf("%llx:%llx", (unsigned long long)st->st_dev, (unsigned long long)st->st_ino);
    first = map_get(&c->linked, key);
    if (first)
        return linkat(c->base, first, to, name, 0) == 0;
    map_add(&c->linked, key, xasprintf("%s%s", buf_data(&c->path), name));
    return 0;
}

static int build_copy_file(struct build_copy *c, int in, const struct stat *st, int to,
                           const char *name, struct err *err)
{
    _cleanup_close_ int out = -1;
    int r = build_copy_make_room(to, name, err);

    if (r < 0 || build_copy_link_again(c, st, to, name))
        return r;
    out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return err_sys(err, errno, "make it");
    r = build_copy_bytes(c, in, out, err);
    if (r < 0)
        return r;
    return build_copy_set_meta(c, out, st, err);
}

static int build_copy_symlink(struct build_copy *c, int from, const char *name,
                              const struct stat *st, int to, struct err *err)
{
    const struct copy_owner *o = &c->job->owner;
    const struct timespec times[2] = {st->st_mtim, st->st_mtim};
    char target[PATH_MAX];
    ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);
    int r;

    if (n < 0)
        return err_sys(err, errno, "read the link");
    target[n] = '\0';
    r = build_copy_make_room(to, name, err);
    if (r < 0)
        return r;
    if (symlinkat(target, to, name) < 0 ||
        fchownat(to, name, o->given ? o->uid : st->st_uid, o->given ? o->gid : st->st_gid,
                 AT_SYMLINK_NOFOLLOW) < 0 ||
        utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "make the link");
    return 0;
}

/* 1: the folder is new. */
static int build_copy_open_or_make(int to, const char *name, int *ret, struct err *err)
{
    struct stat st;
    bool is_new;
    int r;

    if (fstatat(to, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode)) {
        err_set(err, ERR_CONFLICT, "the destination is not a folder");
        return err_hint(err, "Remove that file first: a folder does not replace it.");
    }
    is_new = mkdirat(to, name, 0700) == 0;
    if (!is_new && errno != EEXIST)
        return err_sys(err, errno, "make the folder");
    r = dir_open(to, name, ret, err);
    return r < 0 ? r : is_new;
}

static int build_copy_level_make(struct copy_level *l, struct err *err)
{
    int r;

    if (l->fd >= 0)
        return 0;
    r = build_copy_level_make(l->up, err);
    if (r < 0)
        return r;
    r = build_copy_open_or_make(l->up->fd, l->name, &l->fd, err);
    if (r < 0)
        return r;
    l->is_new = r > 0;
    return 0;
}

/* An existing folder that the filter only passes through gets the mode, but not the owner, as in
 * BuildKit. */
static int build_copy_level_finish(const struct build_copy *c, const struct copy_level *l,
                                   const struct stat *st, enum filter_answer answer,
                                   struct err *err)
{
    if (l->fd < 0)
        return 0;
    if (answer == FILTER_TAKE || l->is_new)
        return build_copy_set_meta(c, l->fd, st, err);
    return fchmod(l->fd, build_copy_mode_of(c, st)) < 0 ? err_sys(err, errno, "set the mode") : 0;
}

static int build_copy_dir_contents(struct build_copy *c, int in, struct copy_level *here,
                                   enum filter_answer answer, struct err *err)
{
    int r;

    if (answer == FILTER_TAKE) {
        r = build_copy_level_make(here, err);
        if (r < 0)
            return r;
    }
    if (c->depth > DEPTH_MAX)
        return err_set(err, ERR_LIMIT, "over %d levels", DEPTH_MAX);
    if (buf_appendf(&c->path, "%s/", here->name) < 0)
        return err_set(err, ERR_LIMIT, "its path is too long");
    return build_copy_into(c, in, here, err);
}

static int build_copy_dir(struct build_copy *c, int in, const struct stat *st,
                          struct copy_level *to, const char *name, enum filter_answer answer,
                          struct err *err)
{
    struct copy_level here = {.up = to, .name = name, .fd = -1};
    size_t above = c->path.len;
    int r;

    c->depth++;
    r = build_copy_dir_contents(c, in, &here, answer, err);
    c->depth--;
    buf_truncate(&c->path, above);
    if (r >= 0)
        r = build_copy_level_finish(c, &here, st, answer, err);
    fd_close(here.fd);
    return r;
}

static int build_copy_opened(struct build_copy *c, int from, const char *name,
                             const struct stat *st, struct copy_level *to,
                             enum filter_answer answer, struct err *err)
{
    _cleanup_close_ int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (in < 0)
        return err_sys(err, errno, "open it");
    if (S_ISDIR(st->st_mode))
        return build_copy_dir(c, in, st, to, name, answer, err);
    return build_copy_file(c, in, st, to->fd, name, err);
}

static int build_copy_entry(struct build_copy *c, int from, const char *name, const struct stat *st,
                            struct copy_level *to, enum filter_answer answer, struct err *err)
{
    int r;

    if (S_ISDIR(st->st_mode))
        return build_copy_opened(c, from, name, st, to, answer, err);
    r = build_copy_level_make(to, err);
    if (r < 0)
        return r;
    return S_ISLNK(st->st_mode) ? build_copy_symlink(c, from, name, st, to->fd, err)
                                : build_copy_opened(c, from, name, st, to, answer, err);
}

/* Devices, FIFOs and sockets are not copied. */
static int build_copy_filtered(struct build_copy *c, int from, const char *name,
                               struct copy_level *to, enum filter_answer answer, struct err *err)
{
    struct stat st;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "stat '%.200s'", name);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return 0;
    if (!S_ISDIR(st.st_mode) && answer == FILTER_LOOK)
        return 0;
    if (build_copy_entry(c, from, name, &st, to, answer, err) < 0)
        return err_wrap(err, "'%.200s'", name);
    return 0;
}

static int build_copy_one(struct build_copy *c, int from, const char *name, struct copy_level *to,
                          struct err *err)
{
    enum filter_answer answer = FILTER_TAKE;
    size_t above = c->path.len;

    if (c->filter) {
        if (buf_append_str(&c->path, name) < 0)
            return err_set(err, ERR_LIMIT, "'%.200s': its path is too long", name);
        answer = filter_ask(c->filter, buf_data(&c->path));
        buf_truncate(&c->path, above);
    }
    return answer == FILTER_SKIP ? 0 : build_copy_filtered(c, from, name, to, answer, err);
}

static int build_copy_into(struct build_copy *c, int from, struct copy_level *to, struct err *err)
{
    int copy = fcntl(from, F_DUPFD_CLOEXEC, 3);
    _cleanup_closedir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);

    if (!d) {
        fd_close(copy);
        return err_sys(err, errno, "read the folder");
    }
    for (const struct dirent *e; (e = readdir(d));) {
        int r;

        if (STREQ(e->d_name, ".") || STREQ(e->d_name, ".."))
            continue;
        r = build_copy_one(c, from, e->d_name, to, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- the destination ---- */

/* Into the destination if that is a folder; otherwise the destination is the name of the copy. */
static int build_copy_place_file(struct build_copy *c, int in, const struct stat *st,
                                 const char *match, struct err *err)
{
    const struct copy_job *j = c->job;
    _cleanup_free_ char *parent = xstrdup(j->dest);
    _cleanup_close_ int to = -1;
    char *slash = strrchr(parent, '/');
    int fd = sources_open(j->to, j->dest, O_PATH | O_DIRECTORY), r;

    if (fd >= 0 || slash[1] == '\0') {
        fd_close(fd);
        r = copy_make_folder(j->to, j->dest, &j->way, &to, err);
        if (r < 0)
            return r;
        return build_copy_file(c, in, st, to, sources_name(match), err);
    }
    *slash = '\0';
    r = copy_make_folder(j->to, parent, &j->way, &to, err);
    if (r < 0)
        return r;
    return build_copy_file(c, in, st, to, slash + 1, err);
}

static void build_copy_forget_links(struct build_copy *c)
{
    const char *key;
    void *path;

    for (size_t i = 0; map_next(&c->linked, &i, &key, &path);)
        free(path);
    map_done(&c->linked);
    c->linked = (struct map)MAP_INIT;
}

static int build_copy_place_folder(struct build_copy *c, int in, struct err *err)
{
    const struct copy_job *j = c->job;
    _cleanup_close_ int path_fd = -1, to = -1;
    struct copy_level top = {0};
    int r;

    r = copy_make_folder(j->to, j->dest, &j->way, &path_fd, err);
    if (r < 0)
        return r;
    r = dir_open(path_fd, ".", &to, err); /* path_fd is O_PATH */
    if (r < 0)
        return r;
    top.fd = to;
    c->base = to;
    r = build_copy_into(c, in, &top, err);
    c->base = -1;
    build_copy_forget_links(c);
    return r;
}

static int build_copy_place_opened(struct build_copy *c, int in, const char *match, struct err *err)
{
    struct stat st;

    if (fstat(in, &st) < 0)
        return err_sys(err, errno, "stat '%.200s'", match);
    if (S_ISDIR(st.st_mode))
        return build_copy_place_folder(c, in, err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_UNSUPPORTED, "it is neither a file nor a folder");
    /*
     * A file as the source is filtered by its name. With --parents it is never the source itself.
     */
    if (c->job->want.parents || filter_ask(c->filter, sources_name(match)) != FILTER_TAKE)
        return 0;
    return build_copy_place_file(c, in, &st, match, err);
}

static int build_copy_place_match(struct build_copy *c, const char *match, struct err *err)
{
    const struct copy_job *j = c->job;
    _cleanup_close_ int in = sources_open(j->from, match, O_RDONLY | O_NONBLOCK | O_NOCTTY);

    if (in < 0)
        return err_sys(err, -in, "open '%.200s'", match);
    if (build_copy_place_opened(c, in, match, err) < 0)
        return err_wrap(err, "copy '%.200s' to '%.200s'", match, j->dest);
    return 0;
}

struct copy_source {
    char **paths;          /* owned */
    struct filter *filter; /* owned, or NULL */
};

static int build_copy_find_sources(const struct copy_job *job, struct copy_source *ret,
                                   struct err *err)
{
    size_t all = 0;
    int r;

    for (size_t i = 0; job->sources && job->sources[i]; i++) {
        r = filter_find(job->from, job->sources[i], &job->want, &ret[i].paths, &ret[i].filter, err);
        if (r < 0)
            return r;
        all += strv_len(ret[i].paths);
    }
    if (job->want.parents || all <= 1 || job->dest[strlen(job->dest) - 1] == '/')
        return 0;
    err_set(err, ERR_INVALID, "several files match: destination '%.200s' must end with a slash",
            job->dest);
    return err_hint(err, "Write '%.200s/'.", job->dest);
}

static int build_copy_place_sources(struct build_copy *c, const struct copy_source *sources,
                                    size_t n, struct err *err)
{
    int r;

    for (size_t i = 0; i < n; i++) {
        c->filter = sources[i].filter;
        for (char **p = sources[i].paths; p && *p; p++) {
            r = build_copy_place_match(c, *p, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

int copy_files(const struct copy_job *job, struct err *err)
{
    size_t n = job->sources ? strv_len(job->sources) : 0;
    struct copy_source *sources = xcalloc(n + 1, sizeof(*sources));
    struct build_copy c = {
        .job = job, .piece = xmalloc(PIECE), .base = -1, .path = BUF_INIT(DEPTH_MAX * 256)};
    int r = build_copy_find_sources(job, sources, err);

    if (r >= 0)
        r = build_copy_place_sources(&c, sources, n, err);
    for (size_t i = 0; i < n; i++) {
        strv_free(sources[i].paths);
        filter_free(sources[i].filter);
    }
    free(sources);
    free(c.piece);
    buf_done(&c.path);
    return r;
}
