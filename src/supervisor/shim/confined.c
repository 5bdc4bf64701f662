#include "supervisor/shim/confined.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/caps.h"
#include "lib/os/landlock.h"
#include "lib/os/pidfd.h"
#include "lib/os/seccomp-filter.h"
#include "lib/os/user.h"
#include "supervisor/shim/reaper.h"
#include "supervisor/shim/shim.h"

#define CONFINED_LOCK "alive"
#define CONFINED_USER "agent"
#define CONFINED_HOME_NAME "/home/agent"
#define CHILDREN_EVERY (20 * USEC_PER_MSEC)

void confined_free(struct confined_sandbox *c)
{
    if (!c)
        return;
    fd_close(c->rules);
    fd_close(c->alive);
    free(c->home);
    strv_free(c->writable);
    free(c);
}

/* ---- names and the user ---- */

char *confined_path(const struct shim *s, const char *path)
{
    size_t n = strlen(CONFINED_HOME_NAME);

    if (strncmp(path, CONFINED_HOME_NAME, n) == 0 && (path[n] == '/' || !path[n]))
        return xasprintf("%s%s", s->confined->home, path + n);
    return xstrdup(path);
}

int confined_user(const struct shim *s, const char *who, struct user *ret, struct err *err)
{
    *ret = (struct user){.uid = s->plan.own_id ? s->plan.own_id : geteuid(),
                         .gid = s->plan.own_id ? s->plan.own_id : getegid()};
    snprintf(ret->name, sizeof(ret->name), CONFINED_USER);
    snprintf(ret->home, sizeof(ret->home), "%s", s->confined->home);
    if (!who || STREQ(who, CONFINED_USER) || STREQ(who, s->plan.user))
        return 0;
    err_set(err, ERR_UNSUPPORTED, "user '%s' does not exist with isolation 'confined'", who);
    return err_hint(err, "Leave the user out: every command runs as '" CONFINED_USER "'.");
}

/* A process that may not drop capabilities from the bounding set has none that count: without new
 * privileges, no program adds any. */
int confined_become(const struct plan *plan, struct err *err)
{
    int r = caps_have(CAP_SETPCAP) ? caps_bound(CAPS_NONE, err) : 0;

    if (r < 0)
        return r;
    if (caps_have(CAP_SETGID) &&
        syscall(SYS_setgroups, plan->own_group ? 1 : 0, &plan->own_group) < 0)
        return err_sys(err, errno, "set the supplementary groups");
    if (plan->own_id && (syscall(SYS_setresgid, plan->own_id, plan->own_id, plan->own_id) < 0 ||
                         syscall(SYS_setresuid, plan->own_id, plan->own_id, plan->own_id) < 0))
        return err_sys(err, errno, "become user %u", plan->own_id);
    r = caps_set(CAPS_NONE, err);
    if (r < 0)
        return r;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, errno, "forbid new privileges");
    return 0;
}

int confined_enter(const struct shim *s, struct err *err)
{
    return GUARD("landlock") ? landlock_rules_enter(s->confined->rules, err) : 0;
}

/* ---- what it may reach ---- */

static const char *const confined_devices[] = {"/dev/null",    "/dev/zero",   "/dev/full",
                                               "/dev/urandom", "/dev/random", "/dev/tty"};

/* With a user id of its own, the modes of terminals and shared memory keep others away. */
static const struct {
    const char *path;
    enum landlock_kind kind;
} confined_own_devices[] = {
    {"/dev/ptmx", LANDLOCK_DEVICE},
    {"/dev/pts", LANDLOCK_DEVICE},
    {"/dev/shm", LANDLOCK_OWN_FILES},
};

static int confined_allow_devices(const struct shim *s, struct err *err)
{
    int rules = s->confined->rules, r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(confined_devices) && r >= 0; i++)
        r = landlock_rules_add(rules, confined_devices[i], LANDLOCK_DEVICE, err);
    for (size_t i = 0; s->plan.own_id && i < ARRAY_SIZE(confined_own_devices) && r >= 0; i++)
        r = landlock_rules_add(rules, confined_own_devices[i].path, confined_own_devices[i].kind,
                               err);
    return r;
}

/* Takes a folder that the sandbox may write to, with the path that the kernel shows for it. */
static int confined_allow_folder(struct shim *s, int fd, struct err *err)
{
    char link[32], real[PATH_MAX];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, real, sizeof(real) - 1);
    if (n < 0 || real[0] != '/')
        return err_sys(err, n < 0 ? errno : ENOENT, "read the path of a folder");
    real[n] = '\0';
    strv_add(&s->confined->writable, real);
    return landlock_rules_add_fd(s->confined->rules, fd, LANDLOCK_WRITE, err);
}

static int confined_allow_own(struct shim *s, struct err *err)
{
    static const char *const names[] = {PLAN_CONFINED_HOME, PLAN_CONFINED_TMP, PLAN_CONFINED_CACHE};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", s->plan.data_dir, names[i]);
        _cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int r;

        if (fd < 0)
            return err_sys(err, errno, "open '%s'", path);
        r = confined_allow_folder(s, fd, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int confined_allow_mount(struct shim *s, const struct plan_mount *m, struct err *err)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    _cleanup_close_ int fd = (int)syscall(SYS_openat2, AT_FDCWD, m->source, &how, sizeof(how));
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno, "open mount source '%s'", m->source);
    if (m->ino && (m->dev != st.st_dev || m->ino != st.st_ino))
        return err_set(err, ERR_DENIED, "mount source '%s' was replaced since it was checked",
                       m->source);
    if (m->read_only)
        return landlock_rules_add_fd(s->confined->rules, fd, LANDLOCK_READ, err);
    return confined_allow_folder(s, fd, err);
}

static int confined_allow_ports(const struct shim *s, struct err *err)
{
    const struct plan *p = &s->plan;
    int r = 0;

    for (size_t i = 0; i < p->n_ports; i++)
        for (unsigned port = p->ports[i].first; port <= p->ports[i].last && r >= 0; port++)
            r = landlock_rules_add_port(s->confined->rules, (uint16_t)port, true, err);
    if (r >= 0 && p->n_ports)
        r = landlock_rules_add_port(s->confined->rules, 0, true, err);
    if (r >= 0 && p->packages_port)
        r = landlock_rules_add_port(s->confined->rules, (uint16_t)p->packages_port, false, err);
    return r;
}

static int confined_make_rules(struct shim *s, struct err *err)
{
    const struct plan *p = &s->plan;
    _cleanup_free_ char *bin = xasprintf("%s/" PLAN_CONFINED_BIN, p->data_dir);
    int r = landlock_rules_open(&s->confined->rules, err);

    if (r < 0)
        return r;
    for (char **path = p->readable; path && *path && r >= 0; path++)
        r = landlock_rules_add(s->confined->rules, *path, LANDLOCK_READ, err);
    if (r >= 0)
        r = landlock_rules_add(s->confined->rules, bin, LANDLOCK_READ, err);
    if (r >= 0)
        r = confined_allow_devices(s, err);
    if (r >= 0)
        r = confined_allow_own(s, err);
    for (size_t i = 0; i < p->n_mounts && r >= 0; i++)
        r = confined_allow_mount(s, &p->mounts[i], err);
    return r < 0 ? r : confined_allow_ports(s, err);
}

/* ---- the start ---- */

/* Limits need cgroups. Requested ones were refused before; the others are reported. */
static uint32_t confined_unenforced(const struct plan *p)
{
    return (p->memory ? LIMIT_MEMORY : 0) | (p->cpu_milli ? LIMIT_CPUS : 0) |
           (p->pids ? LIMIT_PIDS : 0);
}

static int confined_check_limits(const struct shim *s, struct err *err)
{
    if (!(s->sup.unenforced & s->plan.required))
        return 0;
    err_set(err, ERR_UNSUPPORTED, "isolation 'confined' cannot enforce the requested limits");
    return err_hint(err, "Leave --memory, --cpus and --pids out.");
}

static int confined_lock(struct shim *s, struct err *err)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    s->confined->alive =
        openat(s->sup.run_dirfd, CONFINED_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->confined->alive < 0 || fcntl(s->confined->alive, F_OFD_SETLK, &lock) < 0)
        return err_sys(err, errno, "lock '%s' of the sandbox", CONFINED_LOCK);
    return 0;
}

static int confined_build(struct shim *s, struct err *err)
{
    int r = seccomp_filter_possible(err);

    if (r < 0)
        return r;
    s->sup.unenforced = confined_unenforced(&s->plan);
    r = confined_check_limits(s, err);
    if (r < 0)
        return r;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return err_sys(err, errno, "become a subreaper");
    /* Nobody needs their wait status, and those that lost their parent come without notice. */
    signal(SIGCHLD, SIG_IGN);
    r = confined_lock(s, err);
    return r < 0 ? r : confined_make_rules(s, err);
}

int confined_start(struct shim *s, struct err *err)
{
    s->confined = xnew0(struct confined_sandbox);
    s->confined->rules = s->confined->alive = -1;
    s->confined->home = xasprintf("%s/" PLAN_CONFINED_HOME, s->plan.data_dir);
    cgroup_close(&s->cgroup); /* has none */
    if (confined_build(s, err) < 0) {
        confined_free(TAKE_PTR(s->confined));
        return -(int)err->code;
    }
    s->sup.state = SUP_RUNNING;
    s->sup.pid = getpid();
    return 0;
}

/* ---- the end ---- */

void confined_shut_down(struct shim *s)
{
    jobs_end(s);
    reapers_kill(s);
    s->confined->children_at = time_mono();
}

/* Reads the parent of a process; 0 if it has gone. */
static int confined_parent_of(int proc, const char *pid)
{
    _cleanup_free_ char *text = NULL;
    char path[NAME_MAX + 8];
    const char *name_end;
    int parent = 0;

    snprintf(path, sizeof(path), "%s/stat", pid);
    if (file_read(proc, path, 4096, &text, NULL, NULL) < 0)
        return 0;
    name_end = strrchr(text, ')'); /* "pid (name) state parent …", and the name may hold anything */
    if (!name_end || sscanf(name_end, ") %*c %d", &parent) != 1)
        return 0;
    return parent;
}

/* Children that no reaper looks after, because it was killed from outside. The parent is read after
 * the pidfd was opened: if the pid is used again in between, the signal goes to the dead process.
 */
static void confined_kill_children(void)
{
    _cleanup_closedir_ DIR *proc = opendir("/proc");
    const struct dirent *e;

    while (proc && (e = readdir(proc))) {
        int pid = (int)strtol(e->d_name, NULL, 10);
        _cleanup_close_ int pidfd = -1;

        if (pid > 1 && pidfd_open_pid(pid, &pidfd, NULL) >= 0 &&
            confined_parent_of(dirfd(proc), e->d_name) == getpid())
            pidfd_signal(pidfd, SIGKILL);
    }
}

uint64_t confined_timer_at(const struct shim *s)
{
    return s->sup.shut && !s->sup.gone ? s->confined->children_at : DEADLINE_NEVER;
}

void confined_timer(struct shim *s, uint64_t now)
{
    siginfo_t si;
    bool left = waitid(P_ALL, 0, &si, WEXITED | WNOHANG | __WALL) == 0 || errno != ECHILD;

    s->confined->children_at = now + CHILDREN_EVERY;
    if (left && !reapers_live(s))
        confined_kill_children();
    s->sup.gone = !left && !s->confined->reapers;
}
