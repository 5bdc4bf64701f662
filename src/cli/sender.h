/*
 * Sends a request whose body is produced during the upload. Small writes are collected into large
 * pieces. The request starts with the first piece, so an earlier failure costs the daemon nothing.
 */
#pragma once

#include "cli/progress.h"
#include "client/client.h"
#include "lib/base/tar.h"

struct sender {
    struct client *client;
    const char *method;
    char *target;     /* owned */
    const char *type; /* content type of the body */
    char *piece;      /* owned */
    size_t len;
    bool begun;    /* the request was started */
    bool answered; /* the daemon responded before the end of the body: with an error */
    struct err failure;
    struct progress progress;
};

/* Takes ownership of target. The content type is tar unless s->type is changed. */
void sender_init(struct sender *s, struct client *c, const char *method, char *target, bool json);
void sender_done(struct sender *s);
/* A tar_write_fn whose argument is the sender. Returns -EPIPE when the daemon stops reading;
 * sender_end() has the reason. */
int sender_write(void *arg, const void *data, size_t len);
/* Sends all that `read` returns. Returns 0, the -errno of `read`, or -EPIPE as above. */
int sender_pass(struct sender *s, tar_read_fn read, void *arg);
/* The same for a descriptor. */
int sender_pass_fd(struct sender *s, int fd, const char *name, struct err *err);
/*
 * Ends the body. r < 0 with *err filled: the body could not be produced, so the connection is
 * closed and the daemon sees an incomplete request. A failure of the upload itself replaces *err.
 * On success the caller reads the response.
 */
int sender_end(struct sender *s, int r, struct err *err);
