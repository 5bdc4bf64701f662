/*
 * WebSocket: the examples of RFC 6455, and one test per rule that it has for a peer.
 */
#include "tap.h"

#include <stdlib.h>

#include "lib/base/cleanup.h"
#include "lib/base/sha1.h"
#include "lib/base/xalloc.h"
#include "lib/http/wire/websocket.h"

#define _cleanup_websocket_ __attribute__((cleanup(websocket_done)))

enum { LIMIT = 200000 };

/* A literal with NULs in it, without the last. */
#define BYTES(s) (s), sizeof(s) - 1

static struct websocket reader(enum websocket_side side, size_t max)
{
    struct websocket w;

    websocket_init(&w, side, max);
    return w;
}

/* Reads in pieces of `step` bytes until the first message; what websocket_read() returned last. */
static int read_one(struct websocket *w, const char *data, size_t len, size_t step, size_t *pos,
                    struct websocket_message *m)
{
    int r = 0;

    while (r == 0 && *pos < len) {
        size_t used;

        r = websocket_read(w, data + *pos, MIN(step, len - *pos), &used, m, NULL);
        *pos += used;
    }
    return r;
}

/* The answer of a new reader to these bytes, and the code that it would close with. */
static int verdict(enum websocket_side side, const char *data, size_t len, enum websocket_code *ret)
{
    _cleanup_websocket_ struct websocket w = reader(side, LIMIT);
    struct websocket_message m;
    size_t pos = 0;
    int r = 0;

    while (r >= 0 && pos < len)
        r = read_one(&w, data, len, len, &pos, &m);
    *ret = w.failed;
    return r;
}

struct refusal {
    const char *name, *data;
    size_t len;
};

/* From a server, so that no masks hide the bytes. */
static bool all_refused(const struct refusal *all, size_t n, enum websocket_code code)
{
    for (size_t i = 0; i < n; i++) {
        enum websocket_code got;

        if (verdict(WEBSOCKET_CLIENT, all[i].data, all[i].len, &got) == -ERR_INVALID && got == code)
            continue;
        printf("# %s: closed with %d\n", all[i].name, (int)got);
        return false;
    }
    return true;
}

/* ---- the digest ---- */

static bool digest_is(const char *text, size_t len, const char *hex)
{
    uint8_t digest[SHA1_LEN];
    char got[2 * SHA1_LEN + 1];

    sha1_digest(text, len, digest);
    for (size_t i = 0; i < SHA1_LEN; i++)
        snprintf(got + 2 * i, 3, "%02x", digest[i]);
    if (strcmp(got, hex) == 0)
        return true;
    printf("# %zu bytes: %s\n", len, got);
    return false;
}

/* FIPS 180; the lengths around the end of a block are from sha1sum. */
TEST(sha1_examples)
{
    char a[200];

    memset(a, 'a', sizeof(a));
    CHECK(digest_is("", 0, "da39a3ee5e6b4b0d3255bfef95601890afd80709"));
    CHECK(digest_is("abc", 3, "a9993e364706816aba3e25717850c26c9cd0d89d"));
    CHECK(digest_is(BYTES("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
                    "84983e441c3bd26ebaae4aa1f95129e5e54670f1"));
    CHECK(digest_is(a, 55, "c1c8bbdc22796e28c0e15163d20899b65621d65a"));
    CHECK(digest_is(a, 56, "c2db330f6083854c99d4b5bfb6e8f29f201be699"));
    CHECK(digest_is(a, 63, "03f09f5b158a7a8cdad920bddc29b81c18a551f5"));
    CHECK(digest_is(a, 64, "0098ba824b5c16427bd7a1122a5a442a25ec644d"));
    CHECK(digest_is(a, 200, "e61cfffe0d9195a525fc6cf06ca2d77119c24a40"));
}

/* ---- frames ---- */

/* RFC 6455, section 5.7. */
TEST(examples_of_the_rfc)
{
    static const struct {
        enum websocket_side side;
        const char *data;
        size_t len;
        enum websocket_opcode opcode;
    } examples[] = {
        {WEBSOCKET_CLIENT, BYTES("\x81\x05Hello"), WEBSOCKET_TEXT},
        {WEBSOCKET_SERVER, BYTES("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), WEBSOCKET_TEXT},
        {WEBSOCKET_CLIENT, BYTES("\x01\x03Hel\x80\x02lo"), WEBSOCKET_TEXT},
        {WEBSOCKET_CLIENT, BYTES("\x89\x05Hello"), WEBSOCKET_PING},
        {WEBSOCKET_SERVER, BYTES("\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), WEBSOCKET_PONG},
    };

    for (size_t i = 0; i < ARRAY_SIZE(examples); i++)
        for (size_t step = 1; step <= examples[i].len; step++) {
            _cleanup_websocket_ struct websocket w = reader(examples[i].side, LIMIT);
            struct websocket_message m = {0};
            size_t pos = 0;

            CHECK(read_one(&w, examples[i].data, examples[i].len, step, &pos, &m) == 1);
            CHECK(m.opcode == examples[i].opcode && pos == examples[i].len);
            CHECK(m.len == 5 && memcmp(m.data, "Hello", 5) == 0 && m.code == 0);
        }
}

/* 256 bytes and 64 KiB are the RFC's examples of longer lengths; the others are the borders. */
TEST(lengths)
{
    static const struct {
        size_t len, head;
        const char *start;
    } sizes[] = {
        {0, 2, "\x82\x00"},
        {125, 2, "\x82\x7d"},
        {126, 4, "\x82\x7e\x00\x7e"},
        {256, 4, "\x82\x7e\x01\x00"},
        {65535, 4, "\x82\x7e\xff\xff"},
        {65536, 10, "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"},
        {LIMIT, 10, "\x82\x7f\x00\x00\x00\x00\x00\x03\x0d\x40"},
    };
    _cleanup_free_ char *data = xmalloc(LIMIT);

    for (size_t i = 0; i < LIMIT; i++)
        data[i] = (char)(i * 7);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        _cleanup_websocket_ struct websocket server = reader(WEBSOCKET_SERVER, LIMIT),
                                             client = reader(WEBSOCKET_CLIENT, LIMIT);
        _cleanup_buf_ struct buf b = BUF_INIT(LIMIT + WEBSOCKET_HEAD_MAX);
        struct websocket_message m = {0};
        size_t pos = 0;

        CHECK(websocket_append(&server, &b, WEBSOCKET_BINARY, data, sizes[i].len) == 0);
        CHECK(b.len == sizes[i].head + sizes[i].len);
        CHECK(memcmp(buf_data(&b), sizes[i].start, sizes[i].head) == 0);
        CHECK(read_one(&client, buf_data(&b), b.len, 1000, &pos, &m) == 1 && pos == b.len);
        CHECK(m.opcode == WEBSOCKET_BINARY && m.len == sizes[i].len);
        CHECK(memcmp(m.data, data, m.len) == 0);
    }
}

TEST(a_client_masks_with_another_mask_each_time)
{
    _cleanup_websocket_ struct websocket client = reader(WEBSOCKET_CLIENT, LIMIT),
                                         server = reader(WEBSOCKET_SERVER, LIMIT);
    _cleanup_buf_ struct buf b = BUF_INIT(1000);
    struct websocket_message m = {0};
    size_t pos = 0;

    CHECK(websocket_append(&client, &b, WEBSOCKET_TEXT, BYTES("same text")) == 0);
    CHECK(websocket_append(&client, &b, WEBSOCKET_TEXT, BYTES("same text")) == 0);
    CHECK(b.len == 30 && memcmp(buf_data(&b), "\x81\x89", 2) == 0);
    CHECK(memcmp(buf_data(&b) + 2, buf_data(&b) + 17, 4) != 0);
    for (int i = 1; i <= 2; i++) {
        CHECK(read_one(&server, buf_data(&b), b.len, b.len, &pos, &m) == 1);
        CHECK(pos == 15 * (size_t)i && m.len == 9 && memcmp(m.data, "same text", 9) == 0);
    }
}

TEST(control_frames_between_fragments)
{
    static const char data[] = "\x02\x02"
                               "ab\x89\x01?\x00\x00\x8a\x00\x80\x01"
                               "c\x81\x01z";
    _cleanup_websocket_ struct websocket w = reader(WEBSOCKET_CLIENT, LIMIT);
    size_t len = sizeof(data) - 1, pos = 0;
    struct websocket_message m = {0};

    CHECK(read_one(&w, data, len, 1, &pos, &m) == 1);
    CHECK(m.opcode == WEBSOCKET_PING && m.len == 1 && m.data[0] == '?');
    CHECK(read_one(&w, data, len, 1, &pos, &m) == 1);
    CHECK(m.opcode == WEBSOCKET_PONG && m.len == 0);
    CHECK(read_one(&w, data, len, 1, &pos, &m) == 1);
    CHECK(m.opcode == WEBSOCKET_BINARY && m.len == 3 && memcmp(m.data, "abc", 3) == 0);
    CHECK(read_one(&w, data, len, 1, &pos, &m) == 1);
    CHECK(m.opcode == WEBSOCKET_TEXT && m.len == 1 && m.data[0] == 'z' && pos == len);
}

TEST(what_the_rfc_forbids_is_a_protocol_error)
{
    static const struct refusal bad[] = {
        {"reserved bit 1 (compression)", BYTES("\xc1\x00")},
        {"reserved bit 2", BYTES("\xa1\x00")},
        {"reserved bit 3", BYTES("\x91\x00")},
        {"opcode 3", BYTES("\x83\x00")},
        {"opcode 7", BYTES("\x87\x00")},
        {"opcode 11", BYTES("\x8b\x00")},
        {"opcode 15", BYTES("\x8f\x00")},
        {"continuation of nothing", BYTES("\x80\x00")},
        {"continuation of a message that has ended", BYTES("\x81\x01x\x80\x00")},
        {"text inside a message", BYTES("\x01\x01x\x81\x01y")},
        {"binary inside a message", BYTES("\x02\x01x\x02\x01y")},
        {"ping of 126 bytes", BYTES("\x89\x7e\x00\x7e")},
        {"close with a 64-bit length", BYTES("\x88\x7f")},
        {"125 as 16 bits", BYTES("\x82\x7e\x00\x7d")},
        {"0 as 16 bits", BYTES("\x82\x7e\x00\x00")},
        {"65535 as 64 bits", BYTES("\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff")},
        {"highest bit of a length", BYTES("\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00")},
        {"close with half a code", BYTES("\x88\x01\x03")},
    };

    CHECK(all_refused(bad, ARRAY_SIZE(bad), WEBSOCKET_PROTOCOL_ERROR));
}

/* The first two bytes are enough. */
TEST(control_frames_are_whole)
{
    static const struct refusal bad[] = {
        {"fragmented ping", BYTES("\x09\x00")},
        {"fragmented pong", BYTES("\x0a\x00")},
        {"fragmented close", BYTES("\x08\x00")},
    };

    CHECK(all_refused(bad, ARRAY_SIZE(bad), WEBSOCKET_PROTOCOL_ERROR));
}

TEST(clients_mask_and_servers_do_not)
{
    enum websocket_code code;

    CHECK(verdict(WEBSOCKET_SERVER, BYTES("\x81\x05"), &code) == -ERR_INVALID && code == 1002);
    CHECK(verdict(WEBSOCKET_SERVER, BYTES("\x89\x00"), &code) == -ERR_INVALID && code == 1002);
    CHECK(verdict(WEBSOCKET_CLIENT, BYTES("\x81\x85"), &code) == -ERR_INVALID && code == 1002);
    CHECK(verdict(WEBSOCKET_CLIENT, BYTES("\x8a\x80"), &code) == -ERR_INVALID && code == 1002);
    CHECK(verdict(WEBSOCKET_SERVER, BYTES("\x81\x80\x01\x02\x03\x04"), &code) == 1 && code == 0);
}

/* By the head alone: nothing is stored of a message that will be refused. */
TEST(a_message_has_a_limit_over_its_fragments)
{
    _cleanup_websocket_ struct websocket w = reader(WEBSOCKET_CLIENT, 10),
                                         huge = reader(WEBSOCKET_CLIENT, LIMIT);
    static const char data[] = "\x02\x06"
                               "abcdef\x00\x04ghij\x00\x00\x00\x01";
    struct websocket_message m;
    size_t used;

    CHECK(websocket_read(&w, data, 16, &used, &m, NULL) == 0 && used == 16);
    CHECK(w.message.len == 10 && w.failed == 0);
    CHECK(websocket_read(&w, data + 16, 2, &used, &m, NULL) == -ERR_LIMIT);
    CHECK(w.failed == WEBSOCKET_TOO_BIG && w.message.len == 10);
    CHECK(websocket_read(&huge, BYTES("\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff"), &used, &m,
                         NULL) == -ERR_LIMIT);
    CHECK(huge.failed == WEBSOCKET_TOO_BIG && huge.message.cap == 0);
}

TEST(a_message_of_the_exact_limit)
{
    _cleanup_websocket_ struct websocket w = reader(WEBSOCKET_CLIENT, 10);
    static const char data[] = "\x82\x0a"
                               "0123456789\x82\x0a"
                               "abcdefghij";
    struct websocket_message m = {0};
    size_t pos = 0;

    CHECK(read_one(&w, data, 24, 24, &pos, &m) == 1 && m.len == 10 && m.data[0] == '0');
    CHECK(read_one(&w, data, 24, 24, &pos, &m) == 1 && m.len == 10 && m.data[0] == 'a');
}

/* Thousands of connections are idle: one large message may not stay with each. */
TEST(a_large_buffer_is_given_back)
{
    _cleanup_websocket_ struct websocket client = reader(WEBSOCKET_CLIENT, LIMIT);
    _cleanup_free_ char *data = xmalloc(LIMIT + WEBSOCKET_HEAD_MAX);
    struct websocket_message m = {0};
    size_t n, used;

    memset(data, 0, LIMIT + WEBSOCKET_HEAD_MAX);
    n = websocket_put_head(data, WEBSOCKET_BINARY, LIMIT, NULL);
    CHECK(websocket_read(&client, data, n + LIMIT, &used, &m, NULL) == 1 && m.len == LIMIT);
    CHECK(websocket_read(&client, "\x8a", 1, &used, &m, NULL) == 0);
    CHECK(client.message.cap == 0);
}

TEST(a_failure_is_final)
{
    _cleanup_websocket_ struct websocket w = reader(WEBSOCKET_CLIENT, LIMIT);
    struct websocket_message m;
    size_t used;

    CHECK(websocket_read(&w, BYTES("\x83\x00"), &used, &m, NULL) == -ERR_INVALID);
    CHECK(websocket_read(&w, BYTES("\x81\x01x"), &used, &m, NULL) == -ERR_INVALID && used == 0);
    CHECK(w.failed == WEBSOCKET_PROTOCOL_ERROR);
}

/* ---- text ---- */

/* As one frame, and with each byte as a fragment of its own. */
static int text_verdict(const char *text, enum websocket_code *ret)
{
    _cleanup_buf_ struct buf whole = BUF_INIT(1000), parts = BUF_INIT(1000);
    size_t len = strlen(text);
    enum websocket_code code;
    int r;

    if (buf_appendf(&whole, "\x81%c%s", (int)len, text) < 0 || buf_append(&parts, "\x01", 2) < 0)
        return -ERR_SYSTEM;
    for (size_t i = 0; i < len; i++)
        if (buf_append(&parts, i + 1 < len ? "\x00\x01" : "\x80\x01", 2) < 0 ||
            buf_append_c(&parts, text[i]) < 0)
            return -ERR_SYSTEM;
    r = verdict(WEBSOCKET_CLIENT, buf_data(&whole), whole.len, ret);
    if (verdict(WEBSOCKET_CLIENT, buf_data(&parts), parts.len, &code) == r && code == *ret)
        return r;
    printf("# fragments are judged differently: %s\n", text);
    return -ERR_CONFLICT;
}

TEST(text_is_utf8_across_fragments)
{
    static const char *const good[] = {
        "x",
        "k\xc3\xb6stlich",
        "\xce\xba\xe1\xbd\xb9",
        "\xc2\x80",
        "\xdf\xbf",
        "\xe0\xa0\x80",
        "\xed\x9f\xbf",
        "\xee\x80\x80",
        "\xef\xbf\xbf",
        "\xf0\x90\x80\x80",
        "\xf4\x8f\xbf\xbf",
    };
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x80\x80",
        "\xe0\x9f\xbf",
        "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "\xc3x",
        "\xe2\x82x",
        "\xc3\xc3\xb6",
        "ends early \xc3",
        "ends early \xe2\x82",
        "ends early \xf0\x9f\x98",
    };
    enum websocket_code code;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        CHECK(text_verdict(good[i], &code) == 1 && code == 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(text_verdict(bad[i], &code) == -ERR_INVALID && code == WEBSOCKET_NOT_UTF8);
}

/* Invalid text is noticed at once, not at the end of its message. */
TEST(text_fails_at_its_first_bad_byte)
{
    enum websocket_code code;

    CHECK(verdict(WEBSOCKET_CLIENT, BYTES("\x01\x09ok\xff"), &code) == -ERR_INVALID);
    CHECK(code == WEBSOCKET_NOT_UTF8);
    CHECK(verdict(WEBSOCKET_CLIENT, BYTES("\x82\x03ok\xff"), &code) == 1);
}

/* ---- close ---- */

TEST(close_frames_carry_code_and_reason)
{
    _cleanup_websocket_ struct websocket w = reader(WEBSOCKET_CLIENT, LIMIT),
                                         bare = reader(WEBSOCKET_CLIENT, LIMIT);
    struct websocket_message m = {0};
    size_t used;

    CHECK(websocket_read(&w, BYTES("\x88\x05\x03\xe8\x62ye\x81"), &used, &m, NULL) == 1);
    CHECK(m.opcode == WEBSOCKET_CLOSE && m.code == WEBSOCKET_NORMAL && used == 7);
    CHECK(m.len == 3 && memcmp(m.data, "bye", 3) == 0 && w.close_read);
    CHECK(websocket_read(&w, BYTES("\x83\xff and any nonsense"), &used, &m, NULL) == 0);
    CHECK(used == 19 && w.failed == 0);
    CHECK(websocket_read(&bare, BYTES("\x88\x00"), &used, &m, NULL) == 1);
    CHECK(m.code == WEBSOCKET_NO_CODE && m.len == 0);
}

TEST(close_codes)
{
    static const unsigned good[] = {1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010,
                                    1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999};
    static const unsigned bad[] = {0,    1,    999,  1004, 1005, 1006,
                                   1015, 1016, 2000, 2999, 5000, 65535};
    enum websocket_code got;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        char data[] = {(char)0x88, 2, (char)(good[i] >> 8), (char)good[i]};

        CHECK(verdict(WEBSOCKET_CLIENT, data, 4, &got) == 1);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char data[] = {(char)0x88, 2, (char)(bad[i] >> 8), (char)bad[i]};

        CHECK(verdict(WEBSOCKET_CLIENT, data, 4, &got) == -ERR_INVALID && got == 1002);
    }
}

TEST(a_close_reason_is_utf8)
{
    enum websocket_code got;

    CHECK(verdict(WEBSOCKET_CLIENT, BYTES("\x88\x04\x03\xe8\xc3\xb6"), &got) == 1);
    CHECK(verdict(WEBSOCKET_CLIENT, BYTES("\x88\x03\x03\xe8\xc3"), &got) == -ERR_INVALID);
    CHECK(got == WEBSOCKET_NOT_UTF8);
    CHECK(verdict(WEBSOCKET_CLIENT, BYTES("\x88\x03\x03\xe8\xff"), &got) == -ERR_INVALID);
    CHECK(got == WEBSOCKET_NOT_UTF8);
}

TEST(nothing_follows_our_close_frame)
{
    _cleanup_websocket_ struct websocket w = reader(WEBSOCKET_SERVER, LIMIT);
    _cleanup_buf_ struct buf b = BUF_INIT(1000);

    CHECK(websocket_append_close(&w, &b, WEBSOCKET_GOING_AWAY, "restart") == 0 && w.close_sent);
    CHECK(b.len == 11 && memcmp(buf_data(&b), "\x88\x09\x03\xe9restart", 11) == 0);
    CHECK(websocket_append_close(&w, &b, WEBSOCKET_NORMAL, NULL) == 0);
    CHECK(websocket_append(&w, &b, WEBSOCKET_TEXT, "x", 1) == -ERR_CONFLICT);
    CHECK(websocket_append(&w, &b, WEBSOCKET_PONG, NULL, 0) == -ERR_CONFLICT);
    CHECK(b.len == 11);
}

TEST(close_frames_are_written_within_their_limit)
{
    _cleanup_websocket_ struct websocket w = reader(WEBSOCKET_SERVER, LIMIT),
                                         bare = reader(WEBSOCKET_SERVER, LIMIT),
                                         client = reader(WEBSOCKET_CLIENT, LIMIT);
    _cleanup_buf_ struct buf b = BUF_INIT(1000), b2 = BUF_INIT(1000);
    char reason[WEBSOCKET_REASON_MAX + 10];
    struct websocket_message m = {0};
    size_t used;

    /* 122 bytes, then a character of two: it would end behind the limit. */
    memset(reason, 'x', sizeof(reason));
    memcpy(reason + WEBSOCKET_REASON_MAX - 1, "\xc3\xb6", 3);
    CHECK(websocket_append_close(&w, &b, WEBSOCKET_POLICY, reason) == 0);
    CHECK(websocket_read(&client, buf_data(&b), b.len, &used, &m, NULL) == 1);
    CHECK(m.code == WEBSOCKET_POLICY && m.len == WEBSOCKET_REASON_MAX - 1);
    CHECK(websocket_append_close(&bare, &b2, WEBSOCKET_NO_CODE, NULL) == 0);
    CHECK(b2.len == 2 && memcmp(buf_data(&b2), "\x88\x00", 2) == 0);
}

TEST(writers_refuse_what_does_not_fit)
{
    _cleanup_websocket_ struct websocket w = reader(WEBSOCKET_SERVER, LIMIT);
    _cleanup_buf_ struct buf b = BUF_INIT(100);
    char data[WEBSOCKET_CONTROL_MAX + 1] = {0};

    CHECK(websocket_append(&w, &b, WEBSOCKET_PING, data, sizeof(data)) == -ERR_LIMIT);
    CHECK(websocket_append(&w, &b, WEBSOCKET_BINARY, data, 99) == -ERR_LIMIT && b.len == 0);
    CHECK(websocket_append(&w, &b, WEBSOCKET_BINARY, data, 98) == 0 && b.len == 100);
}

/* ---- the opening handshake ---- */

#define RFC_KEY "dGhlIHNhbXBsZSBub25jZQ=="
#define RFC_ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
#define UPGRADE "Upgrade: websocket\r\nConnection: Upgrade\r\n"
#define VERSION "Sec-WebSocket-Version: 13\r\n"
#define KEY "Sec-WebSocket-Key: " RFC_KEY "\r\n"

static char *parse_request(const char *line, const char *fields, struct http_head *h)
{
    char *mem = xasprintf("%s HTTP/1.1\r\nHost: x\r\n%s\r\n", line, fields);

    if (http_parse_request(mem, strlen(mem), h, NULL) >= 0)
        return mem;
    free(mem);
    return NULL;
}

static int request_verdict(const char *line, const char *fields)
{
    struct http_head h;
    _cleanup_free_ char *mem = parse_request(line, fields, &h);

    return mem ? websocket_check_request(&h, NULL) : -ERR_SYSTEM;
}

TEST(answer_of_the_rfc)
{
    static const char *const ours[] = {"superchat", "chat", NULL}, *const others[] = {"x", NULL};
    _cleanup_buf_ struct buf b = BUF_INIT(1000), plain = BUF_INIT(1000);
    struct http_head h;
    _cleanup_free_ char *mem = parse_request(
        "GET /chat",
        UPGRADE KEY VERSION "Origin: http://example.com\r\n"
                            "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
                            "\r\nSec-WebSocket-Protocol: chat, superchat\r\n",
        &h);

    CHECK(mem && websocket_check_request(&h, NULL) == 0);
    CHECK_STR(websocket_choose_protocol(&h, ours), "chat");
    CHECK(!websocket_choose_protocol(&h, others));
    CHECK(websocket_append_answer(&b, &h, "chat") == 0);
    CHECK_STR(buf_data(&b),
              "Sec-WebSocket-Accept: " RFC_ACCEPT "\r\nSec-WebSocket-Protocol: chat\r\n");
    CHECK(websocket_append_answer(&plain, &h, NULL) == 0);
    CHECK_STR(buf_data(&plain), "Sec-WebSocket-Accept: " RFC_ACCEPT "\r\n");
}

TEST(requests_that_are_accepted)
{
    CHECK(request_verdict("GET /", UPGRADE VERSION KEY) == 0);
    CHECK(request_verdict("GET /", "upgrade: WebSocket\r\nconnection: keep-alive, UPGRADE\r\n"
                                   "sec-websocket-version: 13\r\nsec-websocket-key: " RFC_KEY
                                   "\r\nContent-Length: 0\r\n") == 0);
}

TEST(requests_that_are_refused)
{
    static const char key[] = UPGRADE VERSION "Sec-WebSocket-Key: ";
    static const char *const keys[] = {
        "",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25jZQ=",
        "dGhlIHNhbXBsZSBub25jZR==",
        "dGhlIHNhbXBsZSBub25j",
        "dGhlIHNhbXBsZSBub25jZTEy",
        "dGhlIHNhbXBsZSBub25jZTE=",
        "dGhlIHNhbXBsZSBub25jZSBsb25n",
        "dGhlIHNhbXBsZS!ub25jZQ==",
    };

    CHECK(request_verdict("POST /", UPGRADE VERSION KEY) == -ERR_INVALID);
    CHECK(request_verdict("GET /", "Upgrade: websocket\r\n" VERSION KEY) == -ERR_INVALID);
    CHECK(request_verdict("GET /", "Connection: Upgrade\r\n" VERSION KEY) == -ERR_INVALID);
    CHECK(request_verdict("GET /",
                          "Upgrade: ripcord-exec/1\r\nConnection: Upgrade\r\n" VERSION KEY) ==
          -ERR_INVALID);
    CHECK(request_verdict("GET /", UPGRADE VERSION KEY "Content-Length: 1\r\n") == -ERR_INVALID);
    CHECK(request_verdict("GET /", UPGRADE VERSION KEY "Transfer-Encoding: chunked\r\n") ==
          -ERR_INVALID);
    CHECK(request_verdict("GET /", UPGRADE VERSION) == -ERR_INVALID);
    CHECK(request_verdict("GET /", UPGRADE VERSION KEY KEY) == -ERR_INVALID);
    CHECK(request_verdict("GET /", UPGRADE KEY) == -ERR_INVALID);
    CHECK(request_verdict("GET /", UPGRADE KEY VERSION VERSION) == -ERR_INVALID);
    CHECK(request_verdict("GET /", UPGRADE KEY "Sec-WebSocket-Version: 8\r\n") == -ERR_UNSUPPORTED);
    CHECK(request_verdict("GET /", UPGRADE KEY "Sec-WebSocket-Version: 013\r\n") ==
          -ERR_UNSUPPORTED);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        _cleanup_free_ char *fields = xasprintf("%s%s\r\n", key, keys[i]);

        CHECK(request_verdict("GET /", fields) == -ERR_INVALID);
    }
}

static const char *chosen(const char *fields, const char *const *ours)
{
    struct http_head h;
    _cleanup_free_ char *mem = parse_request("GET /", fields, &h);

    return mem ? websocket_choose_protocol(&h, ours) : "does not parse";
}

TEST(sub_protocols_are_chosen_in_the_order_of_the_client)
{
    static const char *const ours[] = {"a.v1", "b.v1", NULL};

    CHECK(!chosen("", ours));
    CHECK(!chosen("Sec-WebSocket-Protocol: A.v1, a.v, a.v12, b\r\n", ours));
    CHECK(!chosen("Sec-WebSocket-Protocol: a.v1 b.v1\r\n", ours));
    CHECK(!chosen("Sec-WebSocket-Protocol: a.v1\r\n", (const char *const[]){NULL}));
    CHECK_STR(chosen("Sec-WebSocket-Protocol: x, b.v1,a.v1\r\n", ours), "b.v1");
    CHECK_STR(chosen("Sec-WebSocket-Protocol:, ,\ta.v1 \t,\r\n", ours), "a.v1");
    CHECK_STR(chosen("Sec-WebSocket-Protocol: x\r\nSec-WebSocket-Protocol: b.v1\r\n", ours),
              "b.v1");
}

static int answer_verdict(const char *status, const char *fields, const char **ret_protocol)
{
    static const char *const offered[] = {"a.v1", "b.v1", NULL};
    _cleanup_free_ char *mem = xasprintf("HTTP/1.1 %s\r\n%s\r\n", status, fields);
    struct http_head h;

    *ret_protocol = NULL;
    if (http_parse_response(mem, strlen(mem), &h, NULL) < 0)
        return -ERR_SYSTEM;
    return websocket_check_answer(&h, RFC_KEY, offered, ret_protocol, NULL);
}

#define SWITCHING "101 Switching Protocols"
#define ACCEPT "Sec-WebSocket-Accept: " RFC_ACCEPT "\r\n"

TEST(a_client_checks_the_answer)
{
    const char *p;

    CHECK(answer_verdict(SWITCHING, UPGRADE ACCEPT, &p) == 0 && !p);
    CHECK(answer_verdict(SWITCHING, UPGRADE ACCEPT "Sec-WebSocket-Protocol: b.v1\r\n", &p) == 0);
    CHECK_STR(p, "b.v1");
    CHECK(answer_verdict("200 OK", UPGRADE ACCEPT, &p) == -ERR_INVALID);
    CHECK(answer_verdict(SWITCHING, "Connection: Upgrade\r\n" ACCEPT, &p) == -ERR_INVALID);
    CHECK(answer_verdict(SWITCHING, "Upgrade: websocket\r\n" ACCEPT, &p) == -ERR_INVALID);
    CHECK(answer_verdict(SWITCHING, UPGRADE ACCEPT ACCEPT, &p) == -ERR_INVALID);
    CHECK(answer_verdict(SWITCHING, UPGRADE ACCEPT "Sec-WebSocket-Protocol: c.v1\r\n", &p) ==
          -ERR_INVALID);
    CHECK(answer_verdict(SWITCHING, UPGRADE ACCEPT "Sec-WebSocket-Protocol: a.v1, b.v1\r\n", &p) ==
          -ERR_INVALID);
    CHECK(answer_verdict(SWITCHING,
                         UPGRADE ACCEPT "Sec-WebSocket-Extensions: permessage-deflate\r\n",
                         &p) == -ERR_INVALID);
}

TEST(a_client_checks_that_the_answer_is_to_its_request)
{
    const char *p;

    CHECK(answer_verdict(SWITCHING, UPGRADE, &p) == -ERR_INVALID);
    CHECK(answer_verdict(SWITCHING, UPGRADE "Sec-WebSocket-Accept: " RFC_KEY "\r\n", &p) ==
          -ERR_INVALID);
    CHECK(answer_verdict(SWITCHING,
                         UPGRADE "Sec-WebSocket-Accept: S3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
                         &p) == -ERR_INVALID);
}

TEST(both_sides_of_the_handshake_agree)
{
    static const char *const offered[] = {"a.v1", "b.v1", NULL}, *const ours[] = {"b.v1", NULL};
    _cleanup_buf_ struct buf request = BUF_INIT(1000), answer = BUF_INIT(1000);
    char key[WEBSOCKET_KEY_SIZE], other[WEBSOCKET_KEY_SIZE];
    _cleanup_free_ char *asked = NULL, *answered = NULL;
    const char *protocol = NULL;
    struct http_head h;

    websocket_new_key(key);
    websocket_new_key(other);
    CHECK(strcmp(key, other) != 0);
    CHECK(websocket_append_request(&request, key, offered) == 0);
    asked = parse_request("GET /", buf_data(&request), &h);
    CHECK(asked && websocket_check_request(&h, NULL) == 0);
    CHECK(websocket_append_answer(&answer, &h, websocket_choose_protocol(&h, ours)) == 0);
    answered = xasprintf("HTTP/1.1 101 x\r\n" UPGRADE "%s\r\n", buf_data(&answer));
    CHECK(http_parse_response(answered, strlen(answered), &h, NULL) == 0);
    CHECK(websocket_check_answer(&h, key, offered, &protocol, NULL) == 0);
    CHECK_STR(protocol, "b.v1");
    CHECK(websocket_check_answer(&h, other, offered, &protocol, NULL) == -ERR_INVALID);
}
