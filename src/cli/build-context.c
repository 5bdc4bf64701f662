/*
 * Walks the tree with descriptors: each folder is opened below its parent with O_NOFOLLOW. A tree
 * that changes during the walk can hide or show files, but cannot lead the walk out of the context.
 * A file that vanishes between stat and open is skipped. A file that shrinks while it is read is an
 * error.
 */
#include "cli/build-context.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/digests.h"
#include "cli/secrets.h"
#include "image/dockerfile/dockerfile.h"
#include "image/dockerfile/ignore.h"
#include "lib/base/fd.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"
#include "proto/digest-context.h"

enum { DEPTH_MAX = 256, CHUNK = 256 << 10, SMALL = 16 << 10, SMALL_ALL_MAX = 4 << 20 };

struct build_context {
    int dir;
    char *folder;     /* owned: the path as given */
    char *label;      /* owned: name of the Dockerfile for messages */
    char *dockerfile; /* owned: path of the Dockerfile in the archive */
    char *text;       /* owned */
    size_t len;
    bool inside;           /* the Dockerfile is in the folder; else it is sent as an extra entry */
    struct stat st;        /* stat of the Dockerfile when it is inside */
    struct ignore *ignore; /* owned, or NULL */

    /* State of packing: */
    struct tar_writer tar;
    struct tar_entry entry; /* its path grows and shrinks during the walk */
    uint64_t entries;
    char *chunk;             /* owned */
    bool digest_only;        /* send digests instead of large files */
    const json_t *need;      /* digits of files to send anyway, as keys; borrowed, or NULL */
    uint64_t sent;           /* bytes of small files, which are sent whole */
    struct digests *digests; /* owned: cached digests, or NULL */
};

/* ---- opening ---- */

void build_context_free(struct build_context *c)
{
    if (!c)
        return;
    fd_close(c->dir);
    free(c->folder);
    free(c->label);
    free(c->dockerfile);
    free(c->text);
    ignore_free(c->ignore);
    digests_free(c->digests);
    free(c->chunk);
    free(c);
}

const char *build_context_text(const struct build_context *c, size_t *ret_len)
{
    *ret_len = c->len;
    return c->text;
}

const char *build_context_label(const struct build_context *c)
{
    return c->label;
}

const char *build_context_dockerfile(const struct build_context *c)
{
    return c->dockerfile;
}

bool build_context_has_ignore(const struct build_context *c)
{
    return c->ignore;
}

static int build_context_open_folder(struct build_context *c, struct err *err)
{
    struct stat st;

    c->dir = open(c->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->dir >= 0)
        return 0;
    if (errno == ENOTDIR && stat(c->folder, &st) == 0) {
        err_set(err, ERR_INVALID, "context '%s': not a folder", c->folder);
        return err_hint(err, "Give the folder as CONTEXT and the Dockerfile with -f.");
    }
    tree_err(err, errno, "open context '%s'", c->folder);
    if (STREQ(c->folder, "-") || strstr(c->folder, "://"))
        return err_hint(err, "CONTEXT must be a folder on this machine. Use '-f -' to read the "
                             "Dockerfile from standard input.");
    return -(int)(err ? err->code : ERR_SYSTEM);
}

/* The path of a file relative to the folder, or NULL when it is outside. */
static char *build_context_path_inside(const char *folder, const char *file)
{
    _cleanup_free_ char *top = realpath(folder, NULL), *slash = xstrdup(file), *parent = NULL;
    char *name = strrchr(slash, '/');
    size_t len;

    if (name)
        *name++ = '\0';
    parent = realpath(!name ? "." : *slash ? slash : "/", NULL);
    name = name ? name : slash;
    if (!top || !parent)
        return NULL;
    len = strlen(top);
    if (strncmp(parent, top, len) != 0 || (parent[len] && parent[len] != '/'))
        return NULL;
    return parent[len] ? xasprintf("%s/%s", parent + len + 1, name) : xstrdup(name);
}

static int build_context_read_dockerfile(struct build_context *c, const char *file, struct err *err)
{
    int r;

    if (file && STREQ(file, "-")) {
        c->label = xstrdup("standard input");
        return input_read("-", DOCKERFILE_SIZE_MAX, &c->text, &c->len, err);
    }
    c->label = file                    ? xstrdup(file)
               : STREQ(c->folder, ".") ? xstrdup("Dockerfile")
                                       : xasprintf("%s/Dockerfile", c->folder);
    r = file_read(AT_FDCWD, c->label, DOCKERFILE_SIZE_MAX, &c->text, &c->len, err);
    if (r < 0 && err && err->errnum == ENOENT) {
        err_done(err);
        err_set(err, ERR_NOT_FOUND, "'%s': no such Dockerfile", c->label);
        return err_hint(err, "Give its path with -f, or give the folder that contains it.");
    }
    if (r < 0)
        return r;
    c->dockerfile = build_context_path_inside(c->folder, c->label);
    c->inside = c->dockerfile && fstatat(c->dir, c->dockerfile, &c->st, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISREG(c->st.st_mode);
    return 0;
}

/* Returns 1 when the file exists, else 0. */
static int build_context_read_ignore(struct build_context *c, int dir, const char *path,
                                     struct err *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_err_ struct err why = ERR_INIT;
    size_t len;
    int r = file_read(dir, path, IGNORE_SIZE_MAX, &text, &len, &why);

    if (r < 0)
        return why.errnum == ENOENT ? 0 : err_move(err, &why);
    r = ignore_parse(text, len, &c->ignore, err);
    return r < 0 ? err_wrap(err, "'%s'", path) : 1;
}

int build_context_open(const char *folder, const char *file, struct build_context **ret,
                       struct err *err)
{
    _cleanup_(build_context_freep) struct build_context *c = xnew0(struct build_context);
    _cleanup_free_ char *own = NULL;
    int r;

    c->dir = -1;
    c->folder = xstrdup(folder);
    r = build_context_open_folder(c, err);
    if (r < 0)
        return r;
    r = build_context_read_dockerfile(c, file, err);
    if (r < 0)
        return r;
    /* As in Docker, Dockerfile.dockerignore has precedence over the context's .dockerignore. */
    own = xasprintf("%s.dockerignore", c->label);
    r = build_context_read_ignore(c, AT_FDCWD, own, err);
    if (r == 0)
        r = build_context_read_ignore(c, c->dir, ".dockerignore", err);
    if (r < 0)
        return r;
    if (!c->inside) {
        free(c->dockerfile);
        c->dockerfile = xstrdup(BUILD_CONTEXT_DOCKERFILE);
    }
    *ret = TAKE_PTR(c);
    return 0;
}

/* ---- packing ---- */

static int build_context_put_entry(struct build_context *c, struct err *err)
{
    if (++c->entries > TAR_ENTRIES_MAX)
        return err_set(err, ERR_LIMIT, "context '%s': more than %d files", c->folder,
                       TAR_ENTRIES_MAX);
    return tar_put(&c->tar, &c->entry, err);
}

/* As in Docker, all entries belong to root: the builder must not see the ids of the user. */
static void build_context_fill_entry(struct build_context *c, enum tar_type type,
                                     const struct stat *st)
{
    struct tar_entry *e = &c->entry;

    e->type = type;
    e->link[0] = '\0';
    e->mode = st->st_mode & 07777;
    e->size = type == TAR_FILE ? (uint64_t)st->st_size : 0;
    e->mtime = st->st_mtim.tv_sec;
}

static int build_context_put_data(struct build_context *c, int fd, struct err *err)
{
    for (uint64_t left = c->entry.size; left;) {
        ssize_t n = read(fd, c->chunk, MIN(left, (uint64_t)CHUNK));
        int r;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tree_err(err, errno, "read '%s'", c->entry.path);
        if (n == 0)
            return err_set(err, ERR_CONFLICT, "'%s': file shrank during the upload", c->entry.path);
        r = tar_write(&c->tar, c->chunk, (size_t)n, err);
        if (r < 0)
            return r;
        left -= (uint64_t)n;
    }
    return 0;
}

/* ---- files that are left out ---- */

/* Computes the digest of a file, or takes the cached one if the file is unchanged. */
static int build_context_digest(struct build_context *c, int fd, const struct stat *st,
                                char ret[static DIGEST_CONTEXT_VALUE_MAX], struct err *err)
{
    int r;

    if (c->digests && digests_find(c->digests, st, ret))
        return 0;
    r = digest_context_read(fd, c->chunk, CHUNK, ret);
    if (r < 0)
        return tree_err(err, -r, "read '%s'", c->entry.path);
    if (c->digests)
        digests_add(c->digests, st, ret);
    return 0;
}

static int build_context_put_digest(struct build_context *c, const char *value, struct err *err)
{
    const struct tar_xattr x = {.name = DIGEST_CONTEXT_XATTR, .value = value, .len = strlen(value)};
    int r;

    c->entry.size = 0;
    c->entry.xattrs = &x;
    c->entry.n_xattrs = 1;
    r = build_context_put_entry(c, err);
    c->entry.n_xattrs = 0;
    return r;
}

/* Returns 1 when a digest was sent instead of the file, 0 when the caller must send the file. */
static int build_context_try_digest(struct build_context *c, int fd, const struct stat *st,
                                    struct err *err)
{
    char value[DIGEST_CONTEXT_VALUE_MAX];
    int r;

    if (!c->digest_only)
        return 0;
    if (c->entry.size <= SMALL && c->sent + c->entry.size <= SMALL_ALL_MAX) {
        c->sent += c->entry.size;
        return 0;
    }
    r = build_context_digest(c, fd, st, value, err);
    if (r < 0)
        return r;
    if (!json_object_get(c->need, digest_context_digits(value))) {
        r = build_context_put_digest(c, value, err);
        return r < 0 ? r : 1;
    }
    if (lseek(fd, 0, SEEK_SET) < 0)
        return tree_err(err, errno, "read '%s' again", c->entry.path);
    return 0;
}

static int build_context_put_file(struct build_context *c, int parent, const char *name,
                                  struct err *err)
{
    _cleanup_close_ int fd =
        openat(parent, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    int r;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return tree_err(err, errno, "open '%s'", c->entry.path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_CONFLICT, "'%s': file was replaced during the upload",
                       c->entry.path);
    build_context_fill_entry(c, TAR_FILE, &st);
    r = build_context_try_digest(c, fd, &st, err);
    if (r != 0)
        return MIN(r, 0);
    r = build_context_put_entry(c, err);
    return r < 0 ? r : build_context_put_data(c, fd, err);
}

static int build_context_put_symlink(struct build_context *c, int parent, const char *name,
                                     const struct stat *st, struct err *err)
{
    ssize_t n;

    build_context_fill_entry(c, TAR_SYMLINK, st);
    n = readlinkat(parent, name, c->entry.link, sizeof(c->entry.link) - 1);
    if (n < 0 && errno == ENOENT)
        return 0;
    if (n < 0)
        return tree_err(err, errno, "read link '%s'", c->entry.path);
    c->entry.link[n] = '\0';
    return build_context_put_entry(c, err);
}

/* shown: false for an excluded folder, which is walked only for files that a `!` line includes. */
static int build_context_put_folder(struct build_context *c, int parent, const char *name,
                                    bool shown, unsigned depth, struct err *err);

static int build_context_put_any(struct build_context *c, int parent, const char *name,
                                 unsigned depth, struct err *err)
{
    bool ignored = c->ignore && ignore_matches(c->ignore, c->entry.path);
    const char *what;
    struct stat st;

    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : tree_err(err, errno, "stat '%s'", c->entry.path);
    if (S_ISDIR(st.st_mode))
        return ignored && !ignore_has_exceptions(c->ignore)
                   ? 0
                   : build_context_put_folder(c, parent, name, !ignored, depth, err);
    if (ignored || (c->inside && STREQ(c->entry.path, c->dockerfile)))
        return 0;
    if (S_ISREG(st.st_mode))
        return build_context_put_file(c, parent, name, err);
    if (S_ISLNK(st.st_mode))
        return build_context_put_symlink(c, parent, name, &st, err);
    what = S_ISSOCK(st.st_mode) ? "a socket" : S_ISFIFO(st.st_mode) ? "a named pipe" : "a device";
    err_set(err, ERR_INVALID, "'%s' in the context is %s and cannot be sent", c->entry.path, what);
    return err_hint(err, "Exclude it: add the line '%s' to .dockerignore.", c->entry.path);
}

/* Appends "/name" to the path of the entry. Returns the old length, or an error. */
static int build_context_push_name(struct build_context *c, const char *name, struct err *err)
{
    char *path = c->entry.path;
    size_t len = strlen(path);
    int n = snprintf(path + len, TAR_PATH_MAX - len, "%s%s", len ? "/" : "", name);

    if (n >= 0 && (size_t)n < TAR_PATH_MAX - len)
        return (int)len;
    path[len] = '\0';
    return err_set(err, ERR_LIMIT, "a path below '%.60s' is longer than %d bytes", path,
                   TAR_PATH_MAX - 1);
}

static int build_context_put_names(struct build_context *c, int dir, struct dirent **names, int n,
                                   unsigned depth, struct err *err)
{
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        int len, r;

        if (STREQ(name, ".") || STREQ(name, ".."))
            continue;
        len = build_context_push_name(c, name, err);
        if (len < 0)
            return len;
        r = build_context_put_any(c, dir, name, depth, err);
        c->entry.path[len] = '\0';
        if (r < 0)
            return r;
    }
    return 0;
}

/* Sorted by name, so that the same context gives the same archive. */
static int build_context_put_children(struct build_context *c, int dir, unsigned depth,
                                      struct err *err)
{
    struct dirent **names = NULL;
    int n, r;

    if (depth >= DEPTH_MAX)
        return err_set(err, ERR_LIMIT, "'%.60s…': more than %d levels of folders", c->entry.path,
                       DEPTH_MAX);
    n = scandirat(dir, ".", &names, NULL, alphasort);
    if (n < 0)
        return tree_err(err, errno, "read folder '%s'", *c->entry.path ? c->entry.path : c->folder);
    r = build_context_put_names(c, dir, names, n, depth + 1, err);
    while (n-- > 0)
        free(names[n]);
    free(names);
    return r;
}

static int build_context_put_folder(struct build_context *c, int parent, const char *name,
                                    bool shown, unsigned depth, struct err *err)
{
    _cleanup_close_ int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    int r = 0;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return tree_err(err, errno, "open folder '%s'", c->entry.path);
    build_context_fill_entry(c, TAR_DIR, &st);
    if (shown)
        r = build_context_put_entry(c, err);
    return r < 0 ? r : build_context_put_children(c, fd, depth, err);
}

/* Sends the text that was checked before, even if the file has changed since. */
static int build_context_put_dockerfile(struct build_context *c, struct err *err)
{
    int r;

    snprintf(c->entry.path, TAR_PATH_MAX, "%s", c->dockerfile);
    if (!c->inside)
        c->st = (struct stat){.st_mode = 0644};
    build_context_fill_entry(c, TAR_FILE, &c->st);
    c->entry.size = c->len;
    r = build_context_put_entry(c, err);
    if (r < 0)
        return r;
    c->entry.path[0] = '\0';
    return c->len ? tar_write(&c->tar, c->text, c->len, err) : 0;
}

void build_context_digest_only(struct build_context *c, bool digest_only, const json_t *need)
{
    c->digest_only = digest_only;
    c->need = need;
}

void build_context_remember(struct build_context *c, const char *state)
{
    struct stat st;

    if (!c->digests && fstat(c->dir, &st) == 0)
        c->digests = digests_open(state, &st);
}

int build_context_pack(struct build_context *c, tar_write_fn write, void *arg, struct err *err)
{
    int r;

    tar_writer_init(&c->tar, write, arg);
    c->entry = (struct tar_entry){0};
    c->entries = c->sent = 0;
    c->chunk = c->chunk ? c->chunk : xmalloc(CHUNK);
    r = build_context_put_dockerfile(c, err);
    if (r < 0)
        return r;
    r = build_context_put_children(c, c->dir, 0, err);
    if (r < 0)
        return r;
    if (c->digest_only && c->digests)
        digests_save(c->digests);
    return tar_finish(&c->tar, err);
}
