/*
 * An IP address with a port, as people write it: "127.0.0.1:7070", "[::1]:7070", "localhost:7070",
 * each with an optional "tcp://". Other host names are refused: the command line tool is a static
 * program without a resolver, and a name server could point a name at another machine.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
    socklen_t len;
};

enum { ADDRESS_MAX = INET6_ADDRSTRLEN + sizeof("[]:65535") };

int address_parse(const char *s, struct address *ret, struct err *err);
/* "127.0.0.1:7070", "[::1]:7070" */
const char *address_format(const struct address *a, char buf[static ADDRESS_MAX]);
uint16_t address_port(const struct address *a);
/* Whether only this machine can be reached at the address. */
bool address_is_loopback(const struct address *a);

/* A listening, non-blocking socket. When the port of *a is 0, *a gets the port that was chosen. */
int address_listen(struct address *a, int *ret_fd, struct err *err);
/* A connected, blocking socket. */
int address_connect(const struct address *a, int *ret_fd, struct err *err);
