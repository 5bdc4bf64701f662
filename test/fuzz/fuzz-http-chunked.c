/*
 * The chunk decoder: whole and byte by byte must give the same verdict, the same body and the same
 * end.
 */
#include "fuzz.h"
#include "lib/base/buf.h"
#include "lib/base/macro.h"
#include "lib/http/wire/http.h"

struct outcome {
    int r;
    bool done;
    size_t consumed;
    struct buf body;
};

static void decode(const char *data, size_t size, size_t step, struct outcome *o)
{
    struct http_chunked c = HTTP_CHUNKED_INIT;

    *o = (struct outcome){.body = BUF_INIT(size)};
    while (o->consumed < size && !c.done) {
        size_t len = MIN(step, size - o->consumed), used, off, n;

        o->r = http_chunked_decode(&c, data + o->consumed, len, &used, &off, &n, NULL);
        if (o->r < 0)
            break;
        MUST(used > 0 && used <= len && off <= used && n <= used - off);
        MUST(buf_append(&o->body, data + o->consumed + off, n) == 0);
        o->consumed += used;
    }
    o->done = c.done;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct outcome whole, bytes;

    decode(copy, size, size, &whole);
    decode(copy, size, 1, &bytes);
    MUST(whole.r == bytes.r && whole.done == bytes.done);
    MUST(whole.body.len == bytes.body.len);
    MUST(memcmp(buf_data(&whole.body), buf_data(&bytes.body), whole.body.len) == 0);
    MUST(whole.r < 0 || whole.consumed == bytes.consumed);
    buf_done(&whole.body);
    buf_done(&bytes.body);
    free(copy);
    return 0;
}
