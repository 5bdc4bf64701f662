#include "daemon/engine/native/confined.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "daemon/engine/caches.h"
#include "daemon/engine/native/confined-home.h"
#include "daemon/engine/native/delete-queue.h"
#include "daemon/engine/native/host-image.h"
#include "daemon/engine/native/ids.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/native/probe.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/thread.h"
#include "lib/base/xalloc.h"
#include "lib/os/caps.h"
#include "lib/os/confined-probe.h"
#include "lib/os/listen.h"
#include "lib/os/ns.h"
#include "lib/os/pidfd.h"
#include "proto/plan.h"

enum {
    CONFINED_PORTS = 256,        /* of each sandbox */
    CONFINED_PORT_FIRST = 32768, /* the kernel's range for port 0, unless it was changed */
    CONFINED_PORT_LAST = 60999,
    CONFINED_PACKAGES_FIRST = 20000, /* below that range */
    CONFINED_PACKAGES_COUNT = 10000,
    CONFINED_PACKAGES_TRIES = 64,
};

/* ---- whether it is possible ---- */

static void *native_confined_probe(void *why)
{
    confined_probe(why);
    return NULL;
}

/* Ids that no person and no service has. A container often has only the first 65,536. */
static void native_confined_find_ids(struct native_engine *n)
{
    static const struct native_own_ids ranges[] = {
        {IDS_FIRST, (uint32_t)IDS_LEASES * IDS_COUNT},
        {20000, 40000},
    };
    const uint64_t wanted = UINT64_C(1) << CAP_SETUID | UINT64_C(1) << CAP_SETGID |
                            UINT64_C(1) << CAP_CHOWN | UINT64_C(1) << CAP_KILL |
                            UINT64_C(1) << CAP_FOWNER | UINT64_C(1) << CAP_DAC_OVERRIDE;

    for (size_t i = 0; i < ARRAY_SIZE(ranges) && !n->own_ids.count; i++)
        if (probe_can_become(wanted, ranges[i].first, ranges[i].count))
            n->own_ids = ranges[i];
}

/* In a thread, because what it tries cannot be undone. */
void native_confined_open(struct native_engine *n)
{
    struct err *why = &n->no_confined;
    pthread_t thread;
    int r = thread_start(&thread, native_confined_probe, why);

    if (r != 0)
        err_sys(why, r, "start a thread to try it");
    else
        pthread_join(thread, NULL);
    if (!why->code)
        native_confined_find_ids(n);
}

static int native_confined_refuse(const char *what, const char *hint, struct err *err)
{
    err_set(err, ERR_UNSUPPORTED, "isolation 'confined' does not support %s", what);
    return err_hint(err, "%s", hint);
}

static int native_confined_check_mounts(const struct sandbox_spec *spec, struct err *err)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct spec_mount *m = &spec->mounts[i];

        if (!STREQ(m->source, m->target)) {
            err_set(err, ERR_UNSUPPORTED,
                    "isolation 'confined' cannot show '%s' under another name ('%s')", m->source,
                    m->target);
            return err_hint(err, "Use the same path twice: --mount %s:%s.", m->source, m->source);
        }
        if (m->no_root_squash)
            return native_confined_refuse("'no_root_squash'",
                                          "Leave it out: no command runs as root.", err);
    }
    return 0;
}

int native_confined_check(const struct sandbox_spec *spec, struct err *err)
{
    if (spec->image && !STREQ(spec->image, engine_native_ops.default_image))
        return native_confined_refuse("images",
                                      "Leave the image out: commands run the programs of this "
                                      "machine.",
                                      err);
    if (spec->network == SPEC_NETWORK_OPEN)
        return native_confined_refuse("network 'open'", "Use network 'packages' or 'none'.", err);
    if (!STREQ(spec->user, "agent"))
        return native_confined_refuse("other users than 'agent'", "Leave the user out.", err);
    for (size_t i = 0; i < spec->n_caches; i++) {
        const struct cache_tool *t = NULL;

        if (spec->caches[i].mode != CACHE_OFF &&
            cache_tool_find(spec->caches[i].tool, &t, NULL) >= 0 && !cache_is_below_root(t))
            return native_confined_refuse("the cache of apt", "Leave it out.", err);
    }
    return native_confined_check_mounts(spec, err);
}

bool native_confined_is_choice(const struct native_engine *n, const struct sandbox_spec *spec)
{
    const uint32_t missing = LIMIT_MEMORY | LIMIT_CPUS | LIMIT_PIDS | LIMIT_DISK;

    return !n->no_confined.code && spec->isolation == SPEC_ISOLATION_SHARED &&
           !(spec->asked & missing) && native_confined_check(spec, NULL) >= 0;
}

/* ---- ports of its own ---- */

/* The range that the kernel chooses from for port 0; a block outside would be ignored. */
static void native_confined_port_range(unsigned *ret_first, unsigned *ret_last)
{
    _cleanup_free_ char *text = NULL;
    unsigned first, last;

    *ret_first = CONFINED_PORT_FIRST;
    *ret_last = CONFINED_PORT_LAST;
    if (file_read(AT_FDCWD, "/proc/sys/net/ipv4/ip_local_port_range", 64, &text, NULL, NULL) < 0 ||
        sscanf(text, "%u %u", &first, &last) != 2 || first < 1024 || last > UINT16_MAX ||
        first > last)
        return;
    *ret_first = first;
    *ret_last = last;
}

/*
 * A lease of a block is a socket with an abstract name that nobody listens on. The kernel keeps
 * such names per network namespace, as it does ports, and forgets the name when the last process
 * that holds the socket has ended.
 */
static int native_confined_lease_block(unsigned first)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int len = snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "ripcord-ports-%u", first);

    if (fd < 0 || bind(fd, (const struct sockaddr *)&at,
                       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) < 0)
        return -1;
    return TAKE_FD(fd);
}

static uint32_t native_confined_number(const char *id)
{
    return (uint32_t)strtoul(id + 8, NULL, 16); /* the lower half of 16 hex digits */
}

static void native_confined_add_ports(struct plan *p, unsigned first, unsigned last)
{
    p->ports = xreallocarray(p->ports, p->n_ports + 1, sizeof(*p->ports));
    p->ports[p->n_ports++] = (struct plan_ports){(uint16_t)first, (uint16_t)last};
}

/* The block comes first: the shim takes port 0 from it. */
static void native_confined_lease_ports(const char *id, struct plan *p,
                                        struct native_confined_fds *ret, char ***warnings)
{
    unsigned first, last, blocks, start;

    native_confined_port_range(&first, &last);
    blocks = (last - first + 1) / CONFINED_PORTS;
    start = blocks ? native_confined_number(id) % blocks : 0;
    for (unsigned i = 0; i < blocks && ret->lease < 0; i++) {
        unsigned from = first + (start + i) % blocks * CONFINED_PORTS;

        ret->lease = native_confined_lease_block(from);
        if (ret->lease >= 0)
            native_confined_add_ports(p, from, from + CONFINED_PORTS - 1);
    }
    if (ret->lease < 0)
        strv_push(warnings, xasprintf("all %u blocks of ports on the loopback interface are in use "
                                      "by other sandboxes: commands can only listen on --ports",
                                      blocks));
}

/* The sandbox could connect to a service that listens there. */
static int native_confined_check_port(unsigned port, struct err *err)
{
    int fd = -1;

    if (listen_inside((uint16_t)port, &fd, NULL) < 0) {
        err_set(err, ERR_CONFLICT, "port %u is in use on this machine", port);
        return err_hint(err, "Choose another port with --ports.");
    }
    fd_close(fd);
    return 0;
}

static int native_confined_take_ports(const struct sandbox_spec *spec, struct plan *p,
                                      struct err *err)
{
    for (size_t i = 0; i < spec->n_ports; i++) {
        int r = native_confined_check_port(spec->ports[i], err);

        if (r < 0)
            return r;
        native_confined_add_ports(p, spec->ports[i], spec->ports[i]);
    }
    return 0;
}

/*
 * The same port at each start if it is free, because lock files of npm name it. The socket belongs
 * to the user of the commands: ripcord-packages serves nobody else on it.
 */
static int native_confined_listen(const char *id, struct plan *p, struct native_confined_fds *ret,
                                  struct err *err)
{
    uint32_t wish = native_confined_number(id) % CONFINED_PACKAGES_COUNT;
    int r = -ERR_LIMIT;

    for (uint32_t i = 0; i < CONFINED_PACKAGES_TRIES && r < 0; i++) {
        p->packages_port = CONFINED_PACKAGES_FIRST + (wish + i) % CONFINED_PACKAGES_COUNT;
        err_done(err);
        r = listen_inside((uint16_t)p->packages_port, &ret->listener, err);
    }
    if (r < 0)
        return err_wrap(err, "listen for the package cache");
    if (p->own_id && fchown(ret->listener, p->own_id, p->own_id) < 0)
        return err_sys(err, errno, "set the owner of the package cache's socket");
    return 0;
}

/* ---- the plan ---- */

static const char *const native_confined_readable[] = {
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/sbin",
    "/usr",
    "/etc/group",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/resolv.conf",
    /* about the machine; nothing about processes */
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/fs/file-max",
    "/proc/sys/fs/nr_open",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/ostype",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/random",
    "/proc/sys/kernel/threads-max",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/overcommit_memory",
    "/proc/uptime",
    "/proc/version",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/transparent_hugepage",
};

static void native_confined_fill_readable(struct plan *p)
{
    for (size_t i = 0; i < ARRAY_SIZE(native_confined_readable); i++)
        strv_add(&p->readable, native_confined_readable[i]);
    host_image_list_etc("/", &p->readable);
}

static bool native_confined_has_cache(const void *arg, const struct cache_tool *t,
                                      enum spec_cache_mode mode)
{
    (void)arg;
    (void)mode;
    return cache_is_below_root(t);
}

static void native_confined_append(char **to, const char *text, size_t len, const char *more)
{
    char *joined = xasprintf("%s%.*s%s", *to, (int)len, text, more);

    free(*to);
    *to = joined;
}

/* `text` with each /cache/ replaced by the folder of the caches. */
static char *native_confined_with_caches(const char *text, const char *folder)
{
    char *ret = xstrdup("");

    for (const char *at; (at = strstr(text, CACHE_ROOT "/")); text = at + strlen(CACHE_ROOT))
        native_confined_append(&ret, text, (size_t)(at - text), folder);
    native_confined_append(&ret, text, strlen(text), "");
    return ret;
}

static char *native_confined_ports_text(const struct plan *p)
{
    _cleanup_strv_ char **ranges = NULL;

    for (size_t i = 0; i < p->n_ports; i++) {
        const struct plan_ports *r = &p->ports[i];

        strv_push(&ranges, r->first == r->last ? xasprintf("%u", r->first)
                                               : xasprintf("%u-%u", r->first, r->last));
    }
    return strv_join(ranges, ",");
}

/*
 * The variables of every sandbox, with the paths that the folders have here. Some programs take a
 * configuration file that they may not read for an error, and not for none: git and wget.
 */
static void native_confined_fill_env(const struct sandbox_spec *spec, struct plan *p)
{
    _cleanup_free_ char *home = xasprintf("%s/" PLAN_CONFINED_HOME, p->data_dir),
                        *tmp = xasprintf("%s/" PLAN_CONFINED_TMP, p->data_dir),
                        *cache = xasprintf("%s/" PLAN_CONFINED_CACHE, p->data_dir),
                        *ports = native_confined_ports_text(p),
                        *path = xasprintf("%s/" PLAN_CONFINED_BIN ":" SPEC_PATH, p->data_dir);
    _cleanup_strv_ char **more = packages_variables(spec, (uint16_t)p->packages_port),
                        **caches = NULL;

    cache_variables(spec, native_confined_has_cache, NULL, &caches);
    for (char **v = caches; v && *v; v++)
        strv_push(&more, native_confined_with_caches(*v, cache));
    strv_push(&more, xasprintf("TMPDIR=%s", tmp));
    strv_add(&more, "GIT_CONFIG_NOSYSTEM=1");
    strv_add(&more, "SYSTEM_WGETRC=/dev/null");
    strv_push(&more, xasprintf("RIPCORD_PORTS=%s", ports));
    p->env = spec_environment_at(home, path, spec->user, spec->env, more);
}

int native_confined_plan(struct native_engine *n, const struct sandbox_request *req, struct plan *p,
                         struct native_confined_fds *ret, char ***warnings, struct err *err)
{
    const struct sandbox_spec *spec = &req->spec;
    int r;

    p->confined = true;
    p->image = PLAN_IMAGE_HOST;
    p->lower_dir = xstrdup(n->lower);
    p->user = xstrdup(spec->user);
    p->workdir = xstrdup(spec->workdir);
    r = confined_home_begin(n, req->id, &p->own_id, err);
    if (r < 0)
        return r;
    p->own_group = p->own_id ? n->own_ids.first : 0;
    native_confined_lease_ports(req->id, p, ret, warnings);
    r = native_confined_take_ports(spec, p, err);
    if (r >= 0 && spec->network == SPEC_NETWORK_PACKAGES)
        r = native_confined_listen(req->id, p, ret, err);
    if (r < 0)
        return r;
    native_confined_fill_readable(p);
    native_confined_fill_env(spec, p);
    return 0;
}

/* ---- folders ---- */

int native_confined_make(struct native_engine *n, const struct sandbox_request *req, int dir,
                         struct err *err)
{
    if (!sandbox_spec_is_confined(&req->spec))
        return 0;
    return confined_home_make(n, req->id, dir, err);
}

/* ---- the end ---- */

static int native_confined_await_lock(int fd, const struct deadline *by, struct err *err)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    while (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
        if (errno != EAGAIN && errno != EACCES)
            return err_sys(err, errno, "wait for the processes of a sandbox");
        if (deadline_passed(by))
            return err_set(err, ERR_TIMEOUT, "processes of the sandbox did not end after SIGKILL");
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* Between clone and exec in a process with threads: only system calls. */
_noreturn_ static void native_confined_kill_as(uint32_t uid)
{
    if (syscall(SYS_setresgid, uid, uid, uid) < 0 || syscall(SYS_setresuid, uid, uid, uid) < 0 ||
        caps_set(CAPS_NONE, NULL) < 0)
        _exit(1);
    kill(-1, SIGKILL);
    _exit(0);
}

/*
 * What lives on when somebody has killed the shim and all reapers. As that user without
 * capabilities, kill(-1) reaches every process of the sandbox, and nobody else's.
 */
static int native_confined_kill_user(uint32_t uid, struct err *err)
{
    _cleanup_close_ int pidfd = -1;
    pid_t pid = ns_clone(0, -1, &pidfd);
    int status = 0;

    if (pid == 0)
        native_confined_kill_as(uid);
    if (pid < 0)
        return err_sys(err, -pid, "start a process that ends those of user %u", uid);
    if (pidfd_reap(pidfd, true, &status, NULL) < 0 || status != 0)
        log_warn("processes of user %u may live on: they could not be killed", uid);
    return 0;
}

static int native_confined_end_user(struct native_engine *n, const char *id, struct err *err)
{
    uint32_t uid = confined_home_owner(n, id);
    int r;

    if (!uid || confined_home_has_account(uid))
        return 0;
    r = native_confined_kill_user(uid, err);
    if (r >= 0)
        confined_home_sweep_shared_memory(uid);
    return r;
}

int native_confined_await(struct native_engine *n, const char *id, const struct deadline *by,
                          struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/alive", id);
    _cleanup_close_ int fd = openat(n->runs, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    int r;

    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "open the lock of sandbox '%s'", id);
    r = native_confined_await_lock(fd, by, err);
    return r < 0 ? r : native_confined_end_user(n, id, err);
}
