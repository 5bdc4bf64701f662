/*
 * The EXEC message of an exec request (proto/supervisor.h). Only for engine/: the connection and
 * the handshake send it.
 */
#pragma once

#include "lib/base/err.h"
#include "proto/supervisor.h"

struct exec_request;

/* EXEC; or EXEC_FED when the request has input or secrets, which go beside it in a handover. */
enum sup_msg_type exec_message_type(const struct exec_request *req);
/* Adds the fields of the message. */
void exec_message_put(struct sup_writer *w, const struct exec_request *req);
/* *ret_fd: the handover (proto/handover.h); -1 for EXEC, and after a failure. */
int exec_message_handover(const struct exec_request *req, int *ret_fd, struct err *err);
