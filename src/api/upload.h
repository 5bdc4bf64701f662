/*
 * A request's body of any length into a descriptor that somebody else reads, each side held back by
 * the slower one; the answer comes when the reader has its verdict. For one-way uploads whose
 * reader is a pipe's other end.
 */
#pragma once

#include "api/call.h"

struct upload;

/* The pipe's read end is *ret_fd, the caller's. The request is the upload's from here on: the call
 * is freed. NULL and *err: nothing was begun, the call is still there. */
struct upload *upload_start(struct call *call, int *ret_fd, struct err *err);
/* The verdict, once: an error, or the answer's JSON. Frees the upload. The peer may have gone. */
void upload_end(struct upload *u, const struct err *err, const char *json);
