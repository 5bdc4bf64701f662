/*
 * The start of a command that nobody is attached to: answered when it runs, or could not be run.
 */
#pragma once

#include "daemon/api/call.h"

struct exec_request;

/* In the sandbox of the call's first parameter. Empties the request and frees the call. The answer
 * is {KEY: EXEC}. */
void starting_begin(struct call *c, struct exec_request *req, const char *key);
