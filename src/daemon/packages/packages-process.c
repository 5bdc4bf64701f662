#include "daemon/packages/packages-process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/os/pidfd.h"
#include "lib/os/process.h"
#include "proto/packages.h"

int packages_spawn(const char *program, char *const *env, const char *settings, int *ret_pidfd,
                   int *ret_control, struct err *err)
{
    _cleanup_close_ int null = -1, control = -1, config = -1, ours = -1;
    const char *const argv[] = {"ripcord-packages", NULL};
    int pair[2], r;
    pid_t pid;

    r = memfd_sealed("packages-config", settings, strlen(settings), &config, err);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "make a socket pair");
    ours = pair[0];
    control = pair[1];
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return err_sys(err, errno, "open '/dev/null'");
    r = process_start(&(const struct process_spec){.path = program,
                                                   .argv = argv,
                                                   .env = (const char *const *)env,
                                                   .fds = {{null, STDIN_FILENO},
                                                           {null, STDOUT_FILENO},
                                                           {control, PACKAGES_FD_CONTROL},
                                                           {config, PACKAGES_FD_CONFIG}},
                                                   .n_fds = 4},
                      &pid);
    if (r)
        return err_sys(err, r, "start '%s'", program);
    r = pidfd_open_pid(pid, ret_pidfd, err);
    if (r < 0) { /* not reaped yet, so the pid is still its own */
        kill(pid, SIGKILL);
        process_wait(pid);
        return r;
    }
    *ret_control = TAKE_FD(ours);
    return 0;
}
