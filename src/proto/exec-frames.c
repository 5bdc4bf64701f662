#include "proto/exec-frames.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

void frame_put_u64(char p[static 8], uint64_t v)
{
    uint64_t be = htobe64(v);

    memcpy(p, &be, sizeof(be));
}

uint64_t frame_get_u64(const char *p)
{
    uint64_t be;

    memcpy(&be, p, sizeof(be));
    return be64toh(be);
}

void frame_put_head(char p[static FRAME_HEAD_SIZE], enum frame_type type, uint32_t length)
{
    uint32_t be = htobe32(length);

    p[0] = (char)type;
    memcpy(p + 1, &be, sizeof(be));
}

int frame_append(struct buf *b, enum frame_type type, const void *data, size_t len)
{
    char *p;

    if (len > FRAME_PAYLOAD_MAX)
        return -ERR_LIMIT;
    p = buf_reserve(b, FRAME_HEAD_SIZE + len);
    if (!p)
        return -ERR_LIMIT;
    frame_put_head(p, type, (uint32_t)len);
    if (len)
        memcpy(p + FRAME_HEAD_SIZE, data, len);
    buf_commit(b, FRAME_HEAD_SIZE + len);
    return 0;
}

static bool exec_frames_type_is_known(uint8_t type)
{
    return (type >= FRAME_STDIN && type <= FRAME_DETACH) ||
           (type >= FRAME_STARTED && type <= FRAME_ERROR);
}

int frame_parse(const char *data, size_t len, struct frame *ret, size_t *used, struct err *err)
{
    uint8_t type;
    uint32_t length;

    if (len == 0)
        return 0;
    type = (uint8_t)data[0];
    if (!exec_frames_type_is_known(type))
        return err_set(err, ERR_INVALID, "unknown frame type %u", type);
    if (len < FRAME_HEAD_SIZE)
        return 0;
    memcpy(&length, data + 1, sizeof(length));
    length = be32toh(length);
    if (length > FRAME_PAYLOAD_MAX)
        return err_set(err, ERR_INVALID, "frame of %u bytes exceeds the limit of %d", length,
                       FRAME_PAYLOAD_MAX);
    if (len - FRAME_HEAD_SIZE < length)
        return 0;
    *ret = (struct frame){.type = type, .length = length, .data = data + FRAME_HEAD_SIZE};
    *used = FRAME_HEAD_SIZE + length;
    return 1;
}
