#include "daemon/main/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

#define LOCK_NAME "daemon.lock"

extern char **environ;

static char *notify_socket;

/*
 * Variables that the daemon or one of its libraries reads. All others are dropped: they may hold
 * secrets of the user that started the daemon, and children would inherit them.
 */
static const char *const env_kept[] = {"PATH",
                                       "HOME",
                                       "LANG",
                                       "LC_ALL",
                                       "TZ",
                                       "XDG_DATA_HOME",
                                       "XDG_RUNTIME_DIR",
                                       "XDG_CONFIG_HOME",
                                       "DOCKER_HOST",
                                       "DOCKER_TLS_VERIFY",
                                       "DOCKER_CERT_PATH",
                                       "CONTAINER_HOST",
                                       "RIPCORD_ROOT"};

static void daemon_process_clean_environment(void)
{
    _cleanup_strv_ char **old = strv_copy(environ);
    const char *notify = strv_env_get(old, "NOTIFY_SOCKET");

    notify_socket = notify ? xstrdup(notify) : NULL;
    clearenv();
    for (size_t i = 0; i < ARRAY_SIZE(env_kept); i++) {
        const char *v = strv_env_get(old, env_kept[i]);

        if (v)
            setenv(env_kept[i], v, 1);
    }
}

static int daemon_process_close_inherited(int keep, struct err *err)
{
    if (keep < 0)
        return close_range(3, ~0U, 0) < 0 ? err_sys(err, errno, "close inherited descriptors") : 0;
    if (fcntl(keep, F_SETFD, FD_CLOEXEC) < 0)
        return err_sys(err, errno, "option '--ready-fd': descriptor %d", keep);
    if ((keep > 3 && close_range(3, (unsigned)keep - 1, 0) < 0) ||
        close_range((unsigned)keep + 1, ~0U, 0) < 0)
        return err_sys(err, errno, "close inherited descriptors");
    return 0;
}

/* Opens closed standard descriptors, so that no later file gets the number 0, 1 or 2. */
static int daemon_process_fill_stdio(struct err *err)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        if (open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
            return err_sys(err, errno, "open '/dev/null'");
    }
    return 0;
}

/*
 * Keeps the daemon's memory small: one arena for all threads, output blocks from the heap instead
 * of new pages each time, and free memory at the top of the heap goes back to the kernel.
 */
static void daemon_process_tame_malloc(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

int process_harden(int keep_fd, struct err *err)
{
    struct rlimit files;
    int r;

    r = daemon_process_fill_stdio(err);
    if (r < 0)
        return r;
    r = daemon_process_close_inherited(keep_fd, err);
    if (r < 0)
        return r;
    daemon_process_clean_environment();
    daemon_process_tame_malloc();
    json_wipe_freed();
    umask(077);
    if (chdir("/") < 0)
        return err_sys(err, errno, "change to '/'");
    signal(SIGPIPE, SIG_IGN);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
#ifndef __SANITIZE_ADDRESS__ /* the leak checker traces its own process */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
    return 0;
}

/* ---- lock ---- */

static int daemon_process_refuse_second(int fd, const char *run_dir, struct err *err)
{
    char pid[32] = "";
    ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);

    if (n > 0)
        pid[strcspn(pid, "\n")] = '\0';
    err_set(err, ERR_CONFLICT, "'%s': already in use by another daemon (pid %s)", run_dir,
            n > 0 ? pid : "unknown");
    return err_hint(err, "Stop that daemon, or start this one with another --root.");
}

int process_lock(int run_dirfd, const char *run_dir, int *ret_fd, struct err *err)
{
    _cleanup_close_ int fd =
        openat(run_dirfd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    char pid[32];

    if (fd < 0)
        return err_sys(err, errno, "open '%s/%s'", run_dir, LOCK_NAME);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return daemon_process_refuse_second(fd, run_dir, err);
        return err_sys(err, errno, "lock '%s/%s'", run_dir, LOCK_NAME);
    }
    snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, strlen(pid), 0) < 0)
        return err_sys(err, errno, "write '%s/%s'", run_dir, LOCK_NAME);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* ---- readiness ---- */

void process_notify(const char *message)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = -1;
    size_t len;

    if (!notify_socket || (notify_socket[0] != '/' && notify_socket[0] != '@'))
        return;
    len = strlen(notify_socket);
    if (len >= sizeof(addr.sun_path))
        return;
    memcpy(addr.sun_path, notify_socket, len);
    if (addr.sun_path[0] == '@')
        addr.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, message, strlen(message), MSG_NOSIGNAL, (struct sockaddr *)&addr,
                         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
        log_warn("cannot send '%s' to the service manager: %s", message, strerror(errno));
}

void process_ready(int fd)
{
    int r;

    if (fd < 0)
        return;
    r = fd_write_all(fd, "ready\n", 6);
    if (r < 0)
        log_warn("--ready-fd: %s", strerror(-r));
    fd_close(fd);
}
