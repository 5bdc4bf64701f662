/*
 * Starts a detached command and answers when it runs, or when its start has failed.
 */
#pragma once

#include "daemon/api/call.h"

struct exec;
struct exec_request;

/* Runs it in the sandbox of the call's first parameter. Takes the content of *req, and frees the
 * call. The answer is {key: EXEC}. */
void starting_begin(struct api_call *c, struct exec_request *req, const char *key);
/* The same for a live exec. Takes the caller's reference to it. */
void starting_follow(struct api_call *c, struct exec *x, const char *key);
