#include "image/transfer/events.h"

#include <stdio.h>

#include "lib/base/fd.h"

int events_progress(int fd, const char *step, size_t done, size_t layers, uint64_t bytes,
                    uint64_t total)
{
    char line[256];
    int n =
        snprintf(line, sizeof(line),
                 "{\"progress\":{\"step\":\"%s\",\"layers_done\":%zu,\"layers\":%zu,\"bytes\":%llu,"
                 "\"total\":%llu}}\n",
                 step, done, layers, (unsigned long long)bytes, (unsigned long long)total);

    return fd_write_all(fd, line, (size_t)n);
}
