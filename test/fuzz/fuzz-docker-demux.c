/*
 * Frames of a hijacked stream: the payload must not depend on how the bytes are cut.
 */
#include "dockerapi/demux.h"
#include "fuzz.h"
#include "lib/base/buf.h"

/* Payload of both streams, each byte after its stream's number. -1 where the bytes are refused,
 * else whether they end between two frames. */
static int run(const uint8_t *data, size_t size, size_t step, struct buf *out)
{
    struct docker_demux d = DOCKER_DEMUX_INIT;
    size_t pos = 0;

    while (pos < size) {
        size_t have = size - pos < step ? size - pos : step, used, off, n;
        char *copy = fuzz_copy(data + pos, have);
        int stream, r = docker_demux_next(&d, copy, have, &used, &stream, &off, &n, NULL);

        if (r < 0) {
            free(copy);
            return -1;
        }
        MUST(used > 0 && used <= have && off + n <= used);
        for (size_t i = 0; i < n; i++) {
            MUST(buf_append_c(out, (char)stream) >= 0);
            MUST(buf_append_c(out, copy[off + i]) >= 0);
        }
        free(copy);
        pos += used;
    }
    return docker_demux_complete(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole = BUF_INIT(2 * size), cut = BUF_INIT(2 * size);
    int a = run(data, size, size ? size : 1, &whole), b = run(data, size, 3, &cut);

    MUST(a == b && whole.len == cut.len);
    MUST(memcmp(buf_data(&whole), buf_data(&cut), whole.len) == 0);
    buf_done(&whole);
    buf_done(&cut);
    return 0;
}
