/*
 * The output of an exec on its way to a client: the exec wire (frames in both directions on an
 * upgraded connection, proto/exec-frames.h) and plain downloads of one stream. All on the loop's
 * thread.
 */
#pragma once

#include "daemon/api/call.h"
#include "daemon/core/exec/output-stream.h"

struct wire_config {
    struct loop *loop;
    struct manager *manager;
    bool run;           /* the sandbox is ephemeral: the connection ends after its removal */
    bool kill;          /* end the exec when the client disconnects */
    bool stats;         /* END also has what the package cache served during the exec */
    const char *socket; /* the sub-protocol of a WebSocket, see exec-socket.h; NULL: raw frames */
};

/* The client has disconnected before the end of its exec (NULL: it had ended before). */
void wire_client_gone(const struct wire_config *config, struct exec *x);
/* The document of FRAME_STARTED. New reference. */
json_t *wire_started_json(const struct wire_config *config, const struct exec *x);

/* Sets up both streams, from offset 0 and followed. */
void wire_stream_config(struct output_stream_config *c);

/* Answers 101 and serves the exec. Takes the caller's reference to it. req NULL: the client has
 * disconnected. */
void wire_start(struct http_req *req, struct exec *x, const struct wire_config *config);
/* The same for an exec that is already running or has ended. Frees the call unless it fails. */
int wire_attach(struct api_call *c, struct sandbox *sb, const char *id,
                struct output_stream_config *stream, const struct wire_config *config,
                struct err *err);

/* Answers with the bytes of one stream, chunked. Frees the call unless it fails. */
int download_start(struct api_call *c, struct sandbox *sb, const char *id,
                   struct output_stream_config *stream, struct err *err);
