/*
 * A "machine" in one network namespace and a "container" in another, connected by a bridge and veth
 * pairs. The test connects from both and checks that only the container counts as one.
 */
#include "lib/os/container-peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "tap.h"

enum { PORT = 7070, WAIT_MS = 10000 };

static bool sh(const char *script)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        execl("/bin/sh", "sh", "-ec", script, (char *)NULL);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static int dial(const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, address, &at.sin_addr);
    return connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 ? fd : -1;
}

/* A socket of both kinds, as one that listens on "[::]". */
static int listen_on_all(void)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
    return bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 8) == 0 ? fd : -1;
}

static int take(int listener)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};

    return poll(&p, 1, WAIT_MS) > 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
}

/* A process in a network namespace of its own that dials the machine on request. */
static pid_t container(int ctl)
{
    pid_t pid = fork();
    char byte;

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWNET) < 0 || write(ctl, "r", 1) != 1 || read(ctl, &byte, 1) != 1 ||
        !sh("ip address add 10.99.0.2/24 dev inner; ip link set inner up") || dial("10.99.0.1") < 0)
        _exit(1);
    (void)!read(ctl, &byte, 1);
    _exit(0);
}

static bool connect_pair(pid_t pid)
{
    char script[512];

    snprintf(script, sizeof(script),
             "ip link add name shared type bridge; ip address add 10.99.0.1/24 dev shared; ip link "
             "set shared up;"
             "ip link add name outer type veth peer name inner netns %d;"
             "ip link set outer master shared up",
             (int)pid);
    return sh(script);
}

/* /sys shows the network namespace that it was mounted in. */
static bool isolate(void)
{
    return unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}

/* The answers are given by exit status: the namespace ends with this process. */
static int machine(void)
{
    _cleanup_close_ int listener = -1, own = -1, theirs = -1, inside = -1;
    int ctl[2], wrong = 0;
    char byte;
    pid_t pid;

    if (!isolate() || socketpair(AF_UNIX, SOCK_STREAM, 0, ctl) < 0 || !sh("ip link set lo up"))
        return 77;
    pid = container(ctl[1]);
    if (pid < 0 || read(ctl[0], &byte, 1) != 1 || !connect_pair(pid))
        return 77;
    listener = listen_on_all();
    own = dial("10.99.0.1");
    theirs = take(listener);
    wrong += theirs < 0 || container_peer_is_local(theirs) ? 1 : 0; /* the machine itself */
    (void)!write(ctl[0], "g", 1);
    inside = take(listener);
    wrong += inside < 0 || !container_peer_is_local(inside) ? 2 : 0;
    /* With something else on it, it is a network that the machine is part of. */
    if (sh("ip link add name card type dummy 2>/dev/null || ip tuntap add card mode tap;"
           "ip link set card master shared"))
        wrong += container_peer_is_local(inside) ? 4 : 0;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return wrong;
}

TEST(containers_are_distinguished_from_the_rest)
{
    int status = -1;
    pid_t pid;

    if (geteuid() != 0)
        SKIP("needs root for network namespaces");
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(machine());
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        SKIP("no bridge can be made here");
    if (status)
        printf("# wrong answers: %d\n", WEXITSTATUS(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST(other_peers_are_not_containers)
{
    int pair[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(!container_peer_is_local(pair[0]) && !container_peer_is_local(-1));
    close(pair[0]);
    close(pair[1]);
}
