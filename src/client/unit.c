#include "client/unit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"
#include "proto/service.h"

extern char **environ;

enum { UNIT_OUTPUT_MAX = 4096, UNIT_POLL_USEC = 50000 };

/* What `systemctl show` says. */
struct unit {
    bool loaded, masked;
    bool moves; /* a job for it is queued or runs, or it is between two states */
    bool active;
};

static const char *client_unit_program(void)
{
    static const char *const paths[] = {"/usr/bin/systemctl", "/bin/systemctl",
                                        "/run/current-system/sw/bin/systemctl"};

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
        if (access(paths[i], X_OK) == 0)
            return paths[i];
    return NULL;
}

/* Whether systemd runs for this user, and these are the folders that its unit uses: the unit does
 * not see variables of this process. */
static bool client_unit_may_own(const struct path_roots *paths)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    _cleanup_free_ char *manager = NULL;

    if (paths->root || access("/run/systemd/system", F_OK) < 0)
        return false;
    if (geteuid() == 0)
        return STREQ(paths->run, "/run/ripcord");
    if (!runtime || getenv("XDG_DATA_HOME") || getenv("XDG_CONFIG_HOME"))
        return false;
    manager = xasprintf("%s/systemd/private", runtime);
    return access(manager, W_OK) == 0;
}

/* ---- systemctl ---- */

static bool client_unit_collect(int fd, struct buf *out, const struct deadline *by)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char chunk[512];
        int r = poll(&p, 1, deadline_ms(by));
        ssize_t n;

        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return false;
        n = read(fd, chunk, sizeof(chunk));
        if (n <= 0)
            return true;
        (void)!buf_append(out, chunk, MIN((size_t)n, out->max - out->len));
    }
}

static int client_unit_spawn(const char *program, const char *const *argv, int out, pid_t *ret)
{
    posix_spawn_file_actions_t fa;
    int r;

    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&fa, out, STDERR_FILENO);
    r = posix_spawn(ret, program, &fa, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    return r;
}

/* Its exit status, or -1 when it cannot be run or does not end in time. */
static int client_unit_ask(const char *const *argv, struct buf *out, const struct deadline *by)
{
    const char *program = client_unit_program();
    _cleanup_close_ int in = -1;
    int fds[2], status = -1;
    pid_t pid;

    if (!program || pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    in = fds[0];
    if (client_unit_spawn(program, argv, fds[1], &pid) != 0) {
        fd_close(fds[1]);
        return -1;
    }
    fd_close(fds[1]);
    if (!client_unit_collect(in, out, by))
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char *client_unit_manager(void)
{
    return geteuid() == 0 ? "--system" : "--user";
}

static bool client_unit_has(const char *text, const char *line)
{
    size_t len = strlen(line);

    for (const char *p = text; (p = strstr(p, line)); p += len)
        if ((p == text || p[-1] == '\n') && (p[len] == '\n' || !p[len]))
            return true;
    return false;
}

/* "Job=123"; where there is none, the number is missing, or with older versions the line. */
static bool client_unit_has_job(const char *text)
{
    const char *job = strstr(text, "Job=");

    return job && job[4] >= '1' && job[4] <= '9';
}

static struct unit client_unit_look(const struct deadline *by)
{
    const char *const argv[] = {"systemctl",  client_unit_manager(),
                                "show",       "--property=LoadState,ActiveState,Job",
                                SERVICE_UNIT, NULL};
    _cleanup_buf_ struct buf out = BUF_INIT(UNIT_OUTPUT_MAX);
    struct unit u = {0};
    const char *text;

    if (client_unit_ask(argv, &out, by) != 0)
        return u;
    text = buf_data(&out);
    u.loaded = client_unit_has(text, "LoadState=loaded");
    u.masked = client_unit_has(text, "LoadState=masked");
    u.active = client_unit_has(text, "ActiveState=active");
    u.moves = client_unit_has_job(text) || client_unit_has(text, "ActiveState=activating") ||
              client_unit_has(text, "ActiveState=deactivating") ||
              client_unit_has(text, "ActiveState=reloading");
    return u;
}

/* ---- starting ---- */

const char *unit_command(void)
{
    return geteuid() == 0 ? "systemctl" : "systemctl --user";
}

static int client_unit_refuse(const char *what, const char *verb, struct err *err)
{
    err_set(err, ERR_ENGINE, "no daemon runs: " SERVICE_UNIT " %s", what);
    return err_hint(err, "Run `%s %s ripcord`.", unit_command(), verb);
}

int unit_run(const char *verb, const struct deadline *by, struct err *err)
{
    const char *const argv[] = {"systemctl", client_unit_manager(), "--no-ask-password",
                                verb,        SERVICE_UNIT,          NULL};
    _cleanup_buf_ struct buf out = BUF_INIT(UNIT_OUTPUT_MAX);
    _cleanup_free_ char *reason = NULL;

    if (client_unit_ask(argv, &out, by) == 0)
        return 0;
    reason = out.len ? buf_steal(&out) : xstrdup("systemctl did not answer in time");
    err_set(err, ERR_ENGINE, SERVICE_UNIT " does not %s: %.*s", verb, (int)strcspn(reason, "\n"),
            reason);
    return err_hint(err, "Look at `%s status ripcord`.", unit_command());
}

static bool client_unit_was_stopped(const struct path_roots *paths)
{
    _cleanup_free_ char *path = xasprintf("%s/" SERVICE_STOPPED, paths->run);

    return access(path, F_OK) == 0;
}

struct unit_info unit_look(const struct path_roots *paths, const struct deadline *by)
{
    struct unit_info info = {0};
    struct unit u;

    if (!client_unit_may_own(paths))
        return info;
    u = client_unit_look(by);
    info.owns = u.loaded;
    info.active = u.loaded && (u.active || u.moves);
    info.stopped = u.loaded && !info.active && client_unit_was_stopped(paths);
    return info;
}

int unit_start(const struct path_roots *paths, const struct deadline *by, struct err *err)
{
    struct unit u;

    if (!client_unit_may_own(paths))
        return UNIT_NONE;
    u = client_unit_look(by);
    if (u.masked)
        return client_unit_refuse("is masked", "unmask", err);
    if (!u.loaded)
        return UNIT_NONE;
    /* A restart: systemctl would wait for it, too, but fails for a unit that is being stopped. */
    while (u.moves && !deadline_passed(by)) {
        usleep(UNIT_POLL_USEC);
        u = client_unit_look(by);
    }
    if (!u.active && client_unit_was_stopped(paths))
        return client_unit_refuse("was stopped", "start", err);
    if (!u.active && unit_run("start", by, err) < 0)
        return -ERR_ENGINE;
    return UNIT_STARTED;
}
