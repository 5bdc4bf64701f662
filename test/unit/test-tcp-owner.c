/* The owner of a connection's other end, from the kernel's table of sockets. */
#include "lib/os/tcp-owner.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "tap.h"

static const char row[] = "  12: 0100007F:D431 0100007F:1F90 01 00000000:00000000 02:000AFC80 "
                          "00000000  1234        0 123456 2 0000000000000000 20 4 30 10 -1\n";

TEST(a_row_of_the_table)
{
    uint32_t uid = 7;

    CHECK(tcp_owner_of_line(row, "0100007F:D431", "0100007F:1F90", &uid) && uid == 1234);
    CHECK(!tcp_owner_of_line(row, "0100007F:1F90", "0100007F:D431", &uid));
    CHECK(!tcp_owner_of_line(row, "0100007F:D431", "0100007F:1F9", &uid));
    CHECK(!tcp_owner_of_line("  sl  local_address rem_address   st tx_queue rx_queue", "sl",
                             "local_address", &uid));
    CHECK(!tcp_owner_of_line("", "", "", &uid));
    CHECK(!tcp_owner_of_line("1: a b", "a", "b", &uid));
}

/* Connects a socket of `family` and of user `uid` to a listener on IPv4; the listener's end. */
static int connection(int family, uid_t uid, int *ret_client)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 mapped = {
        .sin6_family = AF_INET6,
        .sin6_addr = {.s6_addr = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}}};
    _cleanup_close_ int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(at);

    *ret_client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(l, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(l, 1) < 0 ||
        getsockname(l, (struct sockaddr *)&at, &len) < 0 ||
        (uid && fchown(*ret_client, uid, (gid_t)-1) < 0))
        return -1;
    mapped.sin6_port = at.sin_port;
    if (family == AF_INET ? connect(*ret_client, (struct sockaddr *)&at, sizeof(at)) < 0
                          : connect(*ret_client, (struct sockaddr *)&mapped, sizeof(mapped)) < 0)
        return -1;
    return accept4(l, NULL, NULL, SOCK_CLOEXEC);
}

TEST(the_owner_of_the_other_end)
{
    static const int families[] = {AF_INET, AF_INET6};

    for (int i = 0; i < 2; i++) {
        _cleanup_close_ int client = -1, server = connection(families[i], 0, &client);

        CHECK(server >= 0);
        CHECK(tcp_peer_is_user(server, geteuid()));
        CHECK(!tcp_peer_is_user(server, geteuid() + 1));
    }
}

TEST(another_user_s_socket)
{
    _cleanup_close_ int client = -1, server = -1;

    if (geteuid() != 0)
        SKIP("needs root");
    server = connection(AF_INET, 4321, &client);
    CHECK(server >= 0);
    CHECK(tcp_peer_is_user(server, 4321) && !tcp_peer_is_user(server, 0));
}

TEST(one_that_has_gone_or_never_was)
{
    _cleanup_close_ int client = -1, server = connection(AF_INET, 0, &client);
    const struct linger at_once = {1, 0};

    CHECK(server >= 0 && !tcp_peer_is_user(0, geteuid()));
    setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    client = fd_close(client);
    CHECK(!tcp_peer_is_user(server, geteuid()));
}
