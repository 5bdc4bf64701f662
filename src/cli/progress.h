/*
 * A line on stderr that tells how far a copy is, for whoever waits longer than half a second at a
 * terminal.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool on;
    bool shown;
    uint64_t started, last; /* time_mono() */
    uint64_t bytes;
};

void progress_init(struct progress *p, bool json);
/* That many bytes more have moved. */
void progress_add(struct progress *p, uint64_t bytes);
/* Takes the line away again. */
void progress_done(struct progress *p);
