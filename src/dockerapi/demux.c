#include "dockerapi/demux.h"

#include <string.h>

#include "lib/base/guard.h"
#include "lib/base/macro.h"

static int demux_read_head(struct docker_demux *d, struct err *err)
{
    const unsigned char *h = d->head;

    if ((h[0] > DOCKER_STDERR || h[1] || h[2] || h[3]) && GUARD("frames"))
        return err_set(err, ERR_INVALID, "engine stream: invalid frame head (%02x %02x %02x %02x)",
                       h[0], h[1], h[2], h[3]);
    d->left = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7];
    if (d->left == 0)
        d->have = 0;
    return 0;
}

int docker_demux_next(struct docker_demux *d, const char *data, size_t len, size_t *used,
                      int *stream, size_t *off, size_t *n, struct err *err)
{
    size_t step = 0;

    *used = *off = *n = 0;
    *stream = d->head[0];
    if (d->have < sizeof(d->head)) {
        step = MIN(sizeof(d->head) - d->have, len);
        memcpy(d->head + d->have, data, step);
        d->have += step;
        *used = step;
        return d->have < sizeof(d->head) ? 0 : demux_read_head(d, err);
    }
    *n = MIN((size_t)d->left, len);
    *used = *n;
    d->left -= (uint32_t)*n;
    if (d->left == 0)
        d->have = 0;
    return 0;
}

bool docker_demux_complete(const struct docker_demux *d)
{
    return d->have == 0;
}
