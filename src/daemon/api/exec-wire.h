/*
 * Output on its way to a client: the exec wire (frames both ways on an upgraded connection) and
 * plain downloads of one stream.
 */
#pragma once

#include "daemon/api/call.h"
#include "daemon/core/exec/output-stream.h"

struct wire_config {
    struct loop *loop;
    struct manager *manager;
    bool run;        /* the sandbox is ephemeral: close when it has gone */
    bool kill;       /* what to do with the exec when the client goes */
    bool want_stdin; /* the client was promised one */
    bool stats;      /* END also tells what the package registry has served meanwhile */
};

/* Both streams from offset 0, followed. */
void wire_stream_config(struct output_stream_config *c);

/* Answers 101 and serves the exec. Takes the exec's reference. req NULL: the client has gone. */
void wire_start(struct http_req *req, struct exec *x, const struct wire_config *config);
/* The same for an exec that runs already or has ended; frees the call unless it fails. */
int wire_attach(struct api_call *c, struct sandbox *sb, const char *id,
                struct output_stream_config *stream, const struct wire_config *config,
                struct err *err);

/* A chunked response with the bytes of one stream; frees the call unless it fails. */
int download_start(struct api_call *c, struct sandbox *sb, const char *id,
                   struct output_stream_config *stream, struct err *err);
