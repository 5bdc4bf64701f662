#include "registry/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "os/pidfd.h"
#include "registry/proto.h"

/* Above what they become in the child: dup2 onto a descriptor that is still a source loses it. */
enum { FD_SAFE = 10 };

static int spawn_with(const char *program, char *const *env, const int fds[static 3],
                      posix_spawn_file_actions_t *fa, posix_spawnattr_t *attr, pid_t *ret)
{
    char *const argv[] = {(char *)"ripcord-registry", NULL};
    sigset_t none, all;
    int r = 0;

    sigemptyset(&none);
    sigfillset(&all);
    r |= posix_spawn_file_actions_adddup2(fa, fds[0], STDIN_FILENO);
    r |= posix_spawn_file_actions_adddup2(fa, fds[0], STDOUT_FILENO);
    r |= posix_spawn_file_actions_adddup2(fa, fds[1], REGISTRY_FD_CONTROL);
    r |= posix_spawn_file_actions_adddup2(fa, fds[2], REGISTRY_FD_CONFIG);
    r |= posix_spawnattr_setsigmask(attr, &none);
    r |= posix_spawnattr_setsigdefault(attr, &all);
    r |= posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                            POSIX_SPAWN_SETSIGDEF);
    return r ? ENOMEM : posix_spawn(ret, program, fa, attr, argv, env);
}

static int spawn(const char *program, char *const *env, const int fds[static 3], pid_t *ret)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    int r;

    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    r = spawn_with(program, env, fds, &fa, &attr, ret);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    return r;
}

/* Takes the descriptor. */
static int lift(int fd)
{
    int up = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FD_SAFE);

    fd_close(fd);
    return up;
}

int registry_spawn(const char *program, char *const *env, const char *settings, int *ret_pidfd,
                   int *ret_control, struct err *err)
{
    _cleanup_close_ int null = -1, control = -1, config = -1, ours = -1;
    int pair[2], fd = -1, r;
    pid_t pid;

    r = memfd_sealed("registry-config", settings, strlen(settings), &fd, err);
    if (r < 0)
        return r;
    config = lift(fd);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "make a socket pair");
    ours = pair[0];
    control = lift(pair[1]);
    null = lift(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (config < 0 || control < 0 || null < 0)
        return err_sys(err, errno, "prepare the registry's descriptors");
    r = spawn(program, env, (const int[]){null, control, config}, &pid);
    if (r)
        return err_sys(err, r, "start '%s'", program);
    r = pidfd_open_pid(pid, ret_pidfd, err);
    if (r < 0) { /* still our child: the number is its own */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return r;
    }
    *ret_control = TAKE_FD(ours);
    return 0;
}
