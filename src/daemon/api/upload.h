/*
 * A request's body of any length into a descriptor that somebody else reads, each side held back by
 * the slower one; the answer comes when the reader has its verdict. For one-way uploads whose
 * reader is a pipe's other end.
 */
#pragma once

#include "daemon/api/call.h"

struct upload;

/* The pipe's read end is *ret_fd, the caller's. The request is the upload's from here on: the call
 * is freed. NULL and *err: nothing was begun, the call is still there. */
struct upload *upload_start(struct call *call, int *ret_fd, struct err *err);
/* For a request whose answer is a stream: when its whole body has gone into the pipe, the request
 * is handed over and the upload is freed. NULL: the peer has gone before, and no verdict is wanted.
 * Never called after upload_end(). */
typedef void (*upload_whole_fn)(void *arg, struct http_req *req);
void upload_on_whole(struct upload *u, upload_whole_fn fn, void *arg);
/* The verdict, once: an error, or the answer's JSON. Frees the upload. The peer may have gone. */
void upload_end(struct upload *u, const struct err *err, const char *json);
