/*
 * Copies of what core hands over: a worker never sees the caller's own struct. For engine/ only;
 * sandbox_spec_*() and exec_request_done() are in engine.h.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

struct sandbox_request;
struct exec_request;
struct sup_writer;
struct sandbox_spec;

void sandbox_request_copy(struct sandbox_request *dst, const struct sandbox_request *src);
void sandbox_request_done(struct sandbox_request *req);

/* The fields of an EXEC message (supervisor-calls.c). */
void exec_request_put(struct sup_writer *w, const struct exec_request *req);
/* Which message carries it: EXEC, or EXEC_FED and *ret_fd, the handover beside it; else -1. */
enum sup_msg_type exec_request_type(const struct exec_request *req);
int exec_request_handover(const struct exec_request *req, int *ret_fd, struct err *err);
/* The environment of the sandbox's commands: what every program expects, then `more` (of an image;
 * may be NULL), then ~/.local/bin in front of their PATH, then the spec's `own`. A new strv. */
char **spec_environment(const char *user, char *const *own, char *const *more);

/* The longest sandbox_request.spec_text that is read back. */
enum { SPEC_TEXT_MAX = 1 << 20 };

/* A sandbox id: 16 hex digits. Anything else is refused before it becomes part of a path. */
bool sandbox_id_is_valid(const char *id);
/* Names in a folder that are sandbox ids, added to *ids once each. */
int sandbox_ids_add(int dirfd, char ***ids, struct err *err);
