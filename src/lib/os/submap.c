#include "lib/os/submap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/os/ns.h"
#include "lib/os/pidfd.h"

enum { SUBMAP_LINES = 3, FAILED = 255 };

static int submap_run_program(const char *program, char **argv, struct err *err)
{
    char *const env[] = {NULL};
    int status;
    pid_t pid;
    int r;

    r = posix_spawn(&pid, program, NULL, NULL, argv, env);
    if (r != 0)
        return err_sys(err, r, "start '%s'", program);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, errno, "wait for '%s'", program);
    if (status != 0)
        return err_set(err, ERR_SYSTEM, "'%s' refused the id map", program);
    return 0;
}

static int submap_map(pid_t pid, const char *program, uint32_t first, uint32_t self,
                      struct err *err)
{
    const uint32_t lines[SUBMAP_LINES][3] = {
        {0, first, SUBMAP_SELF},
        {SUBMAP_SELF, self, 1},
        {SUBMAP_SELF + 1, first + SUBMAP_SELF, SUBMAP_COUNT - SUBMAP_SELF},
    };
    char numbers[1 + SUBMAP_LINES * 3][12];
    char *argv[3 + SUBMAP_LINES * 3] = {(char *)program};

    snprintf(numbers[0], sizeof(numbers[0]), "%d", (int)pid);
    for (int i = 0; i < SUBMAP_LINES * 3; i++)
        snprintf(numbers[1 + i], sizeof(numbers[0]), "%u", lines[i / 3][i % 3]);
    for (int i = 0; i < 1 + SUBMAP_LINES * 3; i++)
        argv[1 + i] = numbers[i];
    return submap_run_program(program, argv, err);
}

int submap_write(pid_t pid, const struct submap *m, struct err *err)
{
    int r;

    r = submap_map(pid, SUBMAP_UID_PROGRAM, m->uid, geteuid(), err);
    return r < 0 ? r : submap_map(pid, SUBMAP_GID_PROGRAM, m->gid, getegid(), err);
}

int submap_run(const struct submap *m, int (*fn)(void *arg), void *arg, struct err *err)
{
    _cleanup_close_ int go = -1, go_in = -1, pidfd = -1;
    int p[2], status = 0, r;
    pid_t pid;

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    go = p[0];
    go_in = p[1];
    pid = ns_clone(CLONE_NEWUSER, -1, &pidfd);
    if (pid < 0)
        return err_sys(err, -pid, "make a user namespace");
    if (pid == 0) {
        char byte;

        close(go_in); /* otherwise the reader would never see the end */
        _exit(read(go, &byte, 1) == 1 ? fn(arg) : FAILED);
    }
    r = submap_write(pid, m, err);
    if (r < 0 || write(go_in, "g", 1) != 1)
        pidfd_signal(pidfd, SIGKILL);
    pidfd_reap(pidfd, true, &status, NULL);
    if (r < 0)
        return r;
    if (!WIFEXITED(status) || WEXITSTATUS(status) == FAILED)
        return err_set(err, ERR_SYSTEM, "the helper with mapped ids was killed");
    return WEXITSTATUS(status);
}
