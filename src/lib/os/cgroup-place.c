#include "lib/os/cgroup-place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/limits.h"
#include "lib/base/xalloc.h"
#include "lib/os/cgroup-files.h"
#include "lib/os/cgroup.h"

#define PLACE_TOP "ripcord"
#define PLACE_LEAF "supervisor"
#define PLACE_UNIT "ripcord.service"
#define PLACE_BESIDE "ripcord-sandboxes"

enum { PLACE_TEXT_MAX = 1 << 20, PLACE_MOVE_ROUNDS = 100 };

/* One look at a v2 tree. */
struct place_look {
    int top;         /* its mount */
    const char *own; /* the cgroup of this process: "/", "/a/b" */
    uid_t uid;
    struct cgroup_place *place;
};

static _printf_(3, 4) void cgroup_place_refuse(struct cgroup_place *p, const char *hint,
                                               const char *fmt, ...)
{
    va_list ap;
    char *why;

    va_start(ap, fmt);
    why = xvasprintf(fmt, ap);
    va_end(ap);
    cgroup_place_done(p);
    p->missing = LIMIT_MEMORY | LIMIT_CPUS | LIMIT_PIDS;
    p->why = why;
    p->hint = hint ? xstrdup(hint) : NULL;
}

/* ---- looking ---- */

/* "/a/b" below the mount; "/" is the mount itself. */
static int cgroup_place_open(const struct place_look *l, const char *path)
{
    const char *below = path[1] ? path + 1 : ".";

    return openat(l->top, below, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

static bool cgroup_place_is_marked(int dir)
{
    static const char *const names[] = {"user.delegate", "trusted.delegate"};
    char value[4];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (fgetxattr(dir, names[i], value, sizeof(value)) == 1 && value[0] == '1')
            return true;
    return false;
}

static bool cgroup_place_owns(const struct place_look *l, int dir)
{
    struct stat st;

    return fstat(dir, &st) == 0 && st.st_uid == l->uid &&
           faccessat(dir, "cgroup.procs", W_OK, 0) == 0 &&
           faccessat(dir, "cgroup.subtree_control", W_OK, 0) == 0;
}

/* If the top is ours, everything is, and only systemd's mark says what was handed out. */
static bool cgroup_place_is_handed_out(const struct place_look *l, const char *path)
{
    _cleanup_close_ int dir = cgroup_place_open(l, path);

    if (dir < 0 || !path[1] || !cgroup_place_owns(l, dir))
        return false;
    return cgroup_place_owns(l, l->top) ? cgroup_place_is_marked(dir) : true;
}

static char *cgroup_place_above(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == path ? xstrdup("/") : xasprintf("%.*s", (int)(slash - path), path);
}

static bool cgroup_place_ends_with(const char *path, const char *name)
{
    return STREQ(strrchr(path, '/') + 1, name);
}

/* Our own cgroup, or the one above if we are in its leaf already; NULL: neither was handed out. */
static char *cgroup_place_find_own(const struct place_look *l)
{
    _cleanup_free_ char *above = cgroup_place_above(l->own);

    if (cgroup_place_ends_with(l->own, PLACE_LEAF) && cgroup_place_is_handed_out(l, above))
        return TAKE_PTR(above);
    return cgroup_place_is_handed_out(l, l->own) ? xstrdup(l->own) : NULL;
}

static bool cgroup_place_has_processes(int dir)
{
    _cleanup_free_ char *text = NULL;
    size_t len = 0;

    return file_read(dir, "cgroup.procs", PLACE_TEXT_MAX, &text, &len, NULL) < 0 || len > 0;
}

static bool cgroup_place_may_use_top(const struct place_look *l)
{
    if (cgroup_is_real_root(l->top) || STREQ(l->own, "/") || STREQ(l->own, "/" PLACE_LEAF))
        return true;
    return !cgroup_place_has_processes(l->top); /* systemd runs in this container */
}

static void cgroup_place_refuse_tree(const struct place_look *l)
{
    if (faccessat(l->top, "cgroup.procs", W_OK, 0) < 0 && errno == EROFS)
        cgroup_place_refuse(l->place,
                            "Run the daemon where cgroups are writable: not in a container "
                            "without that right.",
                            "cgroups are mounted read-only");
    else if (l->uid == 0)
        cgroup_place_refuse(l->place, "Run the daemon as a unit with 'Delegate=yes'.",
                            "cgroup '%s' was not delegated to the daemon", l->own);
    else
        cgroup_place_refuse(
            l->place,
            "Start the daemon in this user's service manager: run `systemctl --user start "
            "ripcord`, or `systemd-run --user --scope -p Delegate=yes ripcord daemon`.",
            "cgroup '%s' was not delegated to this user", l->own);
}

static void cgroup_place_explain_missing(struct cgroup_place *p, const char *path)
{
    if (!p->missing)
        return;
    p->why = xasprintf(
        "cgroup '%s' has no controller%s%s%s", path, p->missing & LIMIT_MEMORY ? " memory" : "",
        p->missing & LIMIT_CPUS ? " cpu" : "", p->missing & LIMIT_PIDS ? " pids" : "");
    p->hint = xstrdup("Let the service manager hand them down: for a user's daemon, run "
                      "`systemctl edit user@.service` and add 'Delegate=cpu memory pids' below "
                      "'[Service]'.");
}

/* ---- taking ---- */

/* One write: the kernel enables all or none. */
static int cgroup_place_enable(int dir, const char *controllers)
{
    return *controllers ? cgroup_write(dir, "cgroup.subtree_control", controllers) : 0;
}

/* The processes of a folder. 0: none; -EPERM: some are of another pid namespace, where nobody here
 * can move them (and number 0 would move the writer itself). */
static int cgroup_place_list(int dir, char **ret)
{
    _cleanup_free_ char *list = NULL;
    size_t len = 0;

    if (file_read(dir, "cgroup.procs", PLACE_TEXT_MAX, &list, &len, NULL) < 0)
        return -EIO;
    if (strncmp(list, "0\n", 2) == 0 || strstr(list, "\n0\n"))
        return -EPERM;
    free(*ret);
    *ret = TAKE_PTR(list);
    return len > 0;
}

/* 0 or -errno; processes that end meanwhile do not matter. */
static int cgroup_place_move_listed(char *list, int leaf)
{
    for (char *p = list, *line; (line = strsep(&p, "\n"));) {
        int r = *line ? cgroup_write(leaf, "cgroup.procs", line) : 0;

        if (r < 0 && r != -ESRCH)
            return r;
    }
    return 0;
}

static int cgroup_place_clear(int dir)
{
    _cleanup_free_ char *list = NULL;
    _cleanup_close_ int leaf = -1;
    int r = cgroup_place_list(dir, &list);

    if (r <= 0)
        return r;
    if (mkdirat(dir, PLACE_LEAF, 0755) < 0 && errno != EEXIST)
        return -errno;
    leaf = openat(dir, PLACE_LEAF, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (leaf < 0)
        return -errno;
    for (int i = 0; i < PLACE_MOVE_ROUNDS; i++) {
        r = cgroup_place_move_listed(list, leaf);
        if (r >= 0)
            r = cgroup_place_list(dir, &list);
        if (r <= 0)
            return r;
    }
    return -EBUSY;
}

/* Moves the processes away, and hands the controllers down. */
static void cgroup_place_prepare(const struct place_look *l, const char *path, int dir,
                                 const char *controllers)
{
    int r = 0;

    if (cgroup_place_has_processes(dir) && !cgroup_is_real_root(dir))
        r = cgroup_place_clear(dir);
    if (r < 0) {
        cgroup_place_refuse(l->place,
                            "Start the daemon in a cgroup with only its own processes, such as a "
                            "unit with 'Delegate=yes'.",
                            "cannot move the processes of cgroup '%s': %s", path, strerror(-r));
        return;
    }
    r = cgroup_place_enable(dir, controllers);
    if (r < 0)
        cgroup_place_refuse(l->place, NULL, "cannot enable the controllers of cgroup '%s': %s",
                            path, strerror(-r));
}

static void cgroup_place_copy_limits(int from, int to)
{
    static const char *const files[] = {"memory.max", "memory.high", "cpu.max", "pids.max"};

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        _cleanup_free_ char *text = NULL;

        if (file_read(from, files[i], 4096, &text, NULL, NULL) >= 0)
            cgroup_write(to, files[i], text);
    }
}

/* ---- the candidates ---- */

/* Whether sandboxes may be below this folder. On success the controllers that it has. */
static bool cgroup_place_check(const struct place_look *l, const char *path, int dir,
                               char controllers[static CGROUP_CONTROLLERS_MAX])
{
    if (dir < 0 || !cgroup_place_owns(l, dir)) {
        cgroup_place_refuse_tree(l);
        return false;
    }
    if (cgroup_has_word(dir, "cgroup.type", "threaded") ||
        cgroup_has_word(dir, "cgroup.type", "invalid")) {
        cgroup_place_refuse(l->place, "Start the machine or container again.",
                            "cgroup '%s' is threaded, so it cannot limit memory", path);
        return false;
    }
    l->place->version = "v2";
    l->place->missing = cgroup_controllers(dir, controllers);
    cgroup_place_explain_missing(l->place, path);
    return true;
}

/* A folder of ours in `path`, whose own processes are somebody else's. */
static void cgroup_place_use_folder(const struct place_look *l, const char *path, const char *name,
                                    const char *limits_of, bool take)
{
    _cleanup_close_ int dir = cgroup_place_open(l, path), ours = -1, source = -1;
    char controllers[CGROUP_CONTROLLERS_MAX];
    int r;

    if (!cgroup_place_check(l, path, dir, controllers))
        return;
    l->place->parent = path[1] ? xasprintf("%s/%s", path + 1, name) : xstrdup(name);
    if (take)
        cgroup_place_prepare(l, path, dir, controllers);
    if (!take || !l->place->parent)
        return;
    mkdirat(dir, name, 0755);
    ours = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    source = limits_of ? cgroup_place_open(l, limits_of) : -1;
    if (source >= 0 && ours >= 0)
        cgroup_place_copy_limits(source, ours);
    r = ours < 0 ? -errno : cgroup_place_enable(ours, controllers);
    if (r < 0)
        cgroup_place_refuse(l->place, NULL, "cannot make cgroup '%s': %s", l->place->parent,
                            strerror(-r));
}

static void cgroup_place_use_own(const struct place_look *l, const char *path, bool take)
{
    _cleanup_close_ int dir = cgroup_place_open(l, path);
    char controllers[CGROUP_CONTROLLERS_MAX];

    if (!cgroup_place_check(l, path, dir, controllers))
        return;
    l->place->parent = xstrdup(path + 1);
    if (take)
        cgroup_place_prepare(l, path, dir, controllers);
}

static void cgroup_place_choose(const struct place_look *l, bool take)
{
    _cleanup_free_ char *own = cgroup_place_find_own(l), *above = NULL;

    if (own && STREQ(own, l->own) && cgroup_place_ends_with(own, PLACE_UNIT)) {
        above = cgroup_place_above(own);
        cgroup_place_use_folder(l, above, PLACE_BESIDE, own, take);
    } else if (own) {
        cgroup_place_use_own(l, own, take);
    } else if (cgroup_place_owns(l, l->top) && cgroup_place_may_use_top(l)) {
        cgroup_place_use_folder(l, "/", PLACE_TOP, NULL, take);
    } else {
        cgroup_place_refuse_tree(l);
    }
}

void cgroup_place_find_at(const char *mount, const char *own, uid_t uid, bool take,
                          struct cgroup_place *ret)
{
    _cleanup_close_ int top = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct place_look l = {top, own, uid, ret};

    *ret = (struct cgroup_place)CGROUP_PLACE_INIT;
    if (top < 0)
        cgroup_place_refuse(ret, NULL, "open '%s': %s", mount, strerror(errno));
    else if (strncmp(own, "/..", 3) == 0)
        cgroup_place_refuse(ret, NULL, "the daemon's cgroup is outside of what is mounted at '%s'",
                            mount);
    else
        cgroup_place_choose(&l, take);
}

/* ---- the real tree ---- */

/* The path in the line "0::PATH" of /proc/self/cgroup. */
static char *cgroup_place_own_path(void)
{
    _cleanup_free_ char *text = NULL;

    if (file_read(AT_FDCWD, "/proc/self/cgroup", PLACE_TEXT_MAX, &text, NULL, NULL) < 0)
        return NULL;
    for (char *p = text, *line; (line = strsep(&p, "\n"));)
        if (strncmp(line, "0::/", 4) == 0)
            return xstrdup(line + 3);
    return NULL;
}

static void cgroup_place_use_v1(struct cgroup_place *p)
{
    bool none = p->missing == (LIMIT_MEMORY | LIMIT_CPUS | LIMIT_PIDS);

    if (none) {
        cgroup_place_refuse(p, "Run the daemon as root, where cgroups are mounted and writable.",
                            "the daemon cannot make cgroups (no writable hierarchy)");
        return;
    }
    p->version = "v1";
    p->parent = xstrdup(PLACE_TOP);
    if (p->missing)
        p->why = xasprintf(
            "no writable cgroup hierarchy for%s%s%s", p->missing & LIMIT_MEMORY ? " memory" : "",
            p->missing & LIMIT_CPUS ? " cpu" : "", p->missing & LIMIT_PIDS ? " pids" : "");
}

static void cgroup_place_decide(bool take, struct cgroup_place *ret)
{
    _cleanup_free_ char *mount = NULL, *own = NULL;

    *ret = (struct cgroup_place)CGROUP_PLACE_INIT;
    mount = cgroup_unified_mount(&ret->missing);
    own = cgroup_place_own_path();
    if (!mount)
        cgroup_place_use_v1(ret);
    else if (own)
        cgroup_place_find_at(mount, own, geteuid(), take, ret);
    else
        cgroup_place_refuse(ret, "Mount cgroup2 at /sys/fs/cgroup.", "cgroups are not mounted");
}

void cgroup_place_take(struct cgroup_place *ret)
{
    cgroup_place_decide(true, ret);
}

void cgroup_place_find(struct cgroup_place *ret)
{
    cgroup_place_decide(false, ret);
}

void cgroup_place_done(struct cgroup_place *p)
{
    free(p->parent);
    free(p->why);
    free(p->hint);
    *p = (struct cgroup_place)CGROUP_PLACE_INIT;
}
