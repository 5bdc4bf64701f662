/*
 * Following an exec to its end: its output to ours, our input and signals to it, the terminal, and
 * what to do when the reader of our output or the daemon goes away.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cli/render.h"
#include "client/stream.h"

struct follow_options {
    bool input;   /* pass stdin on */
    bool tty;     /* raw terminal, resize, detach keys */
    bool rejoin;  /* attach: the terminal's size is news to the exec */
    bool reading; /* only look (logs): signals end us and are not passed on */
    bool stats;
    bool json;
    enum render_mode mode;
    uint64_t timeout_ms, idle_timeout_ms; /* as asked for, for the words */
};

/* The exit status, or -ERR_X. The stream stays the caller's. */
int follow(struct client_stream *s, const struct follow_options *o, struct err *err);
