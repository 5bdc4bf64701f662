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
#include <sys/sysmacros.h>
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

/* ---- rules of the caller's own ---- */

static int rules_of_a_command(void)
{
    char in[64];
    int rules;

    snprintf(in, sizeof(in), "%s/in", base);
    if (landlock_rules_open(&rules, NULL) < 0 ||
        landlock_rules_add(rules, in, LANDLOCK_WRITE, NULL) < 0 ||
        landlock_rules_add(rules, "/usr", LANDLOCK_READ, NULL) < 0 ||
        landlock_rules_add(rules, "/etc/passwd", LANDLOCK_READ, NULL) < 0 ||
        landlock_rules_add(rules, "/nowhere", LANDLOCK_READ, NULL) < 0 ||
        landlock_rules_add(rules, "/dev/null", LANDLOCK_DEVICE, NULL) < 0 ||
        landlock_rules_add(rules, "/dev/shm", LANDLOCK_OWN_FILES, NULL) < 0 ||
        landlock_rules_add_port(rules, listening, false, NULL) < 0 ||
        landlock_rules_add_port(rules, 0, true, NULL) < 0 ||
        landlock_rules_add_port(rules, 4242, true, NULL) < 0)
        return NO_LANDLOCK;
    return landlock_rules_enter(rules, NULL) < 0 ? NO_LANDLOCK : 0;
}

/* What fn says in such a domain, inside of one with scopes only; its exit status. */
static int commanded(int (*fn)(void))
{
    char root[64];
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        snprintf(root, sizeof(root), "%s/in", base);
        if (chdir(root) < 0 || landlock_scopes(NULL) < 0 || rules_of_a_command() != 0)
            _exit(NO_LANDLOCK);
        _exit(fn());
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int files_of_a_command(void)
{
    int fd;

    if (open_inside() != 0 || open("/etc/passwd", O_RDONLY) < 0 || open("/dev/null", O_RDWR) < 0)
        return 1;
    if (open("/usr/bin", O_RDONLY | O_DIRECTORY) < 0 || access("/usr/bin/env", X_OK) < 0)
        return 2;
    if (open("/etc/group", O_RDONLY) >= 0 || open_by_leaked_folder() != EACCES)
        return 3;
    if (mkdir("/usr/ripcord-test", 0755) == 0 || open("/etc/passwd", O_WRONLY) >= 0)
        return 4;
    if (link("/usr/bin/env", "env") == 0 || rename("file", "/dev/shm/file") == 0)
        return 5;
    fd = open("/dev/shm/ripcord-landlock", O_RDWR | O_CREAT, 0600);
    if (fd < 0 || unlink("/dev/shm/ripcord-landlock") < 0 ||
        open("/dev/shm", O_RDONLY | O_DIRECTORY) >= 0)
        return 6;
    return mknod("null", S_IFCHR | 0600, makedev(1, 3)) == 0 ? 7 : 0;
}

static int bind_to(uint16_t port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    return bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 ? 0 : errno;
}

static int ports_of_a_command(void)
{
    if (connect_there() != 0)
        return 1;
    if (bind_to(listening) != EACCES || bind_to(4243) != EACCES)
        return 2;
    if (bind_to(0) != 0 || bind_to(4242) != 0)
        return 3;
    listening ^= 1;
    return connect_there() == EACCES ? 0 : 4;
}

TEST(rules_of_the_caller_s_own)
{
    int fd = listen_here();

    CHECK(fd >= 0 && prepare());
    CHECK(landlock_has_scopes() == (abi() >= 6));
    if (abi() < 6)
        SKIP("this kernel's Landlock has no scopes");
    CHECK(commanded(files_of_a_command) == 0);
    CHECK(commanded(ports_of_a_command) == 0);
    CHECK(commanded(signal_parent) == EPERM);
    fd_close(fd);
}

/* How a confined command ends: kill(-1) of a process in the outer domain. */
TEST(signals_go_inwards_only)
{
    pid_t bystander, reaper;
    int status;

    if (abi() < 6)
        SKIP("this kernel's Landlock has no scopes");
    CHECK((bystander = fork()) >= 0);
    if (bystander == 0) {
        pause();
        _exit(0);
    }
    CHECK((reaper = fork()) >= 0);
    if (reaper == 0) {
        pid_t inner;

        if (landlock_scopes(NULL) < 0 || (inner = fork()) < 0)
            _exit(1);
        if (inner == 0) {
            if (landlock_scopes(NULL) < 0 || kill(getppid(), SIGKILL) == 0)
                _exit(1);
            pause();
        }
        usleep(1000);
        while (kill(-1, SIGKILL) < 0) /* the inner one is not yet ready to be killed */
            usleep(1000);
        _exit(waitpid(inner, &status, 0) == inner && WIFSIGNALED(status) ? 0 : 2);
    }
    CHECK(waitpid(reaper, &status, 0) == reaper && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(waitpid(bystander, &status, WNOHANG) == 0);
    kill(bystander, SIGKILL);
    CHECK(waitpid(bystander, &status, 0) == bystander);
}

TEST(nothing_is_left)
{
    CHECK(unlinkat(outside, "canary", 0) == 0 && chdir(base) == 0);
    CHECK(unlink("in/file") == 0 && rmdir("in") == 0 && rmdir("out") == 0 && rmdir(base) == 0);
}
