#include "tap.h"

#include "proto/exec-frames.h"

TEST(round_trip)
{
    _cleanup_buf_ struct buf b = BUF_INIT(1000);
    struct frame f;
    size_t used = 0;

    CHECK(frame_append(&b, FRAME_STDIN, "abc", 3) == 0);
    CHECK(frame_append(&b, FRAME_STDIN_EOF, NULL, 0) == 0);
    CHECK(b.len == 3 + 2 * FRAME_HEAD_SIZE);
    CHECK(memcmp(buf_data(&b), "\1\0\0\0\3abc\2\0\0\0\0", b.len) == 0);
    CHECK(frame_parse(buf_data(&b), b.len, &f, &used, NULL) == 1);
    CHECK(f.type == FRAME_STDIN && f.length == 3 && memcmp(f.data, "abc", 3) == 0 && used == 8);
    CHECK(frame_parse(buf_data(&b) + used, b.len - used, &f, &used, NULL) == 1);
    CHECK(f.type == FRAME_STDIN_EOF && f.length == 0 && used == 5);
}

TEST(every_prefix_needs_more)
{
    static const char text[] = "\x11\0\0\0\x0a"
                               "0123456789";
    struct frame f;
    size_t used;

    for (size_t len = 0; len < 15; len++)
        CHECK(frame_parse(text, len, &f, &used, NULL) == 0);
    CHECK(frame_parse(text, 15, &f, &used, NULL) == 1 && used == 15);
}

TEST(refuses)
{
    struct frame f;
    size_t used;

    CHECK(frame_parse("\0", 1, &f, &used, NULL) == -ERR_INVALID);
    CHECK(frame_parse("\6", 1, &f, &used, NULL) == -ERR_INVALID);
    CHECK(frame_parse("\x0f", 1, &f, &used, NULL) == -ERR_INVALID);
    CHECK(frame_parse("\x16", 1, &f, &used, NULL) == -ERR_INVALID);
    CHECK(frame_parse("\xff", 1, &f, &used, NULL) == -ERR_INVALID);
    CHECK(frame_parse("\1\0\x10\0\0", 5, &f, &used, NULL) == 0); /* exactly the maximum */
    CHECK(frame_parse("\1\0\x10\0\1", 5, &f, &used, NULL) == -ERR_INVALID);
    CHECK(frame_parse("\1\xff\xff\xff\xff", 5, &f, &used, NULL) == -ERR_INVALID);
}

TEST(append_limits)
{
    static char big[FRAME_PAYLOAD_MAX + 1];
    _cleanup_buf_ struct buf b = BUF_INIT(2 << 20), tiny = BUF_INIT(6);

    CHECK(frame_append(&b, FRAME_STDOUT, big, FRAME_PAYLOAD_MAX) == 0);
    CHECK(frame_append(&b, FRAME_STDOUT, big, FRAME_PAYLOAD_MAX + 1) == -ERR_LIMIT);
    CHECK(frame_append(&tiny, FRAME_STDOUT, "ab", 2) == -ERR_LIMIT && tiny.len == 0);
}

TEST(u64)
{
    char p[8];

    frame_put_u64(p, UINT64_C(0x0102030405060708));
    CHECK(memcmp(p, "\1\2\3\4\5\6\7\x8", 8) == 0);
    CHECK(frame_get_u64(p) == UINT64_C(0x0102030405060708));
}
