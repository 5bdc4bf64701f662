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

enum { HEAD = 4 }; /* a message's length */

/* A question goes to the agent and its answer back before the next one is read. */
enum agent_phase { ASKING, PASSING, WAITING, ANSWERING };

bool agent_may_ask(const void *message, size_t len)
{
    unsigned char kind = len ? *(const unsigned char *)message : 0;

    return (kind == AGENT_REQUEST_IDENTITIES && len == 1) || kind == AGENT_SIGN_REQUEST;
}

/* ---- lines ---- */

void agent_conn_init(struct agent_conn *l, int client, int agent)
{
    *l = (struct agent_conn){.client = client,
                             .agent = agent,
                             .phase = ASKING,
                             .message = xmalloc(HEAD + AGENT_MESSAGE_MAX),
                             .whole = HEAD};
}

void agent_conn_done(struct agent_conn *l)
{
    fd_close(l->client);
    fd_close(l->agent);
    free(l->message);
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

/* One that the agent does not take is hung up on, as the agent would do it. */
static bool agent_relay_conn_open(struct agent_conn *l, int listener, const char *agent)
{
    _cleanup_close_ int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int fd = client < 0 ? -1 : agent_dial(agent);

    if (fd < 0)
        return false;
    agent_conn_init(l, TAKE_FD(client), fd);
    return true;
}

static int agent_relay_conn_fd(const struct agent_conn *l)
{
    return l->phase == ASKING || l->phase == ANSWERING ? l->client : l->agent;
}

static bool agent_relay_conn_reads(const struct agent_conn *l)
{
    return l->phase == ASKING || l->phase == WAITING;
}

static void agent_relay_next_phase(struct agent_conn *l, enum agent_phase to)
{
    l->phase = to;
    l->len = 0;
    if (agent_relay_conn_reads(l))
        l->whole = HEAD;
}

/* A whole message is here. */
static void agent_relay_decide(struct agent_conn *l)
{
    static const char failure[] = {0, 0, 0, 1, AGENT_FAILURE};

    if (l->phase == WAITING) {
        agent_relay_next_phase(l, ANSWERING);
    } else if (agent_may_ask(l->message + HEAD, l->whole - HEAD)) {
        agent_relay_next_phase(l, PASSING);
    } else {
        memcpy(l->message, failure, sizeof(failure));
        l->whole = sizeof(failure);
        agent_relay_next_phase(l, ANSWERING);
    }
}

static bool agent_relay_read_length(struct agent_conn *l)
{
    uint32_t length;

    memcpy(&length, l->message, sizeof(length));
    length = ntohl(length);
    l->whole = HEAD + (size_t)length;
    return length > 0 && length <= AGENT_MESSAGE_MAX;
}

/* Never more than the message that is under way: what comes behind it stays with the kernel. */
static bool agent_relay_conn_read(struct agent_conn *l)
{
    ssize_t n = read(agent_relay_conn_fd(l), l->message + l->len, l->whole - l->len);

    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    l->len += (size_t)n;
    if (l->len < l->whole)
        return true;
    if (l->whole == HEAD)
        return agent_relay_read_length(l);
    agent_relay_decide(l);
    return true;
}

static bool agent_relay_conn_write(struct agent_conn *l)
{
    ssize_t n = send(agent_relay_conn_fd(l), l->message + l->len, l->whole - l->len, MSG_NOSIGNAL);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    l->len += (size_t)n;
    if (l->len == l->whole)
        agent_relay_next_phase(l, l->phase == PASSING ? WAITING : ASKING);
    return true;
}

bool agent_conn_step(struct agent_conn *l)
{
    return agent_relay_conn_reads(l) ? agent_relay_conn_read(l) : agent_relay_conn_write(l);
}

/* ---- all of them ---- */

struct agent_relay {
    struct agent_conn lines[AGENT_CONNS_MAX];
    size_t n;
    struct pollfd p[1 + 2 * AGENT_CONNS_MAX]; /* the listener, then two for each line */
};

/* Who waits for an answer may go meanwhile, which is the second one. */
static void agent_relay_watch(struct agent_relay *x, int listener)
{
    x->p[0] = (struct pollfd){.fd = x->n < AGENT_CONNS_MAX ? listener : -1, .events = POLLIN};
    for (size_t i = 0; i < x->n; i++) {
        const struct agent_conn *l = &x->lines[i];

        x->p[1 + 2 * i] = (struct pollfd){.fd = agent_relay_conn_fd(l),
                                          .events = agent_relay_conn_reads(l) ? POLLIN : POLLOUT};
        x->p[2 + 2 * i] = (struct pollfd){.fd = l->phase == WAITING ? l->client : -1};
    }
}

static bool agent_relay_conn_goes_on(struct agent_conn *l, const struct pollfd p[static 2])
{
    if (p[1].revents)
        return false;
    if (!p[0].revents)
        return true;
    return agent_conn_step(l);
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
        /* From behind: one that has ended makes room for the last, which has been looked at. */
        for (size_t i = x.n; i-- > 0;)
            if (!agent_relay_conn_goes_on(&x.lines[i], &x.p[1 + 2 * i])) {
                agent_conn_done(&x.lines[i]);
                x.lines[i] = x.lines[--x.n];
            }
        if (x.p[0].revents & (POLLERR | POLLHUP | POLLNVAL))
            break;
        if (x.p[0].revents && agent_relay_conn_open(&x.lines[x.n], listener, agent))
            x.n++;
    }
    while (x.n)
        agent_conn_done(&x.lines[--x.n]);
}
