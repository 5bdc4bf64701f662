#include "image/build/agent-relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

/* Of draft-ietf-sshm-ssh-agent, section 6.1. */
enum { AGENT_FAILURE = 5, AGENT_REQUEST_IDENTITIES = 11, AGENT_SIGN_REQUEST = 13 };

enum { HEAD = 4 }; /* bytes of the length in front of a message */

/* A connection has one request at a time: the next one is read after the answer was written. */
enum agent_phase {
    READ_REQUEST,  /* from the client */
    WRITE_REQUEST, /* to the agent */
    READ_ANSWER,   /* from the agent */
    WRITE_ANSWER,  /* to the client */
};

bool agent_may_ask(const void *message, size_t len)
{
    unsigned char kind = len ? *(const unsigned char *)message : 0;

    return (kind == AGENT_REQUEST_IDENTITIES && len == 1) || kind == AGENT_SIGN_REQUEST;
}

/* ---- one connection ---- */

void agent_conn_init(struct agent_conn *c, int client, int agent)
{
    *c = (struct agent_conn){.client = client,
                             .agent = agent,
                             .phase = READ_REQUEST,
                             .message = xmalloc(HEAD + AGENT_MESSAGE_MAX),
                             .whole = HEAD};
}

void agent_conn_done(struct agent_conn *c)
{
    fd_close(c->client);
    fd_close(c->agent);
    free(c->message);
}

int agent_dial(const char *agent)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int n = snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", agent);
    _cleanup_close_ int fd = -1;

    if (n < 0 || (size_t)n >= sizeof(addr.sun_path))
        return -ENAMETOOLONG;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return -errno;
    return TAKE_FD(fd);
}

/* When the agent cannot be reached, the command's connection is closed. */
static bool agent_relay_conn_open(struct agent_conn *c, int listener, const char *agent)
{
    _cleanup_close_ int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int fd = client < 0 ? -1 : agent_dial(agent);

    if (fd < 0)
        return false;
    agent_conn_init(c, TAKE_FD(client), fd);
    return true;
}

static int agent_relay_conn_fd(const struct agent_conn *c)
{
    return c->phase == READ_REQUEST || c->phase == WRITE_ANSWER ? c->client : c->agent;
}

static bool agent_relay_conn_reads(const struct agent_conn *c)
{
    return c->phase == READ_REQUEST || c->phase == READ_ANSWER;
}

static void agent_relay_next_phase(struct agent_conn *c, enum agent_phase to)
{
    c->phase = to;
    c->len = 0;
    if (agent_relay_conn_reads(c))
        c->whole = HEAD;
}

/* A whole message was read: decides where it goes. */
static void agent_relay_decide(struct agent_conn *c)
{
    static const char failure[] = {0, 0, 0, 1, AGENT_FAILURE};

    if (c->phase == READ_ANSWER) {
        agent_relay_next_phase(c, WRITE_ANSWER);
    } else if (agent_may_ask(c->message + HEAD, c->whole - HEAD)) {
        agent_relay_next_phase(c, WRITE_REQUEST);
    } else {
        memcpy(c->message, failure, sizeof(failure));
        c->whole = sizeof(failure);
        agent_relay_next_phase(c, WRITE_ANSWER);
    }
}

static bool agent_relay_read_length(struct agent_conn *c)
{
    uint32_t length;

    memcpy(&length, c->message, sizeof(length));
    length = ntohl(length);
    c->whole = HEAD + (size_t)length;
    return length > 0 && length <= AGENT_MESSAGE_MAX;
}

/* Reads only the current message; bytes after it stay in the kernel's buffer. */
static bool agent_relay_conn_read(struct agent_conn *c)
{
    ssize_t n = read(agent_relay_conn_fd(c), c->message + c->len, c->whole - c->len);

    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    c->len += (size_t)n;
    if (c->len < c->whole)
        return true;
    if (c->whole == HEAD)
        return agent_relay_read_length(c);
    agent_relay_decide(c);
    return true;
}

static bool agent_relay_conn_write(struct agent_conn *c)
{
    ssize_t n = send(agent_relay_conn_fd(c), c->message + c->len, c->whole - c->len, MSG_NOSIGNAL);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    c->len += (size_t)n;
    if (c->len == c->whole)
        agent_relay_next_phase(c, c->phase == WRITE_REQUEST ? READ_ANSWER : READ_REQUEST);
    return true;
}

bool agent_conn_step(struct agent_conn *c)
{
    return agent_relay_conn_reads(c) ? agent_relay_conn_read(c) : agent_relay_conn_write(c);
}

/* ---- all connections ---- */

struct agent_relay {
    struct agent_conn conns[AGENT_CONNS_MAX];
    size_t n;
    struct pollfd p[1 + 2 * AGENT_CONNS_MAX]; /* the listener, then two for each connection */
};

/* The second descriptor reports a client that closes while it waits for its answer. */
static void agent_relay_watch(struct agent_relay *x, int listener)
{
    x->p[0] = (struct pollfd){.fd = x->n < AGENT_CONNS_MAX ? listener : -1, .events = POLLIN};
    for (size_t i = 0; i < x->n; i++) {
        const struct agent_conn *c = &x->conns[i];

        x->p[1 + 2 * i] = (struct pollfd){.fd = agent_relay_conn_fd(c),
                                          .events = agent_relay_conn_reads(c) ? POLLIN : POLLOUT};
        x->p[2 + 2 * i] = (struct pollfd){.fd = c->phase == READ_ANSWER ? c->client : -1};
    }
}

void agent_relay(int listener, const char *agent)
{
    struct agent_relay x = {0};

    for (;;) {
        agent_relay_watch(&x, listener);
        if (poll(x.p, 1 + 2 * x.n, -1) < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        /* Backwards: the last connection, already handled, takes the place of one that ended. */
        for (size_t i = x.n; i-- > 0;) {
            const struct pollfd *p = &x.p[1 + 2 * i];

            if (p[1].revents || (p[0].revents && !agent_conn_step(&x.conns[i]))) {
                agent_conn_done(&x.conns[i]);
                x.conns[i] = x.conns[--x.n];
            }
        }
        if (x.p[0].revents & (POLLERR | POLLHUP | POLLNVAL))
            break;
        if (x.p[0].revents && agent_relay_conn_open(&x.conns[x.n], listener, agent))
            x.n++;
    }
    while (x.n)
        agent_conn_done(&x.conns[--x.n]);
}
