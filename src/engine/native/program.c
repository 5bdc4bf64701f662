#include "engine/native/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/xalloc.h"

enum { OUTPUT_MAX = 16 << 10 };

const char *program_find(const char *name)
{
    static const char *const folders[] = {"/usr/sbin", "/usr/bin",        "/sbin",
                                          "/bin",      "/usr/local/sbin", "/usr/local/bin"};
    static _Thread_local char path[128];

    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        snprintf(path, sizeof(path), "%s/%s", folders[i], name);
        if (access(path, X_OK) == 0)
            return path;
    }
    return NULL;
}

/* stdin of the program: a memfd, so that nobody has to write while somebody else must read. */
static int input_fd(const char *input, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    if (!input)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    fd = memfd_create("input", MFD_CLOEXEC);
    r = fd < 0 ? -errno : fd_write_all(fd, input, strlen(input));
    if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
        r = -errno;
    return r < 0 ? err_sys(err, -r, "prepare a program's input") : TAKE_FD(fd);
}

static int spawn(const char *path, const char *const *argv, int in, int out, pid_t *ret)
{
    static char *const env[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", (char *)"LC_ALL=C",
                                NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    int r;

    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
    r = posix_spawn(ret, path, &actions, &attr, (char *const *)argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return r;
}

bool program_collect(int fd, struct buf *out, const struct deadline *by)
{
    char chunk[4096];

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = poll(&p, 1, deadline_ms(by));
        ssize_t len;

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        len = read(fd, chunk, sizeof(chunk));
        if (len <= 0)
            return true;
        (void)!buf_append(out, chunk, MIN((size_t)len, out->max - out->len));
    }
}

static int judge(const char *name, int status, struct buf *out, struct err *err)
{
    while (out->len && buf_data(out)[out->len - 1] == '\n')
        buf_truncate(out, out->len - 1);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFSIGNALED(status))
        return err_set(err, ERR_SYSTEM, "%s was ended by signal %d", name, WTERMSIG(status));
    return err_set(err, ERR_SYSTEM, "%s failed with status %d: %s", name, WEXITSTATUS(status),
                   out->len ? buf_data(out) : "(it said nothing)");
}

int program_run(const char *const *argv, const char *input, const struct deadline *by,
                char **ret_output, struct err *err)
{
    _cleanup_buf_ struct buf out = BUF_INIT(OUTPUT_MAX);
    _cleanup_close_ int in = -1, pr = -1, pw = -1;
    const char *path = program_find(argv[0]);
    int ends[2], status = 0, r;
    bool in_time;
    pid_t pid;

    if (!path)
        return err_set(err, ERR_UNSUPPORTED, "the program '%s' is not installed", argv[0]);
    in = input_fd(input, err);
    if (in < 0)
        return -ERR_SYSTEM;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe for '%s'", argv[0]);
    pr = ends[0];
    pw = ends[1];
    r = spawn(path, argv, in, pw, &pid);
    if (r)
        return err_sys(err, r, "start '%s'", path);
    pw = fd_close(pw);
    in_time = program_collect(pr, &out, by);
    if (!in_time)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!in_time)
        return err_set(err, ERR_TIMEOUT, "%s did not end in time", argv[0]);
    r = judge(argv[0], status, &out, err);
    if (r == 0 && ret_output)
        *ret_output = buf_steal(&out);
    return r;
}
