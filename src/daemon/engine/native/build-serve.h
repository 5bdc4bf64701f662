/*
 * The requests of ripcord-build: run a command, pull an image, download a file. Each is carried out
 * on a thread of its own, several at once. The answer is a line to ripcord-build with the "id" of
 * its request.
 */
#pragma once

#include "daemon/engine/native/native.h"
#include "lib/base/json.h"

struct build_serve;

/* to: the pipe to ripcord-build; borrowed. The task's cancel_fd is set here. */
int build_serve_new(const struct native_task *task, int to, struct build_serve **ret,
                    struct err *err);
/* Cancels the running requests and waits for their threads. NULL is fine. */
void build_serve_free(struct build_serve *s);

int build_serve_send(struct build_serve *s, const json_t *doc, struct err *err);
/* Whether the message is a request: {"run": …}, {"pull": …} or {"fetch": …}. */
bool build_serve_is_request(const json_t *doc);
/* Starts the request of a step; takes `ask`. */
int build_serve_begin(struct build_serve *s, unsigned step, json_t *ask, struct err *err);
/* The answers are not needed any more: running requests end with an error. */
void build_serve_cancel(struct build_serve *s);
