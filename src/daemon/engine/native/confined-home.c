#include "daemon/engine/native/confined-home.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/engine/native/delete-queue.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "lib/os/user.h"
#include "proto/plan.h"

enum {
    COPY_DEPTH_MAX = 4,
    COPY_FILE_MAX = 64 << 10,
    PASSWD_MAX = 1 << 20,
    OWN_LEVELS = 5,   /* confined, <id>, sandboxes, the state folder, the folder of --root */
    PASS_MODE = 0710, /* of folders above: the group of the sandboxes' users may pass */
};

/* The owner of what is made; 0: ours. */
struct confined_owner {
    uint32_t uid, gid;
};

/* ---- copies of our own files ---- */

static int confined_home_own(int fd, const struct confined_owner *o, struct err *err)
{
    if (!o->uid || fchownat(fd, "", o->uid, o->gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    return err_sys(err, errno, "set the owner of a file of the sandbox");
}

static int confined_home_make_dir(int at, const char *name, mode_t mode,
                                  const struct confined_owner *o, int *ret, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "make folder '%s' of the sandbox", name);
    r = dir_open(at, name, &fd, err);
    if (r < 0)
        return r;
    if (fchmod(fd, mode) < 0)
        return err_sys(err, errno, "set the mode of folder '%s' of the sandbox", name);
    r = confined_home_own(fd, o, err);
    if (r < 0)
        return r;
    *ret = TAKE_FD(fd);
    return 0;
}

static int confined_home_copy_file(int from, int to, const char *name,
                                   const struct confined_owner *o, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_close_ int fd = -1;
    struct stat st;
    size_t len = 0;
    int r;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "stat '%s'", name);
    r = file_read(from, name, COPY_FILE_MAX, &text, &len, err);
    if (r < 0)
        return r;
    fd = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, errno, "create '%s'", name);
    r = fd_write_all(fd, text, len);
    if (r < 0 || fchmod(fd, st.st_mode & 0777) < 0)
        return err_sys(err, r < 0 ? -r : errno, "write '%s'", name);
    return confined_home_own(fd, o, err);
}

/* A link of image `host` is relative to its place there, /usr/local/bin. */
static int confined_home_copy_link(int from, int to, const char *name, struct err *err)
{
    static const char up[] = "../../";
    char target[PATH_MAX], *at = target;
    _cleanup_free_ char *absolute = NULL;
    ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

    if (n < 0)
        return err_sys(err, errno, "read link '%s'", name);
    target[n] = '\0';
    if (strncmp(target, up, strlen(up)) == 0)
        at = absolute = xasprintf("/usr/%s", target + strlen(up));
    return symlinkat(at, to, name) < 0 ? err_sys(err, errno, "make link '%s'", name) : 0;
}

static int confined_home_copy(int from, int to, const struct confined_owner *o, int depth,
                              struct err *err);

static int confined_home_copy_dir(int from, int to, const char *name,
                                  const struct confined_owner *o, int depth, struct err *err)
{
    _cleanup_close_ int in = -1, out = -1;
    int r = dir_open(from, name, &in, err);

    if (r < 0)
        return r;
    r = confined_home_make_dir(to, name, 0755, o, &out, err);
    return r < 0 ? r : confined_home_copy(in, out, o, depth + 1, err);
}

static int confined_home_copy_one(int from, int to, const struct dirent *e,
                                  const struct confined_owner *o, int depth, struct err *err)
{
    struct stat st;

    if (fstatat(from, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "stat '%s'", e->d_name);
    if (S_ISDIR(st.st_mode))
        return confined_home_copy_dir(from, to, e->d_name, o, depth, err);
    if (S_ISLNK(st.st_mode))
        return confined_home_copy_link(from, to, e->d_name, err);
    return confined_home_copy_file(from, to, e->d_name, o, err);
}

static int confined_home_copy(int from, int to, const struct confined_owner *o, int depth,
                              struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    const struct dirent *e;

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        fd_close(fd);
        return err_sys(err, errno, "read a folder of image 'host'");
    }
    while (r >= 0 && depth < COPY_DEPTH_MAX && (e = readdir(d)))
        if (!STREQ(e->d_name, ".") && !STREQ(e->d_name, ".."))
            r = confined_home_copy_one(from, to, e, o, depth, err);
    return r;
}

/* Makes `name` with a copy of `source` of image `host`, at once or not at all. */
static int confined_home_put(const struct native_engine *n, int dir, const char *name, mode_t mode,
                             const char *source, const struct confined_owner *o, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", n->lower, source),
                        *tmp = xasprintf("%s.new", name);
    _cleanup_close_ int in = -1, out = -1;
    int r;

    if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    r = rmtree(dir, tmp, err); /* left by a daemon that was killed */
    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, path, &in, err);
    if (r < 0)
        return r;
    r = confined_home_make_dir(dir, tmp, mode, o, &out, err);
    if (r < 0)
        return r;
    r = confined_home_copy(in, out, o, 0, err);
    if (r < 0)
        return r;
    return renameat(dir, tmp, dir, name) < 0
               ? err_sys(err, errno, "put folder '%s' of the sandbox in its place", name)
               : 0;
}

/* ---- the user ---- */

uint32_t confined_home_owner(const struct native_engine *n, const char *id)
{
    _cleanup_free_ char *path = xasprintf("%s/" PLAN_CONFINED_HOME, id);
    const struct native_own_ids *ids = &n->own_ids;
    struct stat st;

    if (!ids->count || fstatat(n->sandboxes, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    return st.st_uid > ids->first && st.st_uid < ids->first + ids->count ? st.st_uid : 0;
}

bool confined_home_has_account(uint32_t uid)
{
    _cleanup_free_ char *text = NULL;
    struct user user;

    return file_read(AT_FDCWD, "/etc/passwd", PASSWD_MAX, &text, NULL, NULL) >= 0 &&
           user_from_passwd(text, NULL, uid, &user);
}

static bool confined_home_is_taken(const struct native_engine *n, char *const *ids, uint32_t uid)
{
    for (; ids && *ids; ids++)
        if (confined_home_owner(n, *ids) == uid)
            return true;
    return confined_home_has_account(uid);
}

/* By the sandbox's random id, so that roots that do not know of each other rarely choose the same.
 * The first id is that of the group. */
static int confined_home_choose(const struct native_engine *n, const char *id, uint32_t *ret,
                                struct err *err)
{
    _cleanup_strv_ char **ids = NULL;
    uint32_t count = n->own_ids.count - 1, wish = (uint32_t)strtoul(id + 8, NULL, 16) % count;
    int r = sandbox_ids_add(n->sandboxes, &ids, err);

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < count; i++) {
        *ret = n->own_ids.first + 1 + (wish + i) % count;
        if (!confined_home_is_taken(n, ids, *ret))
            return 0;
    }
    return err_set(err, ERR_LIMIT, "all %u user ids for confined sandboxes are in use", count);
}

static int confined_home_find_owner(const struct native_engine *n, const char *id,
                                    struct confined_owner *ret, struct err *err)
{
    int r = 0;

    *ret = (struct confined_owner){0};
    if (!n->own_ids.count)
        return 0;
    ret->uid = confined_home_owner(n, id);
    if (!ret->uid)
        r = confined_home_choose(n, id, &ret->uid, err);
    ret->gid = ret->uid;
    return r;
}

/* ---- the way to the folders ---- */

static int confined_home_refuse_way(int fd, const struct stat *st, struct err *err)
{
    char link[32], path[PATH_MAX];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = '\0';
    err_set(err, ERR_UNSUPPORTED, "folder '%s' keeps the users of confined sandboxes out (mode %o)",
            path, st->st_mode & 0777);
    return err_hint(err, "Use a state folder (--root) that other users can pass, e.g. below /var.");
}

/* A folder of ours that nobody else may pass gets the group; others must be open already. */
static int confined_home_open_way(const struct native_engine *n, int fd, const struct stat *st,
                                  int level, struct err *err)
{
    bool ours = level < OWN_LEVELS && st->st_uid == geteuid() && !(st->st_mode & 077);

    if (st->st_mode & S_IXOTH || (st->st_gid == n->own_ids.first && st->st_mode & S_IXGRP))
        return 0;
    if (!ours)
        return confined_home_refuse_way(fd, st, err);
    if (fchown(fd, (uid_t)-1, n->own_ids.first) < 0 || fchmod(fd, PASS_MODE) < 0)
        return err_sys(err, errno, "let the users of confined sandboxes pass a folder");
    return 0;
}

/* From the sandbox's folder up to the root. The folder above the state folder may be ours, too:
 * that of --root. */
static int confined_home_open_ways(const struct native_engine *n, int confined, struct err *err)
{
    _cleanup_close_ int at = openat(confined, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st, above;

    if (at < 0 || fstat(at, &st) < 0)
        return err_sys(err, errno, "open the folder of a sandbox");
    for (int level = 0;; level++) {
        int r = confined_home_open_way(n, at, &st, level, err), up;

        if (r < 0)
            return r;
        up = openat(at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (up < 0 || fstat(up, &above) < 0) {
            fd_close(up);
            return err_sys(err, errno, "look above the folder of a sandbox");
        }
        fd_close(at);
        at = up;
        if (above.st_dev == st.st_dev && above.st_ino == st.st_ino)
            return 0;
        st = above;
    }
}

/* ---- operations ---- */

int confined_home_make(struct native_engine *n, const char *id, int dir, struct err *err)
{
    static const struct confined_owner ours = {0};
    _cleanup_close_ int confined = -1, cache = -1;
    struct confined_owner owner;
    int r = confined_home_find_owner(n, id, &owner, err);

    if (r < 0)
        return r;
    r = confined_home_make_dir(dir, PLAN_CONFINED_DIR, 0700, &ours, &confined, err);
    if (r < 0)
        return r;
    r = confined_home_put(n, confined, "home", 0700, "home/agent", &owner, err);
    if (r < 0)
        return r;
    r = confined_home_make_dir(confined, "cache", 0700, &owner, &cache, err);
    if (r < 0)
        return r;
    return confined_home_put(n, confined, "bin", 0755, "usr/local/bin", &ours, err);
}

int confined_home_begin(struct native_engine *n, const char *id, uint32_t *ret_own, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/" PLAN_CONFINED_DIR, id);
    _cleanup_close_ int confined = -1, tmp = -1;
    struct confined_owner owner = {confined_home_owner(n, id), 0};
    int r;

    owner.gid = owner.uid;
    r = dir_open(n->sandboxes, path, &confined, err);
    if (r < 0)
        return r;
    r = delete_queue_add(n->delete_queue, confined, "tmp", err);
    if (r < 0)
        return r;
    r = confined_home_make_dir(confined, "tmp", 0700, &owner, &tmp, err);
    if (r < 0)
        return r;
    *ret_own = owner.uid;
    return owner.uid ? confined_home_open_ways(n, confined, err) : 0;
}

void confined_home_sweep_shared_memory(uint32_t uid)
{
    _cleanup_closedir_ DIR *d = opendir("/dev/shm");
    const struct dirent *e;
    struct stat st;

    while (d && (e = readdir(d)))
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == uid)
            unlinkat(dirfd(d), e->d_name, 0);
}
