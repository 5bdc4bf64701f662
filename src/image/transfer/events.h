/* Progress of a transfer, as JSON lines on a descriptor. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Writes {"progress": {"step", "layers_done", "layers", "bytes", "total"}}. Negative: the reader
 * has gone.
 */
int events_progress(int fd, const char *step, size_t done, size_t layers, uint64_t bytes,
                    uint64_t total);
