/*
 * What BuildKit tells while it builds: protobuf messages (moby.buildkit.v1.StatusResponse) in
 * base64 on lines of the engine's answer. Only what we show is taken out of them; what is malformed
 * is refused, and nothing is allocated for it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

/* Bytes of the message: not NUL-terminated, may be anything. */
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

/* Everything that came before what is malformed has been told. */
int trace_decode(const void *data, size_t len, const struct trace_events *events, void *arg,
                 struct err *err);
