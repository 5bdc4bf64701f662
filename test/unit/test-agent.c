/* The relay between commands of builds and an ssh agent. test/integration/test_builder_ssh.py tests
 * the mount, with an agent of OpenSSH. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image/build/agent-relay.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "tap.h"

enum { WAIT_MS = 10000 };

/* A running relay; a listener of the test takes the agent's place. */
struct bed {
    char folder[32];
    int dir, agent;
    pid_t relay;
};

static void bed_done(struct bed *b)
{
    if (b->relay > 0) {
        kill(b->relay, SIGKILL);
        waitpid(b->relay, NULL, 0);
    }
    fd_close(b->agent);
    fd_close(b->dir);
    rmtree(AT_FDCWD, b->folder, NULL);
}
#define _cleanup_bed_ __attribute__((cleanup(bed_done)))

static bool bed_open(struct bed *b)
{
    int listener = -1;

    *b = (struct bed){.folder = "/tmp/test-agent-XXXXXX", .dir = -1, .agent = -1};
    if (!mkdtemp(b->folder) || dir_open(AT_FDCWD, b->folder, &b->dir, NULL) < 0 ||
        unix_listen(b->dir, "agent", SOCK_STREAM, 0600, &b->agent, NULL) < 0 ||
        unix_listen(b->dir, "box", SOCK_STREAM | SOCK_NONBLOCK, 0600, &listener, NULL) < 0)
        return false;
    b->relay = fork();
    if (b->relay == 0) {
        fd_close(b->agent);
        if (fchdir(b->dir) == 0)
            agent_relay(listener, "agent");
        _exit(1);
    }
    fd_close(listener);
    return b->relay > 0;
}

static int dial(const struct bed *b)
{
    int fd = -1;

    return unix_connect(b->dir, "box", SOCK_STREAM, &fd, NULL) < 0 ? -1 : fd;
}

static bool readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, ms) > 0;
}

static int take(const struct bed *b)
{
    return readable(b->agent, WAIT_MS) ? accept4(b->agent, NULL, NULL, SOCK_CLOEXEC) : -1;
}

/* A message: a length, a kind, and as many bytes as make that length. */
static bool say(int fd, uint32_t length, char kind)
{
    _cleanup_free_ char *text = xmalloc(4 + (size_t)length);
    uint32_t net = htonl(length);

    memset(text, 'x', 4 + (size_t)length);
    memcpy(text, &net, 4);
    text[4] = kind;
    return fd_write_all(fd, text, 4 + (size_t)length) >= 0;
}

/* The kind of the next message if it has that length; -1: no such message. */
static int hear(int fd, uint32_t length)
{
    _cleanup_free_ char *text = xmalloc(4 + (size_t)length);
    uint32_t net;

    if (!readable(fd, WAIT_MS) || fd_read_full(fd, text, 4 + (size_t)length) != 4 + (ssize_t)length)
        return -1;
    memcpy(&net, text, 4);
    return ntohl(net) == length ? text[4] : -1;
}

static bool is_hung_up(int fd)
{
    char byte;

    return readable(fd, WAIT_MS) && read(fd, &byte, 1) <= 0;
}

TEST(only_harmless_requests_pass)
{
    CHECK(agent_may_ask("\x0b", 1));
    CHECK(agent_may_ask("\x0d rest", 6));
    CHECK(!agent_may_ask("", 0));
    CHECK(!agent_may_ask("\x0b more", 6));
    for (int kind = 0; kind < 256; kind++)
        CHECK(agent_may_ask(&(char){(char)kind}, 1) == (kind == 11 || kind == 13));
}

TEST(requests_and_answers_arrive_whole)
{
    _cleanup_bed_ struct bed b;
    _cleanup_close_ int client = -1, agent = -1;

    CHECK(bed_open(&b));
    client = dial(&b);
    agent = take(&b);
    CHECK(client >= 0 && agent >= 0);
    for (int i = 0; i < 3; i++) {
        CHECK(say(client, 1, 11) && hear(agent, 1) == 11);
        CHECK(say(agent, AGENT_MESSAGE_MAX, 12) && hear(client, AGENT_MESSAGE_MAX) == 12);
        CHECK(say(client, 100000, 13) && hear(agent, 100000) == 13);
        CHECK(say(agent, 7, 14) && hear(client, 7) == 14);
    }
}

TEST(a_request_that_changes_the_agent_fails_and_the_next_one_passes)
{
    _cleanup_bed_ struct bed b;
    _cleanup_close_ int client = -1, agent = -1;

    CHECK(bed_open(&b));
    client = dial(&b);
    agent = take(&b);
    CHECK(client >= 0 && agent >= 0);
    CHECK(say(client, 1, 19) && hear(client, 1) == 5);    /* remove all keys */
    CHECK(say(client, 5000, 20) && hear(client, 1) == 5); /* add a library with keys */
    CHECK(say(client, 10, 22) && hear(client, 1) == 5);   /* lock */
    CHECK(say(client, 300, 27) && hear(client, 1) == 5);  /* an extension */
    CHECK(say(client, 1, 19) && say(client, 1, 11));      /* both at once */
    CHECK(hear(client, 1) == 5 && hear(agent, 1) == 11 && !readable(agent, 0));
}

TEST(invalid_lengths_end_the_connection)
{
    static const uint32_t lengths[] = {0, AGENT_MESSAGE_MAX + 1, 0x7fffffff, 0xffffffff};
    _cleanup_bed_ struct bed b;

    CHECK(bed_open(&b));
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        _cleanup_close_ int client = dial(&b), agent = take(&b);
        uint32_t net = htonl(lengths[i]);

        CHECK(client >= 0 && agent >= 0);
        CHECK(fd_write_all(client, &net, 4) >= 0);
        CHECK(is_hung_up(client) && is_hung_up(agent));
    }
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) { /* lengths from the agent */
        _cleanup_close_ int client = dial(&b), agent = take(&b);
        uint32_t net = htonl(lengths[i]);

        CHECK(say(client, 1, 11) && hear(agent, 1) == 11);
        CHECK(fd_write_all(agent, &net, 4) >= 0);
        CHECK(is_hung_up(client));
    }
}

TEST(a_client_that_leaves_early_frees_its_place)
{
    _cleanup_bed_ struct bed b;
    _cleanup_close_ int client = -1, agent = -1;

    CHECK(bed_open(&b));
    client = dial(&b);
    agent = take(&b);
    CHECK(say(client, 9, 13) && hear(agent, 9) == 13);
    client = fd_close(client);
    CHECK(is_hung_up(agent));
}

TEST(an_answer_arrives_though_the_agent_has_gone)
{
    _cleanup_bed_ struct bed b;
    _cleanup_close_ int client = -1, agent = -1;

    CHECK(bed_open(&b));
    client = dial(&b);
    agent = take(&b);
    CHECK(say(client, 1, 11) && hear(agent, 1) == 11 && say(agent, 9, 12));
    agent = fd_close(agent);
    CHECK(hear(client, 9) == 12);
    CHECK(say(client, 1, 11) && is_hung_up(client));
}

TEST(connections_over_the_limit_wait)
{
    _cleanup_bed_ struct bed b;
    int clients[AGENT_CONNS_MAX + 1], agents[AGENT_CONNS_MAX + 1];

    CHECK(bed_open(&b));
    for (int i = 0; i < AGENT_CONNS_MAX; i++) {
        clients[i] = dial(&b);
        agents[i] = take(&b);
        CHECK(clients[i] >= 0 && agents[i] >= 0);
    }
    clients[AGENT_CONNS_MAX] = dial(&b);
    CHECK(clients[AGENT_CONNS_MAX] >= 0 && !readable(b.agent, 200));
    CHECK(say(clients[3], 1, 11) && hear(agents[3], 1) == 11);
    fd_close(clients[5]);
    agents[AGENT_CONNS_MAX] = take(&b);
    CHECK(agents[AGENT_CONNS_MAX] >= 0);
    CHECK(say(clients[AGENT_CONNS_MAX], 1, 11) && hear(agents[AGENT_CONNS_MAX], 1) == 11);
    for (int i = 0; i <= AGENT_CONNS_MAX; i++) {
        if (i != 5)
            fd_close(clients[i]);
        fd_close(agents[i]);
    }
}

TEST(without_an_agent_connections_end)
{
    _cleanup_bed_ struct bed b;
    _cleanup_close_ int client = -1;

    CHECK(bed_open(&b));
    b.agent = fd_close(b.agent);
    client = dial(&b);
    CHECK(client >= 0 && is_hung_up(client));
}
