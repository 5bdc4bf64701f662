#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "lib/base/parse.h"
#include "lib/base/time.h"

#define PROGRESS_AFTER (500 * USEC_PER_MSEC)
#define PROGRESS_EVERY (200 * USEC_PER_MSEC)

void progress_init(struct progress *p, bool json)
{
    *p = (struct progress){.on = !json && isatty(STDERR_FILENO), .started = time_mono()};
}

void progress_add(struct progress *p, uint64_t bytes)
{
    char done[FORMAT_MAX], speed[FORMAT_MAX];
    uint64_t now;

    p->bytes += bytes;
    if (!p->on)
        return;
    now = time_mono();
    if (now - p->started < PROGRESS_AFTER || now - p->last < PROGRESS_EVERY)
        return;
    p->last = now;
    p->shown = true;
    fprintf(stderr, "\r\033[K%s copied, %s/s", format_size(p->bytes, done),
            format_size(p->bytes * USEC_PER_SEC / (now - p->started), speed));
    fflush(stderr);
}

void progress_done(struct progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
}
