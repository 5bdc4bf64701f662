/*
 * A small blocking HTTP client for the CLI, the daemon's engines and the relay. It works on a unix
 * socket or TCP, with one request at a time on a kept-alive connection.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/buf.h"
#include "lib/base/time.h"
#include "lib/http/wire/http.h"

struct http_client {
    int fd; /* owned */
    struct buf in;
    char *head_mem; /* owned copy of the last head */
    struct http_head head;
    struct http_chunked chunked;
    uint64_t body_left;
    bool unread;        /* the peer closed without an answer, before it had read all of the last
                         * request; reliable on unix sockets only */
    bool is_head;       /* the last request was HEAD: its response has no body */
    struct deadline by; /* applies to each wait; DEADLINE_NEVER by default */
    int stop_fd;      /* borrowed; once readable, every wait ends with ERR_TIMEOUT. -1 by default */
    const char *host; /* borrowed; the Host field. "localhost" by default */
    const char *bearer; /* borrowed; bearer token for the Authorization field, or NULL */
};

void http_client_init(struct http_client *c, int fd); /* takes the fd */
void http_client_done(struct http_client *c);

/* Sends the request; body may be NULL. extra: more header lines, each "Name: value\r\n", or
 * NULL. */
int http_client_send(struct http_client *c, const char *method, const char *target,
                     const char *extra, const char *content_type, const void *body, size_t len,
                     struct err *err);
/* Sends the head of a request whose body comes in pieces. Then call http_client_put() for each
 * piece, and with len 0 at the end. */
int http_client_begin(struct http_client *c, const char *method, const char *target,
                      const char *content_type, struct err *err);
/* 1: sent; 0: the peer has already answered and reads no more, so read its answer. */
int http_client_put(struct http_client *c, const void *data, size_t len, struct err *err);
/* Reads the response head into c->head; interim 1xx other than 101 are skipped. */
int http_client_head(struct http_client *c, struct err *err);
/* Reads body bytes; 0 at the end. A truncated body is an error. */
ssize_t http_client_read(struct http_client *c, void *data, size_t len, struct err *err);
/* Reads the whole body of at most max bytes. */
int http_client_body(struct http_client *c, size_t max, struct buf *ret, struct err *err);
/* After a 101: returns the fd, and appends bytes that were read after the head to *early. */
int http_client_upgraded(struct http_client *c, struct buf *early);
