/*
 * An IP address with a port, as people write it: "127.0.0.1:7070", "[::1]:7070", "localhost:7070",
 * with "tcp://" before it or without. Names but for localhost are refused: the command line tool is
 * static, and what a name stands for is somebody else's to say.
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
/* Nobody but this machine can reach it, or is reached by it. */
bool address_is_loopback(const struct address *a);

/* Listening, not blocking; *a gets the port that was taken where it was 0. */
int address_listen(struct address *a, int *ret_fd, struct err *err);
/* Connected, blocking. */
int address_connect(const struct address *a, int *ret_fd, struct err *err);
