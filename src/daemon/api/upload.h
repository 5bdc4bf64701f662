/*
 * Writes a request's body of any length into a pipe that another process or thread reads. The
 * slower side holds the faster one back. The answer is sent when the reader's result arrives, with
 * upload_end(). All on the loop's thread.
 */
#pragma once

#include "daemon/api/call.h"

struct upload;

/* *ret_fd is the read end of the pipe; the caller owns it. The upload takes the request and frees
 * the call. On failure it returns NULL with *err, and the call is unchanged. */
struct upload *upload_start(struct api_call *call, int *ret_fd, struct err *err);
/* For a request whose answer is a stream. When the whole body is in the pipe, fn() gets the request
 * and the upload is freed. A NULL request: the peer has disconnected before; do not call
 * upload_end() then. fn() is never called after upload_end(). */
typedef void (*upload_whole_fn)(void *arg, struct http_req *req);
void upload_on_whole(struct upload *u, upload_whole_fn fn, void *arg);
/* The reader's result: an error, or the JSON of the answer. Call it once, also if the peer has
 * disconnected. The upload frees itself. */
void upload_end(struct upload *u, const struct err *err, const char *json);
