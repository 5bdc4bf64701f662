/*
 * A request with a body that is made while it is sent: small writes become large pieces, and the
 * request begins with the first of them, so that what fails before it costs the daemon nothing.
 */
#pragma once

#include "cli/progress.h"
#include "client/client.h"
#include "lib/base/tar.h"

struct sender {
    struct client *client;
    const char *method;
    char *target;     /* owned */
    const char *type; /* of the body */
    char *piece;      /* owned */
    size_t len;
    bool begun, answered; /* the daemon has said something before the end: an error */
    struct err failure;
    struct progress progress;
};

/* Takes the target. The body is a tar, unless another type is set. */
void sender_init(struct sender *s, struct client *c, const char *method, char *target, bool json);
void sender_done(struct sender *s);
/* tar_write_fn; the argument is the sender. -EPIPE: sender_end() tells why. */
int sender_write(void *arg, const void *data, size_t len);
/* All that `read` gives, as it comes: 0, its -errno, or -EPIPE as above. */
int sender_pass(struct sender *s, tar_read_fn read, void *arg);
/* The same of a descriptor. */
int sender_pass_fd(struct sender *s, int fd, const char *name, struct err *err);
/*
 * The body is whole, or (r < 0, *err is filled) cannot be made: the connection is cut then, so that
 * it is not taken for whole over there. A failure of the sending itself replaces *err. Then the
 * answer is to be read.
 */
int sender_end(struct sender *s, int r, struct err *err);
