/*
 * Follows an exec to its end: copies its output, sends it our input and signals, handles the
 * terminal, and handles a reader of our output or a daemon that goes away.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cli/render.h"
#include "cli/stamps.h"
#include "client/stream.h"

struct follow_options {
    bool input;   /* send stdin */
    bool tty;     /* raw terminal, resize, detach keys */
    bool rejoin;  /* attach: send the size of the terminal first */
    bool reading; /* logs: signals end this program and are not sent to the command */
    bool stats;
    bool json;
    enum render_mode mode;
    struct stamps *stamps;                /* put a time before each line; or NULL */
    uint64_t timeout_ms, idle_timeout_ms; /* as requested, for messages; or 0 */
};

/* Returns the exit status, or -ERR_X. The caller keeps the stream. */
int follow(struct client_stream *s, const struct follow_options *o, struct err *err);
