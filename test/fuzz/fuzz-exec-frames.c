/*
 * Frames: what was parsed and is written again must be the same bytes.
 */
#include "fuzz.h"
#include "proto/exec-frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct buf again = BUF_INIT(size);
    size_t pos = 0, used;
    struct frame f;

    while (frame_parse(copy + pos, size - pos, &f, &used, NULL) > 0) {
        MUST(used == FRAME_HEAD_SIZE + f.length && used <= size - pos);
        MUST(frame_append(&again, (enum frame_type)f.type, f.data, f.length) == 0);
        pos += used;
    }
    MUST(again.len == pos && memcmp(buf_data(&again), copy, pos) == 0);
    buf_done(&again);
    free(copy);
    return 0;
}
