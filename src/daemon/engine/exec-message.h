/*
 * The EXEC message of an exec request (proto/supervisor.h). Only for engine/: the connection and
 * the handshake send it.
 */
#pragma once

#include "lib/base/err.h"
#include "proto/supervisor.h"

struct exec_request;

/*
 * EXEC; EXEC_FED when the request has input or secrets, which go beside it in a handover;
 * EXEC_LARGE when the command is too large for a message and goes there, too. Makes the message,
 * which the caller sends and releases, also after a failure. *ret_fd: the handover
 * (proto/handover.h), the caller's; -1 for EXEC, and after a failure.
 */
int exec_message_make(struct sup_writer *w, uint64_t seq, const struct exec_request *req,
                      int *ret_fd, struct err *err);
/* Whether the request needs EXEC_LARGE. */
bool exec_message_is_large(const struct exec_request *req);
