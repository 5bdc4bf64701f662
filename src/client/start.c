/*
 * A lock on <run>/start.lock decides which process starts the daemon. The others wait for the lock
 * and then find the socket. The daemon writes "ready\n" to a pipe when it listens. If the pipe
 * closes without that, the daemon has failed, and the new lines of its log are the reason.
 *
 * The code uses posix_spawn, not fork, because it is also part of libripcord and runs in processes
 * with threads.
 */
#include "client/start.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "client/unit.h"
#include "lib/base/buf.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/text.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "proto/service.h"
#include "version.h"

extern char **environ;

enum {
    START_READY_FD = 3,
    START_LOG_MAX = 2048, /* maximum part of the log in an error message */
    START_LOG_LINES = 5,
    START_LOCK_POLL_USEC = 5000,
    START_AGAIN_USEC = 10000, /* first wait; doubled each time, up to the next value */
    START_AGAIN_MAX_USEC = 1000000,
};
static const uint64_t start_timeout_usec = 30 * USEC_PER_SEC;

int start_find_daemon(char **ret, struct err *err)
{
    _cleanup_free_ char *folder = path_of_program("ripcordd", RIPCORD_LIBEXECDIR);

    if (folder) {
        *ret = xasprintf("%s/ripcordd", folder);
        return 0;
    }
    err_set(err, ERR_SYSTEM,
            "cannot find the daemon 'ripcordd': not in the folder of this program, not in "
            "'../libexec/ripcord' next to it, not in '%s'",
            RIPCORD_LIBEXECDIR);
    return err_hint(err,
                    "Install ripcord again, or keep its folders 'bin' and 'libexec' together.");
}

static int client_start_try_connect(const struct path_roots *paths, int *ret_fd, struct err *err)
{
    _cleanup_close_ int dir = open(paths->run, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return err_sys(err, errno, "open folder '%s'", paths->run);
    return unix_connect(dir, SERVICE_SOCKET, SOCK_STREAM, ret_fd, err);
}

static bool client_start_is_absent(const struct err *err)
{
    return err->errnum == ENOENT || err->errnum == ECONNREFUSED;
}

static int client_start_take_lock(const struct path_roots *paths, int *ret, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/start.lock", paths->run);
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct deadline by = deadline_in(start_timeout_usec);

    if (fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(err, errno, "lock '%s'", path);
        if (deadline_passed(&by))
            return err_set(
                err, ERR_TIMEOUT,
                "another process is starting the daemon, but it was not ready within %d s",
                (int)(start_timeout_usec / USEC_PER_SEC));
        usleep(START_LOCK_POLL_USEC);
    }
    *ret = TAKE_FD(fd);
    return 0;
}

static char **client_start_clean_environment(void)
{
    /* The last four locate the docker engine. */
    static const char *const keep[] = {"PATH=",
                                       "HOME=",
                                       "LANG=",
                                       "XDG_",
                                       "RIPCORD_ROOT=",
                                       "DOCKER_HOST=",
                                       "DOCKER_TLS_VERIFY=",
                                       "DOCKER_CERT_PATH=",
                                       "CONTAINER_HOST="};
    char **env = strv_copy(NULL);

    for (char **e = environ; *e; e++)
        for (size_t i = 0; i < ARRAY_SIZE(keep); i++)
            if (strncmp(*e, keep[i], strlen(keep[i])) == 0)
                strv_add(&env, *e);
    if (!strv_env_get(env, "PATH"))
        strv_env_set(&env, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    return env;
}

/* The actions of the child before exec. The order matters: closefrom is last. */
static void client_start_fill_actions(posix_spawn_file_actions_t *fa, posix_spawnattr_t *attr,
                                      const char *log, int ready)
{
    sigset_t none, all;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(fa);
    posix_spawn_file_actions_addopen(fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(fa, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(fa, STDOUT_FILENO, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(fa, ready, START_READY_FD);
    posix_spawn_file_actions_addchdir_np(fa, "/");
    posix_spawn_file_actions_addclosefrom_np(fa, START_READY_FD + 1);
    posix_spawnattr_init(attr);
    posix_spawnattr_setsigmask(attr, &none);
    posix_spawnattr_setsigdefault(attr, &all);
    posix_spawnattr_setflags(attr,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int client_start_spawn_daemon(const struct path_roots *paths, const char *log, int ready,
                                     pid_t *ret, struct err *err)
{
    _cleanup_free_ char *program = NULL;
    _cleanup_strv_ char **env = client_start_clean_environment();
    _cleanup_strv_ char **argv = NULL;
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    int r;

    r = start_find_daemon(&program, err);
    if (r < 0)
        return r;
    strv_add(&argv, program);
    if (paths->root) {
        strv_add(&argv, "--root");
        strv_add(&argv, paths->root);
    }
    strv_add(&argv, "--ready-fd");
    strv_push(&argv, xasprintf("%d", START_READY_FD));
    client_start_fill_actions(&fa, &attr, log, ready);
    r = posix_spawn(ret, program, &fa, &attr, argv, env);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    return r ? err_sys(err, r, "start '%s'", program) : 0;
}

/* Returns 1 when the daemon is ready, 0 when it closed the pipe without "ready". */
static int client_start_wait_ready(int fd, struct err *err)
{
    struct deadline by = deadline_in(start_timeout_usec);
    char word[16];
    size_t got = 0;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int r = poll(&p, 1, deadline_ms(&by));
        ssize_t n;

        if (r < 0 && errno != EINTR)
            return err_sys(err, errno, "wait for the daemon");
        if (r == 0)
            return err_set(err, ERR_TIMEOUT, "the daemon was not ready within %d s",
                           (int)(start_timeout_usec / USEC_PER_SEC));
        n = r < 0 ? -1 : read(fd, word + got, sizeof(word) - got);
        if (n < 0)
            continue;
        got += (size_t)n;
        if (memmem(word, got, "ready\n", 6))
            return 1;
        if (n == 0 || got == sizeof(word))
            return 0;
    }
}

/* The last lines of the log after offset `from`, escaped for a message. The caller frees the
 * text. */
static char *client_start_log_tail(const char *log, off_t from)
{
    _cleanup_close_ int fd = open(log, O_RDONLY | O_CLOEXEC);
    struct buf b = BUF_INIT(START_LOG_MAX * 4);
    char text[START_LOG_MAX + 1], *p, *line;
    off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n;
    int lines = 0;

    if (end <= from)
        return xstrdup("no log message");
    if (end - from > START_LOG_MAX)
        from = end - START_LOG_MAX;
    n = pread(fd, text, START_LOG_MAX, from);
    if (n <= 0)
        return xstrdup("the log cannot be read");
    while (n > 0 && text[n - 1] == '\n')
        n--;
    text[n] = '\0';
    for (p = text + n; p > text && lines < START_LOG_LINES; p--)
        lines += p[-1] == '\n';
    p += lines == START_LOG_LINES;
    while ((line = strsep(&p, "\n")))
        if (buf_append_str(&b, "\n  ") < 0 || text_escape(&b, line, strlen(line)) < 0)
            break;
    return buf_steal(&b);
}

/* Sets ERR_CONFLICT when another daemon runs, which may not listen yet or may be about to end. */
static int client_start_report_failure(pid_t pid, const char *log, off_t from, struct err *err)
{
    _cleanup_free_ char *tail = NULL;
    int status = 0, code = ERR_ENGINE;

    /* The pipe is closed, so the daemon is dead or about to end: this does not block for long. */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    tail = client_start_log_tail(log, from);
    if (WIFEXITED(status) && WEXITSTATUS(status) == err_code_exit(ERR_CONFLICT))
        code = ERR_CONFLICT;
    if (WIFSIGNALED(status))
        err_set(err, code, "the daemon could not start (signal %d): %s", WTERMSIG(status), tail);
    else
        err_set(err, code, "the daemon could not start (exit status %d): %s", WEXITSTATUS(status),
                tail);
    return err_hint(err, "See the log '%s'.", log);
}

static int client_start_locked(const struct path_roots *paths, struct err *err)
{
    _cleanup_free_ char *log = xasprintf("%s/ripcordd.log", paths->state);
    _cleanup_close_ int in = -1, out = -1;
    struct stat st;
    off_t from = stat(log, &st) == 0 ? st.st_size : 0;
    int fds[2], r;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    in = fds[0];
    /* Keep it above 2, even if the caller has closed its stdio: the child's file actions use 0 to
     * 2. */
    out = fcntl(fds[1], F_DUPFD_CLOEXEC, START_READY_FD);
    close(fds[1]);
    if (out < 0)
        return err_sys(err, errno, "duplicate a descriptor");
    r = client_start_spawn_daemon(paths, log, out, &pid, err);
    if (r < 0)
        return r;
    out = fd_close(out);
    r = client_start_wait_ready(in, err);
    if (r < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return err_hint(err, "See the log '%s'.", log);
    }
    return r ? 0 : client_start_report_failure(pid, log, from, err);
}

/* Other programs (systemd, a user) start daemons without our lock, and we use such a daemon as
 * well. */
static int client_start_and_connect(const struct path_roots *paths, int *ret_fd, struct err *err)
{
    struct deadline by = deadline_in(start_timeout_usec);

    for (useconds_t wait = START_AGAIN_USEC;; wait = MIN(wait * 2, START_AGAIN_MAX_USEC)) {
        _cleanup_err_ struct err start_err = ERR_INIT, e = ERR_INIT;
        int r = client_start_locked(paths, &start_err);

        if (client_start_try_connect(paths, ret_fd, &e) == 0)
            return 0;
        if (r != -ERR_CONFLICT || deadline_passed(&by))
            return err_move(err, r < 0 ? &start_err : &e);
        usleep(wait);
        if (client_start_try_connect(paths, ret_fd, NULL) == 0)
            return 0;
    }
}

/* A unit that has just been restarted may not listen yet. */
static int client_start_connect_unit(const struct path_roots *paths, const struct deadline *by,
                                     int *ret_fd, struct err *err)
{
    for (useconds_t wait = START_AGAIN_USEC;; wait = MIN(wait * 2, START_AGAIN_MAX_USEC)) {
        _cleanup_err_ struct err e = ERR_INIT;

        if (client_start_try_connect(paths, ret_fd, &e) == 0)
            return 0;
        if (!client_start_is_absent(&e) || deadline_passed(by))
            return err_move(err, &e);
        usleep(wait);
    }
}

int start_connect(const struct path_roots *paths, int *ret_fd, struct err *err)
{
    struct deadline by = deadline_in(start_timeout_usec);
    _cleanup_err_ struct err e = ERR_INIT;
    _cleanup_close_ int lock = -1;
    int r;

    if (client_start_try_connect(paths, ret_fd, &e) == 0)
        return 0;
    if (!client_start_is_absent(&e))
        return err_move(err, &e);
    r = path_roots_make(paths, err);
    if (r < 0)
        return r;
    r = client_start_take_lock(paths, &lock, err);
    if (r < 0)
        return r;
    if (client_start_try_connect(paths, ret_fd, &e) == 0)
        return 0;
    if (!client_start_is_absent(&e))
        return err_move(err, &e);
    r = unit_start(paths, &by, err);
    if (r < 0)
        return r;
    if (r == UNIT_STARTED)
        return client_start_connect_unit(paths, &by, ret_fd, err);
    return client_start_and_connect(paths, ret_fd, err);
}

int start_connect_running(const struct path_roots *paths, int *ret_fd, struct err *err)
{
    _cleanup_err_ struct err e = ERR_INIT;

    if (client_start_try_connect(paths, ret_fd, &e) == 0)
        return 0;
    if (!client_start_is_absent(&e))
        return err_move(err, &e);
    return err_set(err, ERR_ENGINE, "no daemon runs in '%s'", paths->run);
}
