#include "os/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

/* What fn says in a process that has confined itself. */
static bool confined(bool (*fn)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(confine_job(NULL) < 0 ? 2 : !fn());
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool is_denied(long number)
{
    return syscall(number, 0, 0, 0, 0, 0, 0) == -1 && errno == EPERM;
}

static bool does_its_work(void)
{
    int fd = open("/", O_RDONLY | O_DIRECTORY), null = openat(fd, "dev/null", O_WRONLY);
    void *mem = malloc(1 << 20);

    return fd >= 0 && null >= 0 && mem && write(null, "x", 1) == 1;
}

static bool does_nothing_else(void)
{
    static const long denied[] = {SYS_execve,  SYS_execveat, SYS_clone,     SYS_kill,
                                  SYS_ptrace,  SYS_unshare,  SYS_setns,     SYS_mount,
                                  SYS_getppid, SYS_bind,     SYS_mknodat,   SYS_fchownat,
                                  SYS_prctl,   SYS_bpf,      SYS_pidfd_open};

    for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++)
        if (!is_denied(denied[i]))
            return false;
    return true;
}

TEST(the_filter_lets_the_work_through)
{
    CHECK(confined(does_its_work));
}

TEST(the_filter_stops_everything_else)
{
#ifdef __SANITIZE_ADDRESS__
    SKIP("not installed in a sanitized build");
#endif
    CHECK(confined(does_nothing_else));
}
