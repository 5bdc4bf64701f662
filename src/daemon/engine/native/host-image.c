/*
 * Two passes over one table. The first pass only reads metadata (lstat) and computes a fingerprint.
 * Nearly always the generation with that fingerprint exists, which keeps the start of the daemon
 * short. The second pass builds in a temporary folder, which is renamed into place when it is
 * complete.
 *
 * Files of /etc are copied by an allow-list, and only when they are world-readable: gitconfig,
 * pip.conf and npmrc often hold tokens, and shadow holds passwords. Files are opened without
 * following links and checked after the open, so a file that changes in between is left out.
 */
#include "daemon/engine/native/host-image.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <sys/stat.h>

#include "daemon/engine/native/host-files.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "lib/os/ext4-spread.h"
#include "lib/os/rmtree.h"
#include "proto/plan.h"

enum {
    IMAGE_FORMAT = 3, /* part of the fingerprint: raise it when this code builds something else */
    ENTRIES_MAX = 16384,
    DEPTH_MAX = 12,
};
#define FILE_SIZE_MAX MIB(8)
#define TOTAL_SIZE_MAX MIB(64)

static const char *const merged_dirs[PLAN_SPLIT_MAX] = {PLAN_SPLIT_NAMES};

/* Below /etc; the last component may be a pattern. */
static const char *const etc_allowed[] = {
    "adduser.conf",
    "alternatives",
    "alpine-release",
    "bash.bashrc",
    "ca-certificates",
    "crypto-policies",
    "ca-certificates.conf",
    "debian_version",
    "deluser.conf",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "java-*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "login.defs",
    "lsb-release",
    "magic",
    "magic.mime",
    "mime.types",
    "netconfig",
    "os-release",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "profile",
    "protocols",
    "python3*",
    "redhat-release",
    "rpc",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xattr.conf",
};

static const struct {
    const char *path;
    mode_t mode;
} dirs[] = {
    {"dev", 0755},
    {"etc", 0755},
    {"etc/pam.d", 0755},
    {"etc/skel", 0755},
    {"home", 0755},
    {"home/agent", 0755},
    {"home/agent/.config", 0755},
    {"home/agent/.config/pnpm", 0755},
    {"media", 0755},
    {"mnt", 0755},
    {"opt", 0755},
    {"proc", 0555},
    {"root", 0700},
    {"run", 0755},
    {"scratch", 01777},
    {"srv", 0755},
    {"sys", 0555},
    {"tmp", 01777},
    {"usr", 0755},
    {"usr/local", 0755},
    {"usr/local/bin", 0755},
    {"var", 0755},
    {"var/cache", 0755},
    {"var/lib", 0755},
    {"var/log", 0755},
    {"var/tmp", 01777},
};

/* ---- the walk over the machine's files ---- */

struct host_image_walk {
    int src, dst;  /* root folders; dst -1: first pass */
    uint64_t hash; /* FNV-1a hash of all that was read */
    size_t entries, bytes;
};

static void host_image_mix(struct host_image_walk *w, const void *data, size_t len)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < len; i++)
        w->hash = (w->hash ^ p[i]) * UINT64_C(0x100000001b3);
}

static void host_image_mix_str(struct host_image_walk *w, const char *s)
{
    host_image_mix(w, s, strlen(s) + 1);
}

static void host_image_mix_u64(struct host_image_walk *w, uint64_t v)
{
    w->hash = (w->hash ^ v) * UINT64_C(0x100000001b3);
    w->hash ^= w->hash >> 29; /* high bits of v must reach the low ones too */
}

static void host_image_mix_stat(struct host_image_walk *w, const char *path, const struct stat *st)
{
    host_image_mix_str(w, path);
    host_image_mix_u64(w, st->st_mode);
    host_image_mix_u64(w, (uint64_t)st->st_size);
    host_image_mix_u64(w, (uint64_t)st->st_mtim.tv_sec);
    host_image_mix_u64(w, (uint64_t)st->st_mtim.tv_nsec);
}

/* See host_files_create() for the mode. */
static int host_image_make_dir(int dst, const char *path, mode_t mode, struct err *err)
{
    if (mkdirat(dst, path, mode) < 0)
        return errno == EEXIST ? 0 : err_sys(err, errno, "make folder '%s'", path);
    if (fchmodat(dst, path, mode, 0) < 0)
        return err_sys(err, errno, "set mode of '%s'", path);
    return 0;
}

static int host_image_make_dirs(int dst, const char *path, mode_t mode, struct err *err)
{
    _cleanup_free_ char *p = xstrdup(path);

    for (char *s = strchr(p, '/'); s; s = strchr(s + 1, '/')) {
        int r;

        *s = '\0';
        r = host_image_make_dir(dst, p, mode, err);
        if (r < 0)
            return r;
        *s = '/';
    }
    return host_image_make_dir(dst, p, mode, err);
}

static int host_image_copy_link(struct host_image_walk *w, const char *path, struct err *err)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(w->src, path, target, sizeof(target) - 1);

    if (n < 0)
        return err_sys(err, errno, "read link '%s'", path);
    target[n] = '\0';
    host_image_mix(w, target, (size_t)n);
    if (w->dst >= 0 && symlinkat(target, w->dst, path) < 0)
        return err_sys(err, errno, "make link '%s'", path);
    return 0;
}

static int host_image_copy_bytes(int in, int out, size_t max)
{
    char data[16384];
    size_t total = 0;

    for (;;) {
        ssize_t n = fd_read_full(in, data, sizeof(data));
        int r;

        if (n <= 0)
            return (int)n;
        total += (size_t)n;
        if (total > max)
            return -EFBIG;
        r = fd_write_all(out, data, (size_t)n);
        if (r < 0)
            return r;
    }
}

static bool host_image_is_wanted_file(const struct stat *st)
{
    return S_ISREG(st->st_mode) && (st->st_mode & S_IROTH) && (size_t)st->st_size <= FILE_SIZE_MAX;
}

static int host_image_copy_file(struct host_image_walk *w, const char *path, const struct stat *st,
                                struct err *err)
{
    _cleanup_close_ int in = -1, out = -1;
    struct stat opened;
    int r;

    w->bytes += (size_t)st->st_size;
    if (w->bytes > TOTAL_SIZE_MAX)
        return err_set(err, ERR_LIMIT, "files for image 'host' are over %zu bytes",
                       (size_t)TOTAL_SIZE_MAX);
    if (w->dst < 0)
        return 0;
    in = openat(w->src, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (in < 0 || fstat(in, &opened) < 0 || !host_image_is_wanted_file(&opened))
        return 0; /* changed since the check: leave it out */
    r = host_files_create(w->dst, path, st->st_mode & 0111 ? 0755 : 0644, &out, err);
    if (r < 0)
        return r;
    r = host_image_copy_bytes(in, out, FILE_SIZE_MAX);
    return r < 0 ? err_sys(err, -r, "copy '%s'", path) : 0;
}

static int host_image_copy_entry(struct host_image_walk *w, const char *path, int depth,
                                 struct err *err);

static int host_image_compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted, so that the fingerprint does not depend on the order of the file system. */
static int host_image_list_dir(int dirfd, const char *path, char ***ret)
{
    _cleanup_closedir_ DIR *d = NULL;
    char **names = NULL;
    int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        fd_close(fd);
        return -1;
    }
    for (const struct dirent *e; (e = readdir(d));)
        if (!STREQ(e->d_name, ".") && !STREQ(e->d_name, ".."))
            strv_add(&names, e->d_name);
    if (names)
        qsort(names, strv_len(names), sizeof(*names), host_image_compare_names);
    *ret = names;
    return 0;
}

static int host_image_copy_dir(struct host_image_walk *w, const char *path, int depth,
                               struct err *err)
{
    _cleanup_strv_ char **names = NULL;

    if (w->dst >= 0 && host_image_make_dir(w->dst, path, 0755, err) < 0)
        return -ERR_SYSTEM;
    if (depth >= DEPTH_MAX || host_image_list_dir(w->src, path, &names) < 0)
        return 0;
    for (char **n = names; n && *n; n++) {
        _cleanup_free_ char *child = xasprintf("%s/%s", path, *n);
        int r = host_image_copy_entry(w, child, depth + 1, err);

        if (r < 0)
            return r;
    }
    return 0;
}

static int host_image_copy_entry(struct host_image_walk *w, const char *path, int depth,
                                 struct err *err)
{
    struct stat st;

    if (fstatat(w->src, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* not every machine has every file of the allow-list */
    if (++w->entries > ENTRIES_MAX)
        return err_set(err, ERR_LIMIT, "image 'host' has over %d entries", ENTRIES_MAX);
    if (S_ISDIR(st.st_mode) && (st.st_mode & 0005) == 0005) {
        host_image_mix_str(w, path);
        return host_image_copy_dir(w, path, depth, err);
    }
    if (S_ISLNK(st.st_mode)) {
        host_image_mix_str(w, path);
        return host_image_copy_link(w, path, err);
    }
    if (!host_image_is_wanted_file(&st))
        return 0;
    host_image_mix_stat(w, path, &st);
    return host_image_copy_file(w, path, &st, err);
}

/* "ssl/certs" needs its parent folder; only the last component may be a pattern. */
static int host_image_copy_allowed(struct host_image_walk *w, const char *pattern, struct err *err)
{
    _cleanup_free_ char *parent = xasprintf("etc/%s", pattern);
    _cleanup_strv_ char **names = NULL;
    char *slash = strrchr(parent, '/');

    *slash = '\0';
    if (host_image_list_dir(w->src, parent, &names) < 0)
        return 0;
    for (char **n = names; n && *n; n++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", parent, *n);
        int r;

        if (fnmatch(slash + 1, *n, 0) != 0)
            continue;
        if (w->dst >= 0 && host_image_make_dirs(w->dst, parent, 0755, err) < 0)
            return -ERR_SYSTEM;
        r = host_image_copy_entry(w, path, 1, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static void host_image_list_allowed(int root, const char *pattern, char ***ret)
{
    _cleanup_free_ char *parent = xasprintf("etc/%s", pattern);
    _cleanup_strv_ char **names = NULL;
    char *slash = strrchr(parent, '/');

    *slash = '\0';
    if (host_image_list_dir(root, parent, &names) < 0)
        return;
    for (char **n = names; n && *n; n++)
        if (fnmatch(slash + 1, *n, 0) == 0)
            strv_push(ret, xasprintf("/%s/%s", parent, *n));
}

void host_image_list_etc(const char *root, char ***ret)
{
    _cleanup_close_ int fd = -1;

    if (dir_open(AT_FDCWD, root, &fd, NULL) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(etc_allowed); i++)
        host_image_list_allowed(fd, etc_allowed[i], ret);
}

/* /bin -> usr/bin and the like. Where the machine has a folder, the shim mounts that folder. */
static int host_image_copy_merged(struct host_image_walk *w, const char *name, struct err *err)
{
    struct stat st;

    if (fstatat(w->src, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    host_image_mix_str(w, name);
    if (S_ISLNK(st.st_mode))
        return host_image_copy_link(w, name, err);
    host_image_mix_u64(w, S_ISDIR(st.st_mode));
    if (w->dst >= 0 && S_ISDIR(st.st_mode))
        return host_image_make_dir(w->dst, name, 0755, err);
    return 0;
}

static int host_image_walk_machine(struct host_image_walk *w, struct err *err)
{
    int r;

    host_image_mix_u64(w, host_files_machine(w->src));
    for (size_t i = 0; i < ARRAY_SIZE(merged_dirs); i++) {
        r = host_image_copy_merged(w, merged_dirs[i], err);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < ARRAY_SIZE(etc_allowed); i++) {
        r = host_image_copy_allowed(w, etc_allowed[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int host_image_build(struct host_image_walk *w, const struct host_image_source *src,
                            struct err *err)
{
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        r = host_image_make_dir(w->dst, dirs[i].path, dirs[i].mode, err);
        if (r < 0)
            return r;
    }
    r = host_image_walk_machine(w, err);
    if (r < 0)
        return r;
    return host_files_put(w->src, w->dst, src->chown_home, err);
}

static uint64_t host_image_hash_start(const struct host_image_source *src)
{
    struct host_image_walk w = {.hash = UINT64_C(0xcbf29ce484222325)};

    host_image_mix_u64(&w, IMAGE_FORMAT);
    host_image_mix_u64(&w, src->chown_home);
    return w.hash;
}

/* Builds in "tmp-<name>" and renames to `name`. Only one daemon uses the folder (the root is
 * locked), so a folder `name` that exists is the same, complete generation. */
static int host_image_build_generation(int images, int root, const char *name,
                                       const struct host_image_source *src, struct err *err)
{
    _cleanup_free_ char *tmp = xasprintf("tmp-%s", name);
    _cleanup_close_ int dst = -1;
    struct host_image_walk w = {.src = root, .hash = host_image_hash_start(src)};
    int r;

    r = rmtree(images, tmp, err); /* left by a daemon that was killed */
    if (r < 0)
        return r;
    r = host_image_make_dir(images, tmp, 0755, err);
    if (r < 0)
        return r;
    r = dir_open(images, tmp, &dst, err);
    if (r < 0)
        return r;
    w.dst = dst;
    r = host_image_build(&w, src, err);
    if (r >= 0 && renameat(images, tmp, images, name) < 0)
        r = err_sys(err, errno, "rename '%s' to '%s'", tmp, name);
    if (r < 0)
        rmtree(images, tmp, NULL);
    return r;
}

int host_image_ensure(const char *images_dir, const struct host_image_source *src, char **ret,
                      struct err *err)
{
    _cleanup_close_ int images = -1, root = -1;
    char name[32];
    struct host_image_walk look = {.dst = -1, .hash = host_image_hash_start(src)};
    struct stat st;
    int r;

    r = dir_make_all(AT_FDCWD, images_dir, 0700, err);
    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, images_dir, &images, err);
    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, src->root, &root, err);
    if (r < 0)
        return r;
    look.src = root;
    ext4_spread_children(images);
    r = host_image_walk_machine(&look, err);
    if (r < 0)
        return r;
    snprintf(name, sizeof(name), "g-%016llx", (unsigned long long)look.hash);
    if (fstatat(images, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        r = host_image_build_generation(images, root, name, src, err);
        if (r < 0)
            return err_wrap(err, "build image 'host' in '%s'", images_dir);
    }
    *ret = xasprintf("%s/%s", images_dir, name);
    return 0;
}

void host_image_prune(const char *images_dir, char *const *keep)
{
    _cleanup_close_ int images = -1;
    _cleanup_strv_ char **names = NULL;

    if (dir_open(AT_FDCWD, images_dir, &images, NULL) < 0 ||
        host_image_list_dir(images, ".", &names) < 0)
        return;
    for (char **n = names; n && *n; n++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", images_dir, *n);
        _cleanup_err_ struct err err = ERR_INIT;

        if (strv_contains(keep, path))
            continue;
        if (rmtree(images, *n, &err) < 0)
            log_debug("cannot remove the old image '%s': %s", path, err.msg);
    }
}
