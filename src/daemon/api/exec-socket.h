/*
 * The exec wire on a WebSocket. Two sub-protocols:
 *
 *   ripcord-exec.v1      each frame of proto/exec-frames.h is one binary message
 *   ripcord-terminal.v1  for browsers: binary messages are input and output without any framing of
 *                        ours; text messages are JSON that controls the exec and reports about it
 *
 * The peer is pinged; one that does not answer is dropped. All on the loop's thread.
 */
#pragma once

#include "lib/http/server/http-server.h"
#include "lib/http/wire/websocket.h"
#include "proto/exec-frames.h"

#define EXEC_SOCKET_FRAMES "ripcord-exec.v1"
#define EXEC_SOCKET_TERMINAL "ripcord-terminal.v1"

struct loop;
struct exec_socket;

struct exec_socket_config {
    struct loop *loop;
    struct http_req *req;
    const char *protocol; /* one of the two above */
    /* A frame of the client, of the types 1 to 5. Below 0: the connection ends. */
    int (*on_frame)(void *arg, const struct frame *f);
    /* The peer did not answer a ping. The callee frees the socket. */
    void (*on_dead)(void *arg);
    void *arg;
};

/* The sub-protocol of this request: one of the two, or NULL if it offers neither. */
const char *exec_socket_protocol(const struct http_head *head);

/* Answers 101. The request's events stay the caller's. */
struct exec_socket *exec_socket_start(const struct exec_socket_config *config,
                                      const struct http_raw_events *events);
void exec_socket_free(struct exec_socket *k); /* NULL is fine */

/* Bytes of the peer. Below 0: the connection has ended, and a close frame is on its way. */
int exec_socket_receive(struct exec_socket *k, const char *data, size_t len);
void exec_socket_read(struct exec_socket *k, bool on); /* in place of http_raw_read() */
void exec_socket_drained(struct exec_socket *k);       /* from on_drain */

/* A whole frame of the types 16 to 21. exec_socket_take() takes a malloc'd block. */
void exec_socket_send(struct exec_socket *k, const char *frame, size_t len);
void exec_socket_take(struct exec_socket *k, char *owned, size_t len);
void exec_socket_close(struct exec_socket *k, enum websocket_code code);
