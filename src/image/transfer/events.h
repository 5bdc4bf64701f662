/* How far a transfer is, as JSON lines on a descriptor. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* {"progress": {"step", "layers_done", "layers", "bytes", "total"}}. Negative: nobody reads it. */
int events_progress(int fd, const char *step, size_t done, size_t layers, uint64_t bytes,
                    uint64_t total);
