/*
 * What ripcord-build asks for is done on threads of its build, several at once: commands, and
 * images and files to be brought in. The answers are lines to it, each with the "id" of its
 * question.
 */
#pragma once

#include "daemon/engine/native/native.h"
#include "lib/base/json.h"

struct serve;

/* to: where lines go; borrowed. The task's cancel_fd is set here. */
int serve_new(const struct native_task *task, int to, struct serve **ret, struct err *err);
/* Ends what is under way and waits for it. NULL is fine. */
void serve_free(struct serve *s);

int serve_send(struct serve *s, const json_t *doc, struct err *err);
/* Whether it is for serve_begin: {"run": …}, {"pull": …} or {"fetch": …}. */
bool serve_is_question(const json_t *doc);
/* One, of a step; taken. */
int serve_begin(struct serve *s, unsigned step, json_t *ask, struct err *err);
/* No answer will be needed: what is under way ends with an error. */
void serve_cancel(struct serve *s);
