/*
 * The body of a build request. The context goes from the pipe into a file without a name, so that
 * a crash of the daemon leaves nothing behind. The secrets before it stay in memory.
 */
#pragma once

#include "lib/base/err.h"

struct build_body;
struct build_request;

/* On the build's worker: fills the request's context, secrets and logins. stop_fd: readable when
 * the build is cancelled. */
int build_body_take(const struct build_body *body, int stop_fd, struct build_request *req,
                    struct err *err);
