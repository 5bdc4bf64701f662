/* Landlock alone: the tests leave descriptors of the host open on purpose, and they are useless. */
#include "lib/os/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "tap.h"

enum { NO_LANDLOCK = 100 };

static char base[] = "/tmp/ripcord-landlock-XXXXXX";
static int outside = -1; /* a folder with a canary, open before */

static bool prepare(void)
{
    int dir;

    if (outside >= 0)
        return true;
    if (!mkdtemp(base) || (dir = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return false;
    if (mkdirat(dir, "in", 0755) < 0 || mkdirat(dir, "out", 0755) < 0)
        return false;
    outside = openat(dir, "out", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return file_replace(outside, "canary", "x", 1, 0644, false, NULL) >= 0 &&
           file_replace(dir, "in/file", "x", 1, 0644, false, NULL) >= 0;
}

static long abi(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

static int enter(const char *root, bool command, uint16_t port)
{
    return command ? landlock_domain(root, NULL) : landlock_confine(root, port, NULL);
}

/* What fn says from inside a domain; its exit status. */
static int within(bool tree, bool command, uint16_t port, int (*fn)(void))
{
    char root[64];
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        snprintf(root, sizeof(root), "%s/in", base);
        if (chdir(root) < 0 || enter(tree ? root : NULL, command, port) != 1)
            _exit(NO_LANDLOCK);
        _exit(fn());
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int confined(bool tree, uint16_t port, int (*fn)(void))
{
    return within(tree, false, port, fn);
}

static int open_inside(void)
{
    return open("file", O_RDWR) >= 0 && mkdir("new", 0755) == 0 && rmdir("new") == 0 ? 0 : errno;
}

static int open_by_leaked_folder(void)
{
    return openat(outside, "canary", O_RDONLY) >= 0 ? 0 : errno;
}

static int open_by_path(void)
{
    return open("/etc/passwd", O_RDONLY) >= 0 ? 0 : errno;
}

static int make_by_leaked_folder(void)
{
    return mkdirat(outside, "made", 0755) == 0 ? 0 : errno;
}

TEST(only_what_lies_below)
{
    CHECK(prepare());
    if (abi() < 1)
        SKIP("this kernel has no Landlock");
    CHECK(confined(true, 0, open_inside) == 0);
    CHECK(confined(true, 0, open_by_leaked_folder) == EACCES);
    CHECK(confined(true, 0, make_by_leaked_folder) == EACCES);
    CHECK(confined(true, 0, open_by_path) == EACCES);
}

TEST(no_file_at_all)
{
    CHECK(prepare());
    if (abi() < 1)
        SKIP("this kernel has no Landlock");
    CHECK(confined(false, 0, open_inside) == EACCES);
    CHECK(confined(false, 0, open_by_leaked_folder) == EACCES);
}

static uint16_t listening;

static int listen_here(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, 5) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        return -1;
    listening = ntohs(at.sin_port);
    return fd;
}

static int connect_there(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(listening),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    return connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 ? 0 : errno;
}

TEST(one_port)
{
    int fd = listen_here();

    CHECK(fd >= 0 && prepare());
    if (abi() < 4)
        SKIP("this kernel's Landlock knows no ports");
    CHECK(confined(true, listening, connect_there) == 0);
    CHECK(confined(true, 0, connect_there) == EACCES);
    CHECK(confined(true, (uint16_t)(listening ^ 1), connect_there) == EACCES);
    fd_close(fd);
}

static int signal_parent(void)
{
    return kill(getppid(), 0) == 0 ? 0 : errno;
}

TEST(no_signal_to_the_outside)
{
    CHECK(prepare());
    if (abi() < 6)
        SKIP("this kernel's Landlock knows no signals");
    CHECK(confined(true, 0, signal_parent) == EPERM);
}

TEST(a_command_s_domain_has_its_tree_and_the_network)
{
    int fd = listen_here();

    CHECK(fd >= 0 && prepare());
    CHECK(landlock_possible() == (abi() >= 1));
    if (abi() < 6)
        SKIP("this kernel's Landlock knows no signals");
    CHECK(within(true, true, 0, open_inside) == 0);
    CHECK(within(true, true, 0, open_by_leaked_folder) == EACCES);
    CHECK(within(true, true, 0, signal_parent) == EPERM);
    CHECK(within(true, true, 0, connect_there) == 0);
    fd_close(fd);
}

TEST(nothing_is_left)
{
    CHECK(unlinkat(outside, "canary", 0) == 0 && chdir(base) == 0);
    CHECK(unlink("in/file") == 0 && rmdir("in") == 0 && rmdir("out") == 0 && rmdir(base) == 0);
}
