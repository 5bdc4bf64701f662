/*
 * Decodes BuildKit's progress messages: protobuf (moby.buildkit.v1.StatusResponse), which the
 * engine sends as base64 in the lines of its answer. Only the fields that we show are decoded.
 * Malformed messages are refused. Nothing is allocated.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

/* Bytes in the message: any content, not NUL-terminated. */
struct trace_text {
    const char *p;
    size_t len;
};

struct trace_vertex {
    struct trace_text digest, name, error;
    bool cached, started, completed;
};

struct trace_status {
    struct trace_text vertex, id;
    uint64_t current, total;
};

struct trace_log {
    struct trace_text vertex, text;
    unsigned stream; /* 1 or 2 */
};

struct trace_events {
    void (*vertex)(void *arg, const struct trace_vertex *v);
    void (*status)(void *arg, const struct trace_status *s);
    void (*log)(void *arg, const struct trace_log *l);
    void (*warning)(void *arg, struct trace_text text);
};

/* Calls the events in order. After a failure, those before the malformed part were called. */
int trace_decode(const void *data, size_t len, const struct trace_events *events, void *arg,
                 struct err *err);
