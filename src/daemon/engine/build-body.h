/*
 * The body of a request to build: read from a pipe into a file without a name, so that nothing of
 * it is left whatever happens to the daemon; what is secret before it stays in memory.
 */
#pragma once

#include "lib/base/err.h"

struct build_body;
struct build_request;

/* On the build's worker: fills the request's context, secrets and logins. stop_fd: readable ends
 * it. */
int build_body_take(const struct build_body *body, int stop_fd, struct build_request *req,
                    struct err *err);
