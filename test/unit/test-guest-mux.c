#include "tap.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "proto/guest-mux.h"

enum { QUEUE_MAX = 1 << 20 };

/* One end of a stream with one channel; the test holds the other end of its socket. */
struct end {
    struct guest_mux set;
    struct guest_channel c;
    struct buf out;
    int fd;
};

static void end_done(struct end *e)
{
    if (e->set.n)
        guest_mux_remove(&e->set, &e->c);
    fd_close(e->fd);
    buf_done(&e->out);
}
#define _cleanup_end_ __attribute__((cleanup(end_done)))

static bool end_open(struct end *e, enum guest_side side)
{
    int pair[2];

    *e = (struct end){.set.side = side, .out = BUF_INIT(QUEUE_MAX), .fd = -1};
    e->set.out = &e->out;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return false;
    e->fd = pair[1];
    return guest_mux_add(&e->set, &e->c, pair[0]) == 1;
}

/* Passes all frames of one end to the other. */
static bool pass(struct end *from, struct end *to)
{
    struct guest_frame f;
    struct guest_channel *c;
    size_t used;

    while (guest_parse(buf_data(&from->out), from->out.len, from->set.side, &f, &used, NULL) == 1) {
        if (guest_mux_take(&to->set, &f, &c, NULL) < 0)
            return false;
        buf_consume(&from->out, used);
    }
    return from->out.len == 0;
}

/* The result of guest_mux_take() for a frame that the test makes. */
static int take(struct end *e, unsigned type, const void *payload, size_t len)
{
    struct guest_frame f = {.type = type, .length = (uint32_t)len, .data = payload};
    struct guest_channel *c = NULL;

    return guest_mux_take(&e->set, &f, &c, NULL);
}

TEST(both_ways_and_each_ends_by_itself)
{
    _cleanup_end_ struct end guest = {.fd = -1}, relay = {.fd = -1};
    char got[16];

    CHECK(end_open(&guest, GUEST_SIDE_GUEST) && end_open(&relay, GUEST_SIDE_RELAY));
    CHECK(write(guest.fd, "ask", 3) == 3 && shutdown(guest.fd, SHUT_WR) == 0);
    guest_channel_read(&guest.set, &guest.c);
    guest_channel_read(&guest.set, &guest.c);
    CHECK(guest.c.out_eof && !guest_channel_wants_read(&guest.set, &guest.c));
    CHECK(pass(&guest, &relay));
    CHECK(read(relay.fd, got, sizeof(got)) == 3 && memcmp(got, "ask", 3) == 0);
    CHECK(read(relay.fd, got, sizeof(got)) == 0 && relay.c.shut && !relay.c.over);
    CHECK(write(relay.fd, "answer", 6) == 6 && shutdown(relay.fd, SHUT_WR) == 0);
    guest_channel_read(&relay.set, &relay.c);
    guest_channel_read(&relay.set, &relay.c);
    CHECK(relay.c.over);
    CHECK(pass(&relay, &guest) && guest.c.over);
    CHECK(read(guest.fd, got, sizeof(got)) == 6 && memcmp(got, "answer", 6) == 0);
    CHECK(read(guest.fd, got, sizeof(got)) == 0);
}

static size_t drain(int fd)
{
    char chunk[8192];
    size_t sum = 0;
    ssize_t n;

    while ((n = read(fd, chunk, sizeof(chunk))) > 0)
        sum += (size_t)n;
    return sum;
}

/* Writes to one side until nothing moves; returns the number of bytes. */
static size_t fill(struct end *from, struct end *to)
{
    char chunk[4096] = {0};
    size_t sum = 0, before;
    ssize_t n;

    do {
        before = sum;
        while ((n = write(from->fd, chunk, sizeof(chunk))) > 0)
            sum += (size_t)n;
        while (guest_channel_wants_read(&from->set, &from->c))
            guest_channel_read(&from->set, &from->c);
        if (!pass(from, to) || !pass(to, from))
            return 0;
    } while (sum > before);
    return sum;
}

/* With a reader that reads nothing, at most one window is on the way, and all bytes arrive once it
 * reads. */
TEST(the_window_is_kept)
{
    _cleanup_end_ struct end guest = {.fd = -1}, relay = {.fd = -1};
    size_t sent, got = 0, n;

    CHECK(end_open(&guest, GUEST_SIDE_GUEST) && end_open(&relay, GUEST_SIDE_RELAY));
    sent = fill(&relay, &guest);
    CHECK(sent > GUEST_CHANNEL_WINDOW && relay.c.credit == 0);
    CHECK(guest.c.pending.len + guest.c.owed == GUEST_CHANNEL_WINDOW &&
          guest_channel_wants_write(&guest.c));
    CHECK(shutdown(relay.fd, SHUT_WR) == 0);
    while (!guest.c.shut) {
        n = drain(guest.fd);
        got += n;
        guest_channel_write(&guest.set, &guest.c);
        CHECK(n > 0 && pass(&guest, &relay) && relay.c.credit <= GUEST_CHANNEL_WINDOW);
        while (guest_channel_wants_read(&relay.set, &relay.c) &&
               relay.out.len < GUEST_CHANNEL_CHUNK)
            guest_channel_read(&relay.set, &relay.c);
        CHECK(pass(&relay, &guest));
    }
    got += drain(guest.fd);
    CHECK(got == sent && !relay.set.choked && !guest.set.choked);
}

TEST(rules_are_kept)
{
    _cleanup_free_ char *large = calloc(1, 4 + GUEST_CHANNEL_WINDOW + 1);
    static const char one[] = "\0\0\0\1x", two[] = "\0\0\0\2x", none[] = "\0\0\0\0x";
    static const char ack[] = "\0\0\0\1\0\0\0\1", ack_0[] = "\0\0\0\1\0\0\0\0";
    static const char ack_all[] = "\0\0\0\1\xff\xff\xff\xff";
    _cleanup_end_ struct end e = {.fd = -1};

    CHECK(large && end_open(&e, GUEST_SIDE_RELAY));
    large[3] = 1;
    CHECK(take(&e, GUEST_CALL_DATA, two, 5) == -ERR_INVALID);
    CHECK(take(&e, GUEST_CALL_DATA, none, 5) == -ERR_INVALID);
    CHECK(take(&e, GUEST_STDOUT, one, 5) == -ERR_INVALID);
    CHECK(take(&e, GUEST_ANSWER_DATA, one, 5) == -ERR_INVALID); /* a type of our own side */
    CHECK(take(&e, GUEST_CALL_OPEN, one, 4) == -ERR_INVALID);   /* the owner must handle it */
    CHECK(take(&e, GUEST_CALL_ACK, ack, 8) == -ERR_INVALID);    /* nothing was sent */
    CHECK(take(&e, GUEST_CALL_ACK, ack_0, 8) == -ERR_INVALID);
    e.c.credit -= 1000;
    CHECK(take(&e, GUEST_CALL_ACK, ack, 8) == 1 && e.c.credit == GUEST_CHANNEL_WINDOW - 999);
    CHECK(take(&e, GUEST_CALL_ACK, ack_all, 8) == -ERR_INVALID);
    CHECK(take(&e, GUEST_CALL_DATA, large, 4 + GUEST_CHANNEL_WINDOW + 1) == -ERR_INVALID);
    CHECK(take(&e, GUEST_CALL_EOF, one, 4) == 1);
    CHECK(take(&e, GUEST_CALL_DATA, one, 5) == -ERR_INVALID);
    CHECK(take(&e, GUEST_CALL_EOF, one, 4) == -ERR_INVALID);
}

TEST(late_words_are_dropped)
{
    static const char one[] = "\0\0\0\1x";
    _cleanup_end_ struct end e = {.fd = -1};

    CHECK(end_open(&e, GUEST_SIDE_GUEST));
    CHECK(take(&e, GUEST_ANSWER_CLOSE, one, 4) == 1 && e.c.over);
    CHECK(take(&e, GUEST_ANSWER_DATA, one, 5) == 0);
    guest_mux_remove(&e.set, &e.c);
    CHECK(e.set.n == 0 && take(&e, GUEST_ANSWER_DATA, one, 5) == 0);
    CHECK(take(&e, GUEST_ANSWER_CLOSE, one, 4) == 0 && e.out.len == 0);
}

/* Two ends of a TCP connection on loopback. */
static bool tcp_pair(int ret[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    _cleanup_close_ int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(at);

    ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&at, len) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) < 0 ||
        connect(ret[0], (struct sockaddr *)&at, len) < 0)
        return false;
    ret[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    return ret[1] >= 0;
}

/* A truncated answer must not look like a complete one. */
TEST(what_breaks_is_reset)
{
    struct buf out = BUF_INIT(QUEUE_MAX);
    struct guest_mux set = {.side = GUEST_SIDE_GUEST, .out = &out};
    struct guest_channel c;
    int fds[2];
    char got;

    CHECK(tcp_pair(fds));
    CHECK(guest_mux_add(&set, &c, fds[1]) == 1);
    guest_mux_remove(&set, &c);
    CHECK(read(fds[0], &got, 1) < 0 && errno == ECONNRESET);
    fd_close(fds[0]);
    CHECK(tcp_pair(fds));
    CHECK(guest_mux_add(&set, &c, fds[1]) == 2);
    c.in_eof = true;
    guest_channel_write(&set, &c);
    CHECK(c.shut && read(fds[0], &got, 1) == 0 && shutdown(fds[0], SHUT_WR) == 0);
    while (!c.out_eof)
        guest_channel_read(&set, &c);
    CHECK(c.over);
    guest_mux_remove(&set, &c);
    CHECK(read(fds[0], &got, 1) == 0);
    fd_close(fds[0]);
    buf_done(&out);
}

TEST(a_broken_socket_is_reported)
{
    _cleanup_end_ struct end e = {.fd = -1};
    struct guest_frame f;
    size_t used;

    CHECK(end_open(&e, GUEST_SIDE_RELAY));
    e.fd = fd_close(e.fd);
    CHECK(take(&e, GUEST_CALL_DATA, "\0\0\0\1x", 5) == 1 && e.c.over);
    CHECK(guest_parse(buf_data(&e.out), e.out.len, GUEST_SIDE_RELAY, &f, &used, NULL) == 1);
    CHECK(f.type == GUEST_ANSWER_CLOSE && guest_get_u32(&f) == 1);
}

TEST(a_full_queue_is_noticed)
{
    _cleanup_end_ struct end e = {.fd = -1};

    CHECK(end_open(&e, GUEST_SIDE_RELAY));
    e.out.max = 10;
    guest_mux_refuse(&e.set, 1);
    CHECK(!e.set.choked && e.out.len == 9);
    guest_mux_refuse(&e.set, 1);
    CHECK(e.set.choked);
    guest_channel_read(&e.set, &e.c); /* finds no room, and changes nothing */
    CHECK(!e.c.over && e.out.len == 9);
}
