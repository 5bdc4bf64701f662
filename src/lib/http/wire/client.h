/*
 * A small blocking HTTP client for the CLI and the relay: unix socket or TCP, one request at a time
 * on a kept-alive connection.
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
    bool unread;        /* the peer has gone without a word, before it had all of the last request;
                         * to be relied upon over a unix socket */
    bool is_head;       /* the last request was HEAD: its response has no body */
    struct deadline by; /* applies to each wait; DEADLINE_NEVER by default */
    int stop_fd;        /* borrowed; readable: every wait ends with ERR_TIMEOUT. -1 by default */
    const char *host;   /* borrowed; of the Host field. "localhost" by default */
    const char *bearer; /* borrowed; sent as authorization, or NULL */
};

void http_client_init(struct http_client *c, int fd); /* takes the fd */
void http_client_done(struct http_client *c);

/* Sends the request; body may be NULL. extra: further header lines, each "Name: value\r\n", or
 * NULL. */
int http_client_send(struct http_client *c, const char *method, const char *target,
                     const char *extra, const char *content_type, const void *body, size_t len,
                     struct err *err);
/* A request whose body comes in pieces: the head, then http_client_put() for each piece and once
 * with len 0 at its end. */
int http_client_begin(struct http_client *c, const char *method, const char *target,
                      const char *content_type, struct err *err);
/* 1; 0 when the peer has answered already and takes no more: read its answer. */
int http_client_put(struct http_client *c, const void *data, size_t len, struct err *err);
/* Reads the response head into c->head; interim 1xx other than 101 are skipped. */
int http_client_head(struct http_client *c, struct err *err);
/* Body bytes, 0 at its end. A body cut short is an error. */
ssize_t http_client_read(struct http_client *c, void *data, size_t len, struct err *err);
/* The whole body, at most max. */
int http_client_body(struct http_client *c, size_t max, struct buf *ret, struct err *err);
/* After a 101: hands out the fd and what was read beyond the head (append to *early). */
int http_client_upgraded(struct http_client *c, struct buf *early);
