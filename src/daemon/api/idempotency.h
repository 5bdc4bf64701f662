/*
 * `Idempotency-Key`: a client that gets no answer sends its request again, with the same key, and
 * gets the answer of the first one. The key itself belongs to daemon/core/requests/request-key.h.
 * This file connects it to a call: the header, the digest of the request, and the answer. Routes
 * with ROUTE_KEY take a key. All on the loop.
 *
 * Answers that are kept are those after which something exists: 2xx except 202, which only says
 * that a command goes on. A request that failed may be sent again with its key.
 */
#pragma once

#include "daemon/api/call.h"

/* Reads the header into the call. 0, or the status of the refusal with *err filled. Call it before
 * the body is parsed. */
int idempotency_read(struct api_call *c, struct err *err);
/* Before the handler: false if the call was answered (again, or because of its key) and freed. */
bool idempotency_admit(struct api_call *c);
/* The key of this call; NULL without one. */
struct request_key *idempotency_key(const struct api_call *c);

/* call_reply*() calls these with each answer, before it is sent. */
void idempotency_answered(struct api_call *c, int status, const char *json);
void idempotency_failed(struct api_call *c);
/* The answer is not that of the first request, or was not made by this one. */
bool idempotency_is_repeat(const struct api_call *c);
void idempotency_done(struct api_call *c);
