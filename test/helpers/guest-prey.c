/*
 * Hostile and busy commands that the tests of the guest run inside a container:
 *
 *   bomb N          forks without end, each process in its own session with an empty environment,
 *                   at most N of this user
 *   comet           one process that forks, leaves its session and exits, for ever
 *   noise BYTES     bytes of all values, the same every time (prey_noise() in guest-prey.h)
 *   serve PORT      accepts one connection, reads to its end, answers with the number of bytes
 *   greet PORT      accepts one connection, sends "hello" and closes that side, reads to the end
 *                   and prints the number of bytes
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest-prey.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"

_noreturn_ static int bomb(const char *arg)
{
    rlim_t most = strtoul(arg, NULL, 10);
    struct rlimit limit = {most, most};

    setrlimit(RLIMIT_NPROC, &limit);
    clearenv();
    for (;;)
        if (fork() == 0)
            setsid();
}

_noreturn_ static int comet(const char *arg _unused_)
{
    for (;;) {
        pid_t pid = fork();

        if (pid > 0)
            _exit(0);
        if (pid == 0)
            setsid();
    }
}

static int noise(const char *arg)
{
    uint64_t left = strtoull(arg, NULL, 10), state = 0;
    char chunk[64 << 10];

    while (left) {
        size_t n = MIN(left, sizeof(chunk));

        prey_noise(&state, chunk, n);
        if (fd_write_all(1, chunk, n) < 0)
            return 1;
        left -= n;
    }
    return 0;
}

static int take_one(const char *port)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 8) < 0)
        exit(1);
    if (fd_write_all(1, "ready\n", 6) < 0)
        exit(1);
    return accept(fd, NULL, NULL);
}

static size_t read_to_end(int fd)
{
    char chunk[16 << 10];
    size_t sum = 0;
    ssize_t n;

    while ((n = read(fd, chunk, sizeof(chunk))) > 0)
        sum += (size_t)n;
    return sum;
}

static int serve(const char *port)
{
    int fd = take_one(port), n;
    char text[32];

    n = snprintf(text, sizeof(text), "%zu", read_to_end(fd));
    return fd_write_all(fd, text, (size_t)n) < 0;
}

static int greet(const char *port)
{
    int fd = take_one(port);

    if (fd_write_all(fd, "hello", 5) < 0)
        return 1;
    shutdown(fd, SHUT_WR);
    printf("%zu\n", read_to_end(fd));
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const char *arg);
    } deeds[] = {
        {"bomb", bomb}, {"comet", comet}, {"noise", noise}, {"serve", serve}, {"greet", greet}};

    for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(deeds); i++)
        if (STREQ(argv[1], deeds[i].name))
            return deeds[i].run(argc > 2 ? argv[2] : "");
    return 2;
}
