#include "daemon/main/service.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/engine/native/program.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/os/cgroup-place.h"
#include "lib/os/pidfd.h"
#include "proto/service.h"

#define SERVICE_TIMEOUT (10 * USEC_PER_SEC)
#define SERVICE_POLL_USEC 10000

enum { SERVICE_CGROUP_MAX = 64 << 10 };

/* ---- our own cgroup ---- */

/* Whether one of our cgroups has `name` as a part of its path. */
static bool service_is_below(const char *name)
{
    _cleanup_free_ char *text = NULL, *part = xasprintf("/%s", name);
    size_t len = strlen(part);

    if (file_read(AT_FDCWD, "/proc/self/cgroup", SERVICE_CGROUP_MAX, &text, NULL, NULL) < 0)
        return false;
    for (const char *p = text; (p = strstr(p, part)); p += len)
        if (p[len] == '/' || p[len] == '\n' || !p[len])
            return true;
    return false;
}

bool service_is_unit(void)
{
    return service_is_below(SERVICE_UNIT);
}

/* The unit of a user's service manager that this process is in: "a.scope". NULL: none. */
static char *service_find_user_unit(void)
{
    _cleanup_free_ char *text = NULL, *manager = xasprintf("/user@%u.service/", geteuid());
    char *p, *unit = NULL;

    if (file_read(AT_FDCWD, "/proc/self/cgroup", SERVICE_CGROUP_MAX, &text, NULL, NULL) < 0)
        return NULL;
    p = strstr(text, manager);
    if (!p)
        return NULL;
    p += strlen(manager);
    p[strcspn(p, "\n")] = '\0';
    for (char *part; (part = strsep(&p, "/"));) {
        const char *kind = strrchr(part, '.');

        unit = part;
        if (kind && !STREQ(kind, ".slice"))
            break;
    }
    return unit ? xstrdup(unit) : NULL;
}

/* ---- a scope of our own ---- */

static int service_ask_user_manager(const char *const *argv, char **ret, struct err *err)
{
    const struct deadline by = deadline_in(SERVICE_TIMEOUT);

    return program_run(argv, NULL, &by, ret, err);
}

static bool service_unit_delegates(const char *runtime, const char *unit)
{
    _cleanup_free_ char *variable = xasprintf("XDG_RUNTIME_DIR=%s", runtime), *answer = NULL;
    const char *const argv[] = {"env",        variable,   "systemctl", "--user", "show",
                                "--property", "Delegate", "--value",   unit,     NULL};

    return service_ask_user_manager(argv, &answer, NULL) >= 0 && strncmp(answer, "yes", 3) == 0;
}

/* What makes cgroups possible here already: a unit with Delegate=yes, or a cgroup that somebody
 * else than systemd has given to this user. */
static bool service_has_place(const char *runtime)
{
    _cleanup_free_ char *unit = service_find_user_unit();
    struct cgroup_place place;
    bool has;

    cgroup_place_find(&place);
    has = place.parent && (!unit || service_unit_delegates(runtime, unit));
    cgroup_place_done(&place);
    return has;
}

static int service_make_scope(const char *runtime, const char *scope, struct err *err)
{
    _cleanup_free_ char *address = xasprintf("--address=unix:path=%s/bus", runtime);
    _cleanup_free_ char *pid = xasprintf("%d", (int)getpid());
    /* clang-format off */
    const char *const argv[] = {
        "busctl", address, "--quiet", "call", "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "StartTransientUnit",
        "ssa(sv)a(sa(sv))", scope, "fail",
        "4", "Description", "s", "ripcord: sandboxes for AI agents",
             "PIDs", "au", "1", pid,
             "Delegate", "b", "true",
             "CollectMode", "s", "inactive-or-failed",
        "0", NULL};
    /* clang-format on */

    return service_ask_user_manager(argv, NULL, err);
}

static bool service_await_scope(const char *scope)
{
    const struct deadline by = deadline_in(SERVICE_TIMEOUT);

    while (!service_is_below(scope)) {
        if (deadline_passed(&by))
            return false;
        usleep(SERVICE_POLL_USEC);
    }
    return true;
}

void service_enter_scope(void)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    _cleanup_free_ char *scope = xasprintf("ripcord-%d.scope", (int)getpid()), *bus = NULL;
    _cleanup_err_ struct err err = ERR_INIT;

    if (geteuid() == 0 || !runtime || runtime[0] != '/' || access("/run/systemd/system", F_OK) < 0)
        return;
    bus = xasprintf("%s/bus", runtime);
    if (access(bus, W_OK) < 0 || service_has_place(runtime))
        return;
    if (service_make_scope(runtime, scope, &err) < 0)
        log_info("no scope of the user's service manager, so sandboxes have no limits: %s",
                 err.msg);
    else if (!service_await_scope(scope))
        log_warn("'%s' was made, but this process is not in it", scope);
}

/* ---- the unit ---- */

/* The daemon that listens, and must be ours: the folder belongs to our user alone. */
static int service_open_other(int run_dirfd, int *ret_pidfd)
{
    _cleanup_close_ int sock = -1;
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (unix_connect(run_dirfd, SERVICE_SOCKET, SOCK_STREAM, &sock, NULL) < 0 ||
        getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 1)
        return -ERR_NOT_FOUND;
    return pidfd_open_pid(peer.pid, ret_pidfd, NULL);
}

void service_take_over(int run_dirfd, const char *run_dir)
{
    struct deadline by = deadline_in(SERVICE_TIMEOUT);
    _cleanup_close_ int other = -1;
    struct pollfd p = {.events = POLLIN};

    if (!service_is_unit() || service_open_other(run_dirfd, &other) < 0)
        return;
    log_info("'%s': a daemon that was started on demand ends; its sandboxes keep running", run_dir);
    pidfd_signal(other, SIGTERM);
    p.fd = other;
    while (poll(&p, 1, deadline_ms(&by)) < 0 && errno == EINTR)
        ;
}

void service_note_stopped(int run_dirfd, bool stopped)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (!service_is_unit())
        return;
    if (!stopped)
        unlinkat(run_dirfd, SERVICE_STOPPED, 0);
    else if (file_replace(run_dirfd, SERVICE_STOPPED, "", 0, 0600, false, &err) < 0)
        log_warn("%s; the next command starts the daemon again", err.msg);
}
