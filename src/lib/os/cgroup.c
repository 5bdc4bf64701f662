/*
 * Finds the trees, makes and removes folders and groups. The differences between v1 and v2 (file
 * names of limits and counters) are in cgroup-v1.c and cgroup-v2.c.
 */
#include "lib/os/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/os/cgroup-files.h"

enum { MOUNTS_MAX = 1 << 20, MKDIR_TRIES = 50, KILL_ROUNDS = 200 };

static const char *const tree_names[CGROUP_TREES] = {
    [CGROUP_UNIFIED] = "unified", [CGROUP_MEMORY] = "memory",   [CGROUP_CPU] = "cpu",
    [CGROUP_PIDS] = "pids",       [CGROUP_FREEZER] = "freezer", [CGROUP_INIT] = "init",
};

/* Trees in which each group has a folder of its own. */
static bool cgroup_has_groups(int tree)
{
    return tree == CGROUP_UNIFIED || tree == CGROUP_MEMORY;
}

/* ---- the null object ---- */

static uint32_t cgroup_none_limit(struct cgroup *c _unused_, const struct cgroup_limits *l)
{
    return (l->memory ? LIMIT_MEMORY : 0) | (l->cpu_milli ? LIMIT_CPUS : 0) |
           (l->pids ? LIMIT_PIDS : 0);
}

static void cgroup_none_usage(struct cgroup *c _unused_, const struct cgroup_group *g _unused_,
                              struct cgroup_usage *ret _unused_)
{
}

static int cgroup_none_freeze(struct cgroup *c _unused_, bool on _unused_, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "cannot pause: cgroups cannot be created on this machine");
}

static const struct cgroup_ops cgroup_none_ops = {
    .name = "none",
    .limit = cgroup_none_limit,
    .usage = cgroup_none_usage,
    .freeze = cgroup_none_freeze,
};

/* ---- finding the trees ---- */

static bool cgroup_option_listed(const char *options, const char *name)
{
    size_t len = strlen(name);

    for (const char *p = options; *p; p += strcspn(p, ","), p += *p == ',')
        if (strncmp(p, name, len) == 0 && (p[len] == ',' || !p[len]))
            return true;
    return false;
}

/* Fills mounts[] with one line of /proc/self/mounts: "source target type options …". */
static void cgroup_take_mount_line(char *line, char *mounts[CGROUP_TREES])
{
    char *target, *type, *options;

    strsep(&line, " ");
    target = strsep(&line, " ");
    type = strsep(&line, " ");
    options = strsep(&line, " ");
    if (!options)
        return;
    if (STREQ(type, "cgroup2") && !mounts[CGROUP_UNIFIED])
        mounts[CGROUP_UNIFIED] = target;
    if (!STREQ(type, "cgroup"))
        return;
    for (int t = CGROUP_MEMORY; t <= CGROUP_FREEZER; t++)
        if (!mounts[t] && cgroup_option_listed(options, tree_names[t]))
            mounts[t] = target;
}

static bool cgroup_is_v1(char *const mounts[CGROUP_TREES])
{
    return mounts[CGROUP_MEMORY] || mounts[CGROUP_CPU] || mounts[CGROUP_PIDS];
}

static char *learned_mounts;

int cgroup_learn(struct err *err)
{
    return file_read(AT_FDCWD, "/proc/self/mounts", MOUNTS_MAX, &learned_mounts, NULL, err);
}

/* mounts[] points into *text; NULL where a tree is not mounted. */
static int cgroup_find_mounts(char **text, char *mounts[CGROUP_TREES], struct err *err)
{
    char *p, *line;
    int r = 0;

    if (learned_mounts)
        *text = TAKE_PTR(learned_mounts);
    else
        r = file_read(AT_FDCWD, "/proc/self/mounts", MOUNTS_MAX, text, NULL, err);
    if (r < 0)
        return r;
    p = *text;
    while ((line = strsep(&p, "\n")))
        cgroup_take_mount_line(line, mounts);
    /* The v1 freezer is only used where v2 cannot freeze. */
    if (mounts[CGROUP_UNIFIED])
        mounts[CGROUP_FREEZER] = NULL;
    if (!cgroup_is_v1(mounts))
        mounts[CGROUP_INIT] = mounts[CGROUP_UNIFIED];
    return 0;
}

/* Enables the controllers for the folders below. One write: some of them without the others could
 * make the folder threaded (cgroup-place.h). */
static void cgroup_hand_down(int dir)
{
    char controllers[CGROUP_CONTROLLERS_MAX];

    cgroup_controllers(dir, controllers);
    if (*controllers)
        cgroup_write(dir, "cgroup.subtree_control", controllers);
}

static int cgroup_open_dir_at(int dirfd, const char *name)
{
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    return fd < 0 ? -errno : fd;
}

static int cgroup_make_dir_at(int dirfd, const char *name, bool v2)
{
    int fd;

    if (mkdirat(dirfd, name, 0755) < 0 && errno != EEXIST)
        return -errno;
    fd = cgroup_open_dir_at(dirfd, name);
    if (fd >= 0 && v2)
        cgroup_hand_down(fd);
    return fd;
}

struct cgroup_names {
    const char *parent, *root_id, *sandbox_id;
    bool v2, make;
};

/* The name of the <root id> folder in a tree. */
static void cgroup_root_name(int tree, const char *root_id, char ret[static CGROUP_NAME_MAX])
{
    snprintf(ret, CGROUP_NAME_MAX, "%s%s", root_id, tree == CGROUP_INIT ? ".init" : "");
}

/* Opens <mount>/<parent>/<root id> and <sandbox id> in it. 0 or -errno. */
static int cgroup_open_tree_at(const char *mount, const struct cgroup_names *at, int *ret_root,
                               int *ret_dir)
{
    _cleanup_close_ int base = -1, parent = -1, root = -1;
    int dir;

    base = cgroup_open_dir_at(AT_FDCWD, mount);
    if (base < 0)
        return base;
    if (at->make && at->v2 && cgroup_is_real_root(base))
        cgroup_hand_down(base);
    parent = at->make ? cgroup_make_dir_at(base, at->parent, at->v2)
                      : cgroup_open_dir_at(base, at->parent);
    if (parent < 0)
        return parent;
    root = at->make ? cgroup_make_dir_at(parent, at->root_id, at->v2)
                    : cgroup_open_dir_at(parent, at->root_id);
    if (root < 0)
        return root;
    dir = at->make ? cgroup_make_dir_at(root, at->sandbox_id, at->v2)
                   : cgroup_open_dir_at(root, at->sandbox_id);
    if (dir < 0)
        return dir;
    *ret_root = TAKE_FD(root);
    *ret_dir = dir;
    return 0;
}

/* Another sandbox of this root may remove an empty parent while we make our folder: then it starts
 * again. */
static int cgroup_make_tree(const char *mount, const struct cgroup_names *at, int *ret_root,
                            int *ret_dir)
{
    int tries = at->make ? MKDIR_TRIES : 1, r;

    do
        r = cgroup_open_tree_at(mount, at, ret_root, ret_dir);
    while (--tries && (r == -ENOENT || r == -ENODEV));
    return r;
}

static void cgroup_reset(struct cgroup *c)
{
    *c = (struct cgroup){.ops = &cgroup_none_ops};
    for (int t = 0; t < CGROUP_TREES; t++)
        c->root[t] = c->dir[t] = c->tasks[t] = -1;
}

static int cgroup_open_all(struct cgroup *c, const struct cgroup_names *where,
                           char *const mounts[CGROUP_TREES], struct err *err)
{
    bool v2 = !cgroup_is_v1(mounts);

    for (int t = 0; t < CGROUP_TREES; t++) {
        struct cgroup_names at = *where;
        char root[CGROUP_NAME_MAX];
        int r;

        if (!mounts[t])
            continue;
        cgroup_root_name(t, where->root_id, root);
        at.root_id = root;
        at.v2 = v2 && t == CGROUP_UNIFIED;
        r = cgroup_make_tree(mounts[t], &at, &c->root[t], &c->dir[t]);
        if (r == -EACCES || r == -EPERM || r == -EROFS || r == -ENOENT)
            continue; /* not writable: the limits are reported as unenforced */
        if (r < 0)
            return err_sys(err, -r, "open cgroup folder '%s/%s/%s/%s'", mounts[t], at.parent,
                           at.root_id, at.sandbox_id);
        if (at.make && !v2 && t != CGROUP_UNIFIED)
            c->tasks[t] = openat(c->dir[t], "tasks", O_WRONLY | O_CLOEXEC);
        c->ops = v2 ? &cgroup_v2_ops : &cgroup_v1_ops;
    }
    return 0;
}

static int cgroup_open_as(struct cgroup *c, const struct cgroup_names *at, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    char *mounts[CGROUP_TREES] = {NULL};
    int r;

    cgroup_reset(c);
    snprintf(c->id, sizeof(c->id), "%s", at->sandbox_id);
    r = cgroup_find_mounts(&text, mounts, err);
    if (r < 0)
        return r;
    r = cgroup_open_all(c, at, mounts, err);
    if (r < 0)
        cgroup_close(c);
    return r;
}

int cgroup_open(struct cgroup *c, const char *parent, const char *root_id, const char *sandbox_id,
                struct err *err)
{
    struct cgroup_names at = {parent, root_id, sandbox_id, false, true};

    if (parent)
        return cgroup_open_as(c, &at, err);
    cgroup_reset(c);
    return 0;
}

void cgroup_close(struct cgroup *c)
{
    for (int t = 0; t < CGROUP_TREES; t++) {
        fd_close(c->root[t]);
        fd_close(c->dir[t]);
        fd_close(c->tasks[t]);
    }
    cgroup_reset(c);
}

/* ---- groups ---- */

/* The folders one level below `dir`; NULL if there are none to list. */
static DIR *cgroup_list_groups(int dir)
{
    int fd = dir < 0 ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? NULL : fdopendir(fd);
}

static struct dirent *cgroup_next_group(DIR *d)
{
    struct dirent *de;

    while (d && (de = readdir(d)))
        if (de->d_type == DT_DIR && de->d_name[0] != '.')
            return de;
    return NULL;
}

static int cgroup_group_make(struct cgroup *c, bool counted, struct cgroup_group *g,
                             struct err *err)
{
    for (int t = 0; t < CGROUP_TREES; t++) {
        if (c->dir[t] < 0 || !cgroup_has_groups(t) || (t != CGROUP_UNIFIED && !counted))
            continue;
        g->dir[t] = cgroup_make_dir_at(c->dir[t], g->name, false);
        if (g->dir[t] < 0) {
            int r = -g->dir[t];

            g->dir[t] = -1;
            return err_sys(err, r, "make cgroup '%s' in %s", g->name, tree_names[t]);
        }
        if (t != CGROUP_UNIFIED)
            g->tasks[t] = openat(g->dir[t], "tasks", O_WRONLY | O_CLOEXEC);
    }
    return c->ops->limit_group ? c->ops->limit_group(c, g, err) : 0;
}

int cgroup_group_open(struct cgroup *c, const char *name, bool counted, struct cgroup_group *ret,
                      struct err *err)
{
    struct cgroup_group g = CGROUP_GROUP_INIT;
    int r;

    snprintf(g.name, sizeof(g.name), "%s", name);
    r = cgroup_group_make(c, counted, &g, err);
    if (r < 0) {
        cgroup_group_done(&g);
        cgroup_group_remove(c, name);
        return r;
    }
    *ret = g;
    return 0;
}

int cgroup_group_open_init(struct cgroup *c, struct cgroup_group *ret, struct err *err)
{
    struct cgroup_group g = CGROUP_GROUP_INIT;

    if (c->dir[CGROUP_INIT] < 0)
        return cgroup_group_open(c, "init", false, ret, err);
    g.dir[CGROUP_UNIFIED] = fcntl(c->dir[CGROUP_INIT], F_DUPFD_CLOEXEC, 3);
    if (g.dir[CGROUP_UNIFIED] < 0)
        return err_sys(err, errno, "duplicate a descriptor");
    *ret = g;
    return 0;
}

void cgroup_group_done(struct cgroup_group *g)
{
    for (int t = 0; t < CGROUP_TREES; t++) {
        g->dir[t] = fd_close(g->dir[t]);
        g->tasks[t] = fd_close(g->tasks[t]);
    }
}

int cgroup_group_clone_fd(const struct cgroup_group *g)
{
    return g->dir[CGROUP_UNIFIED];
}

int cgroup_group_enter(const struct cgroup *c, const struct cgroup_group *g)
{
    for (int t = 0; t < CGROUP_TREES; t++) {
        int fd = g->tasks[t] >= 0 ? g->tasks[t] : c->tasks[t];

        if (fd >= 0 && write(fd, "0", 1) < 0)
            return -errno;
    }
    return 0;
}

/* ---- refused processes ---- */

static int cgroup_pids_dir(const struct cgroup *c)
{
    return c->dir[CGROUP_PIDS] >= 0 ? c->dir[CGROUP_PIDS] : c->dir[CGROUP_UNIFIED];
}

static uint64_t cgroup_pids_denied_in(int dir)
{
    return cgroup_read_key(dir, "pids.events", "max");
}

/* On v2, Linux before 6.11 counts in the groups, and newer kernels at the limit. */
uint64_t cgroup_pids_denied(const struct cgroup *c)
{
    uint64_t sum = cgroup_pids_denied_in(cgroup_pids_dir(c));
    _cleanup_closedir_ DIR *d = NULL;
    struct dirent *de;

    if (c->dir[CGROUP_PIDS] >= 0)
        return sum;
    d = cgroup_list_groups(c->dir[CGROUP_UNIFIED]);
    while ((de = cgroup_next_group(d))) {
        _cleanup_close_ int dir = cgroup_open_dir_at(c->dir[CGROUP_UNIFIED], de->d_name);

        sum += cgroup_pids_denied_in(dir);
    }
    return sum;
}

void cgroup_pids_look(const struct cgroup *c, const struct cgroup_group *g, struct cgroup_pids *ret)
{
    int dir = cgroup_pids_dir(c), group = g->dir[CGROUP_UNIFIED];
    uint64_t all = cgroup_read_u64(dir, "pids.current");
    uint64_t own = cgroup_read_u64(group, "pids.current");

    *ret = (struct cgroup_pids){
        .denied = cgroup_pids_denied_in(dir),
        .denied_inside = cgroup_pids_denied_in(group),
        .others = all > own ? all - own : 0,
    };
}

uint64_t cgroup_pids_denied_since(const struct cgroup *c, const struct cgroup_group *g,
                                  const struct cgroup_pids *before, bool alone)
{
    struct cgroup_pids now;
    uint64_t limit, peak;

    cgroup_pids_look(c, g, &now);
    if (now.denied_inside > before->denied_inside)
        return now.denied_inside - before->denied_inside;
    if (now.denied <= before->denied)
        return 0;
    if (!alone) {
        if (!cgroup_find(cgroup_pids_dir(c), "pids.max", NULL, &limit) ||
            !cgroup_find(g->dir[CGROUP_UNIFIED], "pids.peak", NULL, &peak) ||
            peak + MIN(before->others, now.others) <= limit)
            return 0;
    }
    return now.denied - before->denied;
}

/* Sends SIGKILL to every listed process; false: the list is empty. */
static bool cgroup_kill_listed(int dir)
{
    _cleanup_free_ char *text = NULL;
    char *p, *line;
    bool any = false;

    if (dir < 0 || file_read(dir, "cgroup.procs", MOUNTS_MAX, &text, NULL, NULL) < 0)
        return false;
    p = text;
    while ((line = strsep(&p, "\n"))) {
        long pid = strtol(line, NULL, 10);

        if (pid > 1)
            any |= kill((pid_t)pid, SIGKILL) == 0;
    }
    return any;
}

int cgroup_await_frozen(struct cgroup *c, bool on, struct err *err)
{
    int r = c->dir[CGROUP_UNIFIED] < 0 ? 0 : cgroup_await_events(c->dir[CGROUP_UNIFIED], on);

    if (r == -ETIMEDOUT)
        return err_set(err, ERR_TIMEOUT, "processes of the sandbox do not %s",
                       on ? "freeze" : "thaw");
    return r < 0 ? err_sys(err, -r, "read the state of the sandbox's cgroup") : 0;
}

/* Without cgroup.kill: frozen processes cannot fork away between the listing and the signal. */
static void cgroup_kill_frozen(struct cgroup *c, int dir)
{
    c->ops->freeze(c, true, NULL);
    for (int i = 0; i < KILL_ROUNDS && cgroup_kill_listed(dir); i++) {
        c->ops->freeze(c, false, NULL);
        usleep(1000);
        c->ops->freeze(c, true, NULL);
    }
    c->ops->freeze(c, false, NULL);
}

bool cgroup_group_kill(struct cgroup *c, const struct cgroup_group *g)
{
    if (cgroup_write(g->dir[CGROUP_UNIFIED], "cgroup.kill", "1") >= 0)
        return true;
    if (g->dir[CGROUP_MEMORY] < 0)
        return false;
    cgroup_kill_frozen(c, g->dir[CGROUP_MEMORY]);
    return true;
}

bool cgroup_group_populated(const struct cgroup_group *g)
{
    _cleanup_free_ char *text = NULL;
    size_t len = 0;

    if (g->dir[CGROUP_UNIFIED] >= 0)
        return cgroup_read_key(g->dir[CGROUP_UNIFIED], "cgroup.events", "populated") != 0;
    if (g->dir[CGROUP_MEMORY] < 0 ||
        file_read(g->dir[CGROUP_MEMORY], "cgroup.procs", MOUNTS_MAX, &text, &len, NULL) < 0)
        return false;
    return len > 0;
}

bool cgroup_group_remove(struct cgroup *c, const char *name)
{
    bool gone = true;

    for (int t = 0; t < CGROUP_TREES; t++)
        if (c->dir[t] >= 0 && cgroup_has_groups(t) && unlinkat(c->dir[t], name, AT_REMOVEDIR) < 0 &&
            errno != ENOENT)
            gone = false;
    return gone;
}

/* ---- removal ---- */

/* There are no deeper ones: a sandbox cannot make cgroups. */
static void cgroup_remove_groups(int dir)
{
    _cleanup_closedir_ DIR *d = cgroup_list_groups(dir);
    struct dirent *de;

    while ((de = cgroup_next_group(d)))
        unlinkat(dir, de->d_name, AT_REMOVEDIR);
}

static int cgroup_remove_tree(struct cgroup *c, int t)
{
    if (unlinkat(c->root[t], c->id, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    cgroup_remove_groups(c->dir[t]);
    if (unlinkat(c->root[t], c->id, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    return -errno;
}

int cgroup_remove(struct cgroup *c, uint64_t wait_usec, struct err *err)
{
    struct deadline by = deadline_in(wait_usec);

    for (int t = 0; t < CGROUP_TREES; t++) {
        int r;

        if (c->dir[t] < 0)
            continue;
        while ((r = cgroup_remove_tree(c, t)) == -EBUSY && !deadline_passed(&by))
            usleep(500);
        if (r < 0)
            return err_sys(err, -r, "remove cgroup '%s' in %s", c->id, tree_names[t]);
    }
    return 0;
}

void cgroup_kill_groups(struct cgroup *c, const char *prefix)
{
    int tree = c->dir[CGROUP_UNIFIED] >= 0 ? CGROUP_UNIFIED : CGROUP_MEMORY;
    _cleanup_closedir_ DIR *d = cgroup_list_groups(c->dir[tree]);
    struct dirent *de;

    while ((de = cgroup_next_group(d))) {
        _cleanup_close_ int group = -1;

        if (strncmp(de->d_name, prefix, strlen(prefix)) != 0)
            continue;
        group = cgroup_open_dir_at(c->dir[tree], de->d_name);
        if (group >= 0 && cgroup_write(group, "cgroup.kill", "1") < 0)
            cgroup_kill_frozen(c, group);
    }
}

int cgroup_sweep(const char *parent, const char *root_id, const char *sandbox_id, struct err *err)
{
    struct cgroup_names at = {parent, root_id, sandbox_id, false, false};
    struct cgroup c;
    int r;

    r = cgroup_open_as(&c, &at, err);
    if (r < 0)
        return r;
    c.ops->freeze(&c, false, NULL); /* a frozen process does not die in a v1 freezer */
    if (cgroup_write(c.dir[CGROUP_UNIFIED], "cgroup.kill", "1") < 0)
        cgroup_kill_groups(&c, "");
    cgroup_write(c.dir[CGROUP_INIT], "cgroup.kill", "1");
    r = cgroup_remove(&c, 2 * USEC_PER_SEC, err);
    cgroup_close(&c);
    return r;
}

static bool cgroup_is_empty(int dir)
{
    uint64_t populated;

    return cgroup_find(dir, "cgroup.events", "populated", &populated) && populated == 0;
}

bool cgroup_is_rest(const char *parent, const char *root_id, const char *sandbox_id)
{
    struct cgroup_names at = {parent, root_id, sandbox_id, false, false};
    struct cgroup c;
    bool rest;

    if (cgroup_open_as(&c, &at, NULL) < 0)
        return false;
    rest = cgroup_is_empty(c.dir[CGROUP_UNIFIED]) &&
           (c.dir[CGROUP_INIT] < 0 || cgroup_is_empty(c.dir[CGROUP_INIT]));
    cgroup_close(&c);
    return rest;
}

static int cgroup_open_root(const char *mount, const char *parent, const char *root_id,
                            int *ret_parent)
{
    int base, dir, root;

    base = cgroup_open_dir_at(AT_FDCWD, mount);
    if (base < 0)
        return base;
    dir = cgroup_open_dir_at(base, parent);
    fd_close(base);
    if (dir < 0)
        return dir;
    root = cgroup_open_dir_at(dir, root_id);
    if (root < 0)
        fd_close(dir);
    else
        *ret_parent = dir;
    return root;
}

int cgroup_list(const char *parent, const char *root_id, char ***ret, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    char *mounts[CGROUP_TREES] = {NULL}, **ids = NULL;
    int r;

    r = cgroup_find_mounts(&text, mounts, err);
    if (r < 0)
        return r;
    for (int t = 0; t < CGROUP_TREES; t++) {
        _cleanup_close_ int up = -1;
        _cleanup_closedir_ DIR *d = NULL;
        char root[CGROUP_NAME_MAX];
        struct dirent *de;
        int fd;

        cgroup_root_name(t, root_id, root);
        fd = mounts[t] ? cgroup_open_root(mounts[t], parent, root, &up) : -1;
        d = fd < 0 ? NULL : fdopendir(fd);
        while (d && (de = readdir(d)))
            if (de->d_type == DT_DIR && de->d_name[0] != '.' && !strv_contains(ids, de->d_name))
                strv_add(&ids, de->d_name);
    }
    *ret = ids;
    return 0;
}

bool cgroup_parent_exists(const char *parent)
{
    _cleanup_free_ char *text = NULL;
    char *mounts[CGROUP_TREES] = {NULL};
    bool found = false;

    if (cgroup_find_mounts(&text, mounts, NULL) < 0)
        return true; /* not known: it does no harm to look there */
    for (int t = 0; t < CGROUP_TREES && !found; t++) {
        _cleanup_close_ int base = mounts[t] ? cgroup_open_dir_at(AT_FDCWD, mounts[t]) : -1;
        _cleanup_close_ int dir = base < 0 ? -1 : cgroup_open_dir_at(base, parent);

        found = dir >= 0;
    }
    return found;
}

void cgroup_remove_root(const char *parent, const char *root_id)
{
    _cleanup_free_ char *text = NULL;
    char *mounts[CGROUP_TREES] = {NULL};

    if (cgroup_find_mounts(&text, mounts, NULL) < 0)
        return;
    for (int t = 0; t < CGROUP_TREES; t++) {
        char path[PATH_MAX], root[CGROUP_NAME_MAX];

        if (!mounts[t])
            continue;
        /* rmdir() refuses folders that are not empty, so no other check is needed. */
        cgroup_root_name(t, root_id, root);
        snprintf(path, sizeof(path), "%s/%s/%s", mounts[t], parent, root);
        rmdir(path);
        snprintf(path, sizeof(path), "%s/%s", mounts[t], parent);
        rmdir(path);
    }
}

/* Finds PATH in the line "N:…memory…:PATH" of /proc/<pid>/cgroup; NULL: memory is not in v1. */
static char *cgroup_v1_memory_path(char *text)
{
    for (char *p = text, *line; (line = strsep(&p, "\n"));) {
        char *controllers;

        strsep(&line, ":");
        controllers = line ? strsep(&line, ":") : NULL;
        if (line && cgroup_option_listed(controllers, tree_names[CGROUP_MEMORY]))
            return line;
    }
    return NULL;
}

/* Opens the v1 memory group of a process. 0: memory is not in v1; 1: *ret_dir is the folder. */
static int cgroup_open_v1_memory(int pid, int *ret_dir, struct err *err)
{
    _cleanup_free_ char *mounted = NULL, *groups = NULL;
    char *mounts[CGROUP_TREES] = {NULL}, path[PATH_MAX];
    const char *group;
    int r;

    snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
    r = file_read(AT_FDCWD, path, MOUNTS_MAX, &groups, NULL, err);
    if (r < 0)
        return r;
    r = cgroup_find_mounts(&mounted, mounts, err);
    if (r < 0)
        return r;
    group = cgroup_v1_memory_path(groups);
    if (!group || !mounts[CGROUP_MEMORY])
        return 0;
    snprintf(path, sizeof(path), "%s%s", mounts[CGROUP_MEMORY], group);
    r = cgroup_open_dir_at(AT_FDCWD, path);
    if (r < 0)
        return err_sys(err, -r, "open cgroup '%s'", path);
    *ret_dir = r;
    return 1;
}

int cgroup_limit_sockets(int pid, uint64_t memory, struct err *err)
{
    _cleanup_close_ int dir = -1;
    int r = cgroup_open_v1_memory(pid, &dir, err);

    if (r <= 0)
        return r;
    r = cgroup_v1_limit_sockets(dir, memory);
    return r < 0 ? err_sys(err, -r, "limit the memory of sockets of process %d", pid) : 0;
}

uint64_t cgroup_sockets_of(int pid)
{
    _cleanup_close_ int dir = -1;

    return cgroup_open_v1_memory(pid, &dir, NULL) > 0
               ? cgroup_read_u64(dir, "memory.kmem.tcp.usage_in_bytes")
               : 0;
}

char *cgroup_unified_mount(uint32_t *ret_v1_missing)
{
    _cleanup_free_ char *text = NULL;
    char *mounts[CGROUP_TREES] = {NULL};

    *ret_v1_missing = LIMIT_MEMORY | LIMIT_CPUS | LIMIT_PIDS;
    if (cgroup_find_mounts(&text, mounts, NULL) < 0)
        return NULL;
    if (!cgroup_is_v1(mounts))
        return mounts[CGROUP_UNIFIED] ? xstrdup(mounts[CGROUP_UNIFIED]) : NULL;
    for (int i = 0; i < 3; i++)
        if (mounts[CGROUP_MEMORY + i] && access(mounts[CGROUP_MEMORY + i], W_OK) == 0)
            *ret_v1_missing &= ~(1U << i);
    return NULL;
}
