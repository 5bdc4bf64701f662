/*
 * A progress line on stderr for copies that take longer than half a second. It is shown only on a
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
/* Counts more copied bytes and redraws the line when it is due. */
void progress_add(struct progress *p, uint64_t bytes);
/* Erases the line. */
void progress_done(struct progress *p);
