/*
 * The relay between a build's command and an ssh agent. However the bytes are split, the agent gets
 * only the requests that change nothing. The command gets their answers, or "failure", in order. An
 * invalid length ends the connection.
 *
 * The first two bytes say how many of the rest are the command's; the others are the agent's.
 */
#include "image/build/agent-relay.h"

#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "lib/base/buf.h"
#include "lib/base/fd.h"

enum { INPUT_MAX = 64 << 10, HEAD = 4 };

struct bytes {
    const uint8_t *data;
    size_t len;
};

/* The bytes that each end has received. */
struct outcome {
    struct buf agent, client;
    bool cut;
};

static void outcome_done(struct outcome *o)
{
    buf_done(&o->agent);
    buf_done(&o->client);
}

/* ---- the expected result, from all bytes at once ---- */

/* 1: *ret is the next message, with its length; 0: incomplete; -1: invalid length. */
static int next_message(struct bytes *from, struct bytes *ret)
{
    const uint8_t *p = from->data;
    size_t len;

    if (from->len < HEAD)
        return 0;
    len = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
    if (len == 0 || len > AGENT_MESSAGE_MAX)
        return -1;
    if (from->len - HEAD < len)
        return 0;
    *ret = (struct bytes){p, HEAD + len};
    *from = (struct bytes){p + HEAD + len, from->len - HEAD - len};
    return 1;
}

/* Only a list of keys, which is one byte, and a signature may pass. */
static bool changes_nothing(const struct bytes *m)
{
    return (m->data[HEAD] == 11 && m->len == HEAD + 1) || m->data[HEAD] == 13;
}

static void expect(struct bytes client, struct bytes agent, struct outcome *ret)
{
    struct bytes m;
    int r;

    while ((r = next_message(&client, &m)) == 1) {
        if (!changes_nothing(&m)) {
            MUST(buf_append(&ret->client, "\0\0\0\1\5", 5) == 0);
            continue;
        }
        MUST(buf_append(&ret->agent, m.data, m.len) == 0);
        r = next_message(&agent, &m);
        if (r != 1)
            break;
        MUST(buf_append(&ret->client, m.data, m.len) == 0);
    }
    ret->cut = r < 0;
}

/* ---- the actual result ---- */

/* False: nothing is left, or the socket is full. */
static bool feed(int fd, struct bytes *b, size_t step)
{
    ssize_t n = b->len ? send(fd, b->data, MIN(b->len, step), MSG_NOSIGNAL) : 0;

    if (n <= 0)
        return false;
    *b = (struct bytes){b->data + n, b->len - (size_t)n};
    return true;
}

static void drain(int fd, struct buf *to)
{
    char chunk[4096];
    ssize_t n;

    while ((n = read(fd, chunk, sizeof(chunk))) > 0)
        MUST(buf_append(to, chunk, (size_t)n) == 0);
}

/* False: nothing happened. */
static bool step_once(struct agent_conn *l, struct outcome *o)
{
    int phase = l->phase;
    size_t len = l->len;

    o->cut = !agent_conn_step(l);
    MUST(o->cut || l->len <= l->whole);
    return !o->cut && (l->phase != phase || l->len != len);
}

static void run(struct bytes client, struct bytes agent, size_t step, struct outcome *ret)
{
    struct agent_conn l;
    int c[2], a[2];
    bool fed = true;

    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, c) == 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, a) == 0);
    agent_conn_init(&l, c[0], a[0]);
    while (fed && !ret->cut) {
        fed = feed(c[1], &client, step);
        fed = feed(a[1], &agent, step) || fed;
        while (step_once(&l, ret)) {
            drain(c[1], &ret->client);
            drain(a[1], &ret->agent);
        }
    }
    agent_conn_done(&l);
    fd_close(c[1]);
    fd_close(a[1]);
}

static void check(struct bytes client, struct bytes agent, size_t step, const struct outcome *right)
{
    struct outcome o = {BUF_INIT(2 * INPUT_MAX), BUF_INIT(2 * INPUT_MAX), false};

    run(client, agent, step, &o);
    MUST(o.cut == right->cut && o.agent.len == right->agent.len &&
         o.client.len == right->client.len);
    MUST(memcmp(buf_data(&o.agent), buf_data(&right->agent), o.agent.len) == 0);
    MUST(memcmp(buf_data(&o.client), buf_data(&right->client), o.client.len) == 0);
    outcome_done(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome right = {BUF_INIT(2 * INPUT_MAX), BUF_INIT(2 * INPUT_MAX), false};
    struct bytes client, agent;
    size_t n;

    if (size < 2 || size > INPUT_MAX)
        return 0;
    n = MIN((size_t)data[0] << 8 | data[1], size - 2);
    client = (struct bytes){data + 2, n};
    agent = (struct bytes){data + 2 + n, size - 2 - n};
    expect(client, agent, &right);
    check(client, agent, INPUT_MAX, &right);
    check(client, agent, 3, &right);
    outcome_done(&right);
    return 0;
}
