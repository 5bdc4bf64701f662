#include "lib/os/process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "lib/base/cleanup.h"

/* Whether an earlier entry, which the child sets up first, overwrites this `from`. */
static bool os_process_is_covered(const struct process_spec *s, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (s->fds[i].from >= 0 && s->fds[i].to == s->fds[at].from)
            return true;
    return false;
}

/* high[i]: a copy of `from` above all targets, or -1. */
static int os_process_add_fds(const struct process_spec *s, posix_spawn_file_actions_t *fa,
                              int high[])
{
    int r = 0;

    for (size_t i = 0; i < s->n_fds && !r; i++) {
        int from = s->fds[i].from;

        assert(s->fds[i].to < PROCESS_FD_MIN);
        if (from < 0)
            continue;
        if (os_process_is_covered(s, i)) {
            from = high[i] = fcntl(from, F_DUPFD_CLOEXEC, PROCESS_FD_MIN);
            if (from < 0)
                return errno;
        }
        r = posix_spawn_file_actions_adddup2(fa, from, s->fds[i].to);
    }
    return r;
}

static int os_process_set_attributes(posix_spawnattr_t *attr)
{
    sigset_t none, all;
    int r;

    sigemptyset(&none);
    sigfillset(&all);
    r = posix_spawnattr_setsigmask(attr, &none);
    if (!r)
        r = posix_spawnattr_setsigdefault(attr, &all);
    if (!r)
        r = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                               POSIX_SPAWN_SETSIGDEF);
    return r;
}

int process_start(const struct process_spec *s, pid_t *ret)
{
    static const char *const no_env[] = {NULL};
    const char *const *env = s->env ? s->env : no_env;
    int high[PROCESS_FDS_MAX], r;
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;

    assert(s->n_fds <= PROCESS_FDS_MAX);
    for (size_t i = 0; i < PROCESS_FDS_MAX; i++)
        high[i] = -1;
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    r = os_process_add_fds(s, &fa, high);
    if (!r)
        r = os_process_set_attributes(&attr);
    if (!r)
        r = posix_spawn(ret, s->path, &fa, &attr, (char *const *)s->argv, (char *const *)env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    for (size_t i = 0; i < PROCESS_FDS_MAX; i++)
        fd_close(high[i]);
    return r;
}

int process_wait(pid_t pid)
{
    int status = -1;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return status;
}
