#include "lib/os/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

static int speaker(struct err *err)
{
    return confine_network_program(NULL, 0, err);
}

static int packages_proxy(struct err *err)
{
    return confine_network_program((const int[]){SYS_mkdirat}, 1, err);
}

/* What fn says in a process that has confined itself. */
static bool confined(int (*confine)(struct err *err), bool (*fn)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(confine(NULL) < 0 ? 2 : !fn());
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
                                  SYS_getppid, SYS_bind,     SYS_mknodat,   SYS_quotactl,
                                  SYS_prctl,   SYS_bpf,      SYS_pidfd_open};

    for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++)
        if (!is_denied(denied[i]))
            return false;
    return true;
}

TEST(the_filter_lets_the_work_through)
{
    CHECK(confined(confine_helper, does_its_work));
}

TEST(the_filter_stops_everything_else)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("not installed in a sanitized build");
#endif
    CHECK(confined(confine_helper, does_nothing_else));
}

static void *say_so(void *arg)
{
    return arg;
}

/* A thread, and no process; a connection, and nothing that listens. */
static bool speaks(void)
{
    pthread_t thread;
    void *said = NULL;
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (sock < 0 || pthread_create(&thread, NULL, say_so, &sock) != 0 ||
        pthread_join(thread, &said) != 0 || said != &sock)
        return false;
    return listen(sock, 1) < 0 && errno == EPERM && fork() < 0 && is_denied(SYS_execve) &&
           is_denied(SYS_mkdirat) && is_denied(SYS_fchmod) && is_denied(SYS_kill);
}

static bool makes_folders(void)
{
    return syscall(SYS_mkdirat, -1, "x", 0700) < 0 && errno == EBADF && is_denied(SYS_fchmod);
}

TEST(programs_with_network_cannot_do_more)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("not installed in a sanitized build");
#endif
    CHECK(confined(speaker, speaks));
    CHECK(confined(packages_proxy, makes_folders));
}
