/*
 * An exec as a stream of JSON events: one line each (application/x-ndjson), or Server-Sent Events
 * if the client accepts text/event-stream. The id of an event is "STDOUT.STDERR", the offsets at
 * which a client continues that has this event. All on the loop.
 */
#pragma once

#include "daemon/api/exec-wire.h"

enum exec_events_kind { EXEC_EVENTS_NONE, EXEC_EVENTS_LINES, EXEC_EVENTS_SSE };

/* What the Accept header of the request asks for. */
enum exec_events_kind exec_events_wanted(const struct api_call *c);

/* Answers with the events of a new exec. Takes the caller's reference to it. req NULL: the client
 * has disconnected. */
void exec_events_start(struct http_req *req, struct exec *x, enum exec_events_kind kind,
                       const struct wire_config *config);
/* The same for an exec that is already running or has ended. Frees the call unless it fails. */
int exec_events_follow(struct api_call *c, struct sandbox *sb, const char *id,
                       struct output_stream_config *stream, enum exec_events_kind kind,
                       const struct wire_config *config, struct err *err);
