#include "tap.h"

#include <stdlib.h>

#include "large-command.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "proto/guest.h"

static int parse(const struct buf *b, enum guest_side from, struct guest_frame *f)
{
    size_t used = 0;
    int r = guest_parse(buf_data(b), b->len, from, f, &used, NULL);

    return r == 1 && used != b->len ? -99 : r;
}

TEST(small_frames)
{
    _cleanup_buf_ struct buf b = BUF_INIT(1000);
    struct guest_frame f;
    uint16_t rows, cols;
    int sig;

    CHECK(guest_put_signal(&b, 15) == 0 && parse(&b, GUEST_SIDE_RELAY, &f) == 1);
    CHECK(memcmp(buf_data(&b), "\5\0\0\0\1\17", 6) == 0);
    CHECK(f.type == GUEST_SIGNAL && guest_get_signal(&f, &sig, NULL) == 0 && sig == 15);
    buf_clear(&b);
    CHECK(guest_put_resize(&b, 24, 500) == 0 && parse(&b, GUEST_SIDE_RELAY, &f) == 1);
    guest_get_resize(&f, &rows, &cols);
    CHECK(rows == 24 && cols == 500);
    buf_clear(&b);
    CHECK(guest_put_kill(&b, GUEST_KILL_ALONE) == 0 && parse(&b, GUEST_SIDE_RELAY, &f) == 1);
    CHECK(guest_get_kill(&f) == GUEST_KILL_ALONE);
    buf_clear(&b);
    CHECK(guest_put_u32(&b, GUEST_STDIN_ACK, 70000) == 0 && parse(&b, GUEST_SIDE_GUEST, &f) == 1);
    CHECK(f.type == GUEST_STDIN_ACK && guest_get_u32(&f) == 70000);
}

TEST(signals_that_do_not_exist)
{
    _cleanup_buf_ struct buf b = BUF_INIT(100);
    struct guest_frame f = {.type = GUEST_SIGNAL, .length = 1};
    int sig;

    CHECK(guest_put_signal(&b, 0) < 0 && guest_put_signal(&b, 65) < 0);
    f.data = "\0";
    CHECK(guest_get_signal(&f, &sig, NULL) == -ERR_INVALID);
    f.data = "\x41";
    CHECK(guest_get_signal(&f, &sig, NULL) == -ERR_INVALID);
    f.data = "\x40";
    CHECK(guest_get_signal(&f, &sig, NULL) == 0 && sig == 64);
}

TEST(every_prefix_needs_more)
{
    static const char text[] = "\x86\0\0\0\4abcd";
    struct guest_frame f;
    size_t used;

    for (size_t n = 0; n < 9; n++)
        CHECK(guest_parse(text, n, GUEST_SIDE_GUEST, &f, &used, NULL) == 0);
    CHECK(guest_parse(text, 9, GUEST_SIDE_GUEST, &f, &used, NULL) == 1 && used == 9);
    CHECK(f.type == GUEST_STDOUT && f.length == 4 && memcmp(f.data, "abcd", 4) == 0);
}

TEST(each_side_says_its_own)
{
    struct guest_frame f;
    size_t used;

    for (unsigned type = 0; type < 256; type++) {
        char head[1] = {(char)type};
        bool relay = type >= GUEST_SPEC && type < GUEST_RELAY_END;
        bool guest = type >= GUEST_HELLO && type < GUEST_GUEST_END;

        CHECK((guest_parse(head, 1, GUEST_SIDE_RELAY, &f, &used, NULL) == 0) == relay);
        CHECK((guest_parse(head, 1, GUEST_SIDE_GUEST, &f, &used, NULL) == 0) == guest);
    }
}

/* An engine's error text is never taken for the first bytes of a guest. */
TEST(engine_errors_are_not_frames)
{
    static const char *const texts[] = {"OCI runtime exec failed", "Error: no such", "exec failed",
                                        "\r\n", "{\"message\""};
    struct guest_frame f;
    size_t used;

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        CHECK(guest_parse(texts[i], strlen(texts[i]), GUEST_SIDE_GUEST, &f, &used, NULL) ==
              -ERR_INVALID);
}

TEST(lengths)
{
    struct guest_frame f;
    size_t used;

    CHECK(guest_parse("\3\0\1\0\0", 5, GUEST_SIDE_RELAY, &f, &used, NULL) == 0);
    CHECK(guest_parse("\3\0\1\0\1", 5, GUEST_SIDE_RELAY, &f, &used, NULL) == -ERR_INVALID);
    CHECK(guest_parse("\3\xff\xff\xff\xff", 5, GUEST_SIDE_RELAY, &f, &used, NULL) == -ERR_INVALID);
    CHECK(guest_parse("\3\0\0\0\0", 5, GUEST_SIDE_RELAY, &f, &used, NULL) == -ERR_INVALID);
    CHECK(guest_parse("\2\0\0\0\1", 5, GUEST_SIDE_RELAY, &f, &used, NULL) == -ERR_INVALID);
    CHECK(guest_parse("\6\0\0\0\3", 5, GUEST_SIDE_RELAY, &f, &used, NULL) == -ERR_INVALID);
    CHECK(guest_parse("\x89\0\0\0\1", 5, GUEST_SIDE_GUEST, &f, &used, NULL) == -ERR_INVALID);
}

TEST(put_limits)
{
    static char big[GUEST_PAYLOAD_MAX + 1];
    _cleanup_buf_ struct buf b = BUF_INIT(1 << 20), tiny = BUF_INIT(6);

    CHECK(guest_put(&b, GUEST_STDOUT, big, GUEST_PAYLOAD_MAX) == 0);
    CHECK(guest_put(&b, GUEST_STDOUT, big, GUEST_PAYLOAD_MAX + 1) == -ERR_LIMIT);
    CHECK(guest_put(&tiny, GUEST_STDOUT, "ab", 2) == -ERR_LIMIT && tiny.len == 0);
}

TEST(hello)
{
    _cleanup_buf_ struct buf b = BUF_INIT(100);
    _cleanup_err_ struct err err = ERR_INIT;
    struct guest_hello h;
    struct guest_frame f;

    CHECK(guest_put_hello(&b, 77) == 0 && parse(&b, GUEST_SIDE_GUEST, &f) == 1);
    CHECK(guest_get_hello(&f, &h, NULL) == 0);
    CHECK(h.major == GUEST_VERSION_MAJOR && h.minor == GUEST_VERSION_MINOR && h.pid == 77);
    buf_data(&b)[GUEST_HEAD_SIZE + 9]++;
    CHECK(guest_get_hello(&f, &h, &err) == -ERR_UNSUPPORTED && err.hint);
    buf_data(&b)[GUEST_HEAD_SIZE]++;
    CHECK(guest_get_hello(&f, &h, NULL) == -ERR_INVALID);
    f.type = GUEST_STARTED;
    CHECK(guest_get_hello(&f, &h, NULL) == -ERR_INVALID);
}

/* ---- the spec ---- */

/* As the guest does it: frames, pieces, RUN. */
static int read_spec(const struct buf *wire, struct guest_spec *ret, size_t *frames)
{
    _cleanup_buf_ struct buf fields = BUF_INIT(GUEST_SPEC_MAX);
    const char *p = buf_data(wire);
    size_t left = wire->len, used;
    struct guest_frame f;

    for (*frames = 0; guest_parse(p, left, GUEST_SIDE_RELAY, &f, &used, NULL) == 1; ++*frames) {
        p += used;
        left -= used;
        if (f.type == GUEST_RUN)
            return left ? -99 : guest_get_spec(&fields, ret, NULL);
        if (f.type != GUEST_SPEC || guest_collect_spec(&fields, &f, NULL) < 0)
            return -98;
    }
    return -97;
}

TEST(spec_round_trip)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)"", NULL};
    char *env[] = {(char *)"A=1", (char *)"B=", NULL};
    const struct guest_spec in = {.argv = argv,
                                  .env = env,
                                  .cwd = (char *)"/tmp",
                                  .flags = GUEST_SPEC_TTY | GUEST_SPEC_STDIN,
                                  .rows = 50,
                                  .cols = 132};
    _cleanup_buf_ struct buf b = BUF_INIT(GUEST_SPEC_WIRE_MAX);
    struct guest_spec out = {0};
    size_t frames;

    CHECK(guest_put_spec(&b, &in, GUEST_VERSION_MINOR, NULL) == 0);
    CHECK(read_spec(&b, &out, &frames) == 0 && frames == 1);
    CHECK(strv_len(out.argv) == 3 && strv_len(out.env) == 2);
    CHECK_STR(out.argv[2], "");
    CHECK_STR(out.env[1], "B=");
    CHECK_STR(out.cwd, "/tmp");
    CHECK(out.flags == in.flags && out.rows == 50 && out.cols == 132);
    guest_spec_done(&out);
    CHECK(!out.argv && !out.env && !out.cwd);
}

TEST(spec_in_several_frames)
{
    _cleanup_buf_ struct buf b = BUF_INIT(GUEST_SPEC_WIRE_MAX);
    _cleanup_free_ char *arg = large_string("", 80 << 10), *value = large_string("BIG=", 127 << 10);
    char *argv[] = {(char *)"echo", arg, NULL}, *env[] = {value, NULL};
    const struct guest_spec in = {.argv = argv, .env = env};
    struct guest_spec out = {0};
    size_t frames;

    CHECK(guest_put_spec(&b, &in, GUEST_VERSION_MINOR, NULL) == 0);
    CHECK(read_spec(&b, &out, &frames) == 0 && frames == 4);
    CHECK_STR(out.argv[1], arg);
    CHECK_STR(out.env[0], value);
    CHECK(!out.cwd && !out.rows);
    guest_spec_done(&out);
}

TEST(secrets)
{
    _cleanup_buf_ struct buf b = BUF_INIT(GUEST_SPEC_WIRE_MAX);
    struct guest_secret secrets[GUEST_SECRETS_MAX + 1];
    char *argv[] = {(char *)"sh", NULL}, value[] = "a\0b";
    struct guest_spec in = {.argv = argv, .secrets = secrets}, out = {0};
    size_t frames;

    for (size_t i = 0; i < ARRAY_SIZE(secrets); i++)
        secrets[i] = (struct guest_secret){(char *)"KEY", value, sizeof(value)};
    secrets[0] = (struct guest_secret){(char *)"a.pem", NULL, 0};
    in.n_secrets = 2;
    CHECK(guest_put_spec(&b, &in, GUEST_VERSION_MINOR, NULL) == 0);
    CHECK(read_spec(&b, &out, &frames) == 0 && out.n_secrets == 2);
    CHECK_STR(out.secrets[0].name, "a.pem");
    CHECK_STR(out.secrets[1].name, "KEY");
    CHECK(out.secrets[0].len == 0 && out.secrets[1].len == 4);
    CHECK(memcmp(out.secrets[1].value, "a\0b", 4) == 0);
    guest_spec_done(&out);
    CHECK(!out.secrets);

    buf_clear(&b);
    in.n_secrets = ARRAY_SIZE(secrets); /* one too many */
    CHECK(guest_put_spec(&b, &in, GUEST_VERSION_MINOR, NULL) == 0);
    CHECK(read_spec(&b, &out, &frames) == -ERR_INVALID);
}

TEST(the_largest_spec_and_one_byte_more)
{
    _cleanup_buf_ struct buf b = BUF_INIT(GUEST_SPEC_WIRE_MAX + GUEST_HEAD_SIZE);
    _cleanup_strv_ char **argv = large_command(COMMAND_MAX / 2, false);
    _cleanup_strv_ char **env = large_command(COMMAND_MAX / 2, true);
    _cleanup_strv_ char **more = large_command(COMMAND_MAX / 2 + 1, false);
    char value[64 << 10] = "";
    struct guest_secret secret = {(char *)"KEY", value, sizeof(value)};
    struct guest_spec in = {.argv = more, .env = env}, out = {0};
    size_t frames;

    CHECK(guest_put(&b, GUEST_STDIN_EOF, NULL, 0) == 0);
    CHECK(guest_put_spec(&b, &in, GUEST_VERSION_MINOR, NULL) == -ERR_LIMIT);
    CHECK(b.len == GUEST_HEAD_SIZE);
    buf_clear(&b);
    in = (struct guest_spec){.argv = argv, .env = env, .cwd = (char *)"/x", .secrets = &secret};
    in.n_secrets = 1;
    CHECK(guest_put_spec(&b, &in, GUEST_VERSION_MINOR, NULL) == 0);
    CHECK(read_spec(&b, &out, &frames) == 0);
    CHECK(strv_equal(out.argv, argv) && strv_equal(out.env, env) && out.n_secrets == 1);
    guest_spec_done(&out);
}

TEST(the_guest_takes_no_more_bytes_than_a_spec_has)
{
    _cleanup_buf_ struct buf fields = BUF_INIT(2 * GUEST_SPEC_MAX);
    _cleanup_free_ char *piece = large_string("", GUEST_PAYLOAD_MAX);
    struct guest_frame f = {.type = GUEST_SPEC, .length = GUEST_PAYLOAD_MAX, .data = piece};

    for (int i = 0; i < GUEST_SPEC_MAX / GUEST_PAYLOAD_MAX; i++)
        CHECK(guest_collect_spec(&fields, &f, NULL) == 0);
    CHECK(guest_collect_spec(&fields, &f, NULL) == -ERR_LIMIT);
}

/* Strings that our own side would not send, as a hostile peer might. */
TEST(the_guest_refuses_strings_that_linux_would_not_take)
{
    _cleanup_buf_ struct buf fields = BUF_INIT(GUEST_SPEC_MAX);
    _cleanup_free_ char *arg = large_string("", COMMAND_STRING_MAX);
    struct guest_spec out = {0};

    CHECK(buf_append(&fields, "\1\0\1\xff\xff", 5) == 0); /* 131071 bytes */
    CHECK(buf_append(&fields, arg, COMMAND_STRING_MAX - 1) == 0);
    CHECK(guest_get_spec(&fields, &out, NULL) == 0);
    CHECK(strlen(out.argv[0]) == COMMAND_STRING_MAX - 1);
    guest_spec_done(&out);
    buf_clear(&fields);
    CHECK(buf_append(&fields, "\1\0\2\0\0", 5) == 0);
    CHECK(buf_append(&fields, arg, COMMAND_STRING_MAX) == 0);
    CHECK(guest_get_spec(&fields, &out, NULL) == -ERR_LIMIT);
}

TEST(as_many_strings_as_fit_and_one_more)
{
    _cleanup_buf_ struct buf b = BUF_INIT(GUEST_SPEC_WIRE_MAX), fields = BUF_INIT(GUEST_SPEC_MAX);
    char **argv = xcalloc(COMMAND_STRINGS_MAX + 2, sizeof(char *));
    struct guest_spec in = {.argv = argv}, out = {0};
    size_t frames;

    for (int i = 0; i <= COMMAND_STRINGS_MAX; i++)
        argv[i] = (char *)(i ? "" : "x");
    argv[COMMAND_STRINGS_MAX - 1] = NULL;
    CHECK(guest_put_spec(&b, &in, GUEST_VERSION_MINOR, NULL) == 0);
    CHECK(read_spec(&b, &out, &frames) == 0 && strv_len(out.argv) == COMMAND_STRINGS_MAX - 1);
    guest_spec_done(&out);
    argv[COMMAND_STRINGS_MAX - 1] = (char *)"";
    CHECK(guest_put_spec(&b, &in, GUEST_VERSION_MINOR, NULL) == -ERR_LIMIT);
    for (int i = 0; i < GUEST_SPEC_ITEMS_MAX + GUEST_SECRETS_MAX + 9; i++)
        CHECK(buf_append(&fields, "\1\0\0\0\1x", 6) == 0);
    CHECK(guest_get_spec(&fields, &out, NULL) == -ERR_LIMIT);
    free(argv);
}

TEST(an_older_guest_gets_no_more_than_it_takes)
{
    enum { OLD = GUEST_MINOR_LARGE - 1 };
    _cleanup_buf_ struct buf b = BUF_INIT(GUEST_SPEC_WIRE_MAX);
    _cleanup_strv_ char **large = large_command(GUEST_OLD_SPEC_MAX, false);
    _cleanup_strv_ char **larger = large_command(GUEST_OLD_SPEC_MAX + (100 << 10), false);
    char **many = xcalloc(GUEST_OLD_ITEMS_MAX + 2, sizeof(char *));
    struct guest_spec in = {.argv = large};
    _cleanup_err_ struct err err = ERR_INIT;

    CHECK(guest_put_spec(&b, &in, OLD, NULL) == 0); /* each field takes 4 bytes less */
    buf_clear(&b);
    in.argv = larger;
    CHECK(guest_put_spec(&b, &in, OLD, &err) == -ERR_UNSUPPORTED && b.len == 0);
    CHECK(err.hint && strstr(err.hint, "Stop the sandbox"));
    CHECK(guest_put_spec(&b, &in, GUEST_MINOR_LARGE, NULL) == 0);
    buf_clear(&b);
    for (int i = 0; i <= GUEST_OLD_ITEMS_MAX; i++)
        many[i] = (char *)"x";
    in.argv = many;
    err_done(&err);
    CHECK(guest_put_spec(&b, &in, OLD, &err) == -ERR_UNSUPPORTED);
    many[GUEST_OLD_ITEMS_MAX] = NULL;
    CHECK(guest_put_spec(&b, &in, OLD, NULL) == 0);
    in.flags = GUEST_SPEC_MERGED; /* it would pass over the flag */
    err_done(&err);
    CHECK(guest_put_spec(&b, &in, GUEST_MINOR_MERGED - 1, &err) == -ERR_UNSUPPORTED);
    CHECK(guest_put_spec(&b, &in, GUEST_MINOR_MERGED, NULL) == 0);
    free(many);
}

struct bad {
    const char *bytes;
    size_t len;
};
#define BAD(text)                                                                                  \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
#define SH "\1\0\0\0\2sh"

TEST(specs_that_are_refused)
{
    static const struct bad bad[] = {
        BAD(""),                                        /* no command */
        BAD("\1\0\0\0\0"),                              /* an empty one */
        BAD("\2\0\0\0\3A=1"),                           /* no command, but a variable */
        BAD(SH "\1\0\0\0"),                             /* head cut off */
        BAD(SH "\1\0\0\0\3ab"),                         /* value cut off */
        BAD(SH "\1\xff\xff\xff\xff"),                   /* longer than all */
        BAD("\1\0\0\0\3a\0b"),                          /* NUL */
        BAD(SH "\2\0\0\0\1A"),                          /* no '=' */
        BAD(SH "\2\0\0\0\2=A"),                         /* no name */
        BAD(SH "\3\0\0\0\3tmp"),                        /* not absolute */
        BAD(SH "\3\0\0\0\0"),                           /* empty */
        BAD(SH "\3\0\0\0\1/\3\0\0\0\1/"),               /* twice */
        BAD(SH "\4\0\0\0\3\0\0\0"),                     /* flags of 3 bytes */
        BAD(SH "\4\0\0\0\4\0\0\0\1\4\0\0\0\4\0\0\0\1"), /* twice */
        BAD(SH "\5\0\0\0\0"),                           /* no size */
        BAD(SH "\0\0\0\0\0"),                           /* unknown tags */
        BAD(SH "\7\0\0\0\0"),
        BAD(SH "\6\0\0\0\0"),       /* a secret without a name */
        BAD(SH "\6\0\0\0\2ab"),     /* without its end */
        BAD(SH "\6\0\0\0\3\0ab"),   /* with an empty one */
        BAD(SH "\6\0\0\0\5../\0x"), /* that leads elsewhere */
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_buf_ struct buf fields = BUF_INIT(1000);
        struct guest_spec out = {.rows = 7};

        CHECK(buf_append(&fields, bad[i].bytes, bad[i].len) == 0);
        if (guest_get_spec(&fields, &out, NULL) != -ERR_INVALID || out.rows != 7)
            printf("# case %zu was taken\n", i);
        CHECK(guest_get_spec(&fields, &out, NULL) == -ERR_INVALID);
    }
}

/* ---- the ends ---- */

TEST(failed)
{
    _cleanup_buf_ struct buf b = BUF_INIT(10000);
    _cleanup_err_ struct err in = ERR_INIT, out = ERR_INIT, none = ERR_INIT;
    struct guest_frame f;

    err_sys(&in, 2, "open 'x'");
    err_hint(&in, "Make it.");
    CHECK(guest_put_failed(&b, &in) == 0 && parse(&b, GUEST_SIDE_GUEST, &f) == 1);
    CHECK(guest_get_failed(&f, &out) == 0);
    CHECK(out.code == ERR_SYSTEM && out.errnum == 2);
    CHECK_STR(out.msg, in.msg);
    CHECK_STR(out.hint, "Make it.");
    buf_clear(&b);
    err_set(&none, ERR_NOT_FOUND, "gone");
    CHECK(guest_put_failed(&b, &none) == 0 && parse(&b, GUEST_SIDE_GUEST, &f) == 1);
    err_done(&out);
    CHECK(guest_get_failed(&f, &out) == 0 && out.code == ERR_NOT_FOUND && !out.hint);
}

TEST(failed_is_cut_to_size)
{
    _cleanup_buf_ struct buf b = BUF_INIT(10000);
    _cleanup_err_ struct err in = ERR_INIT, out = ERR_INIT;
    _cleanup_free_ char *text = large_string("", 5000);
    struct guest_frame f;

    err_set(&in, ERR_DENIED, "%s", text);
    err_hint(&in, "%s", text);
    CHECK(guest_put_failed(&b, &in) == 0 && parse(&b, GUEST_SIDE_GUEST, &f) == 1);
    CHECK(guest_get_failed(&f, &out) == 0);
    CHECK(strlen(out.msg) == GUEST_TEXT_MAX && strlen(out.hint) == GUEST_TEXT_MAX);
}

TEST(failed_that_is_refused)
{
    static const struct bad bad[] = {
        BAD("\0\0\0\0\0\0\0\0\0\1x"),         /* no error at all */
        BAD("\0\0\0\x0b\0\0\0\0\0\1x"),       /* an invalid code */
        BAD("\xff\xff\xff\xff\0\0\0\0\0\1x"), /* another */
        BAD("\0\0\0\1\xff\xff\xff\xff\0\1x"), /* no errno */
        BAD("\0\0\0\1\0\0\0\0\0\2x"),         /* message longer than the frame */
        BAD("\0\0\0\1\0\0\0\0\0\1\0"),        /* NUL */
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct guest_frame f = {
            .type = GUEST_FAILED, .length = (uint32_t)bad[i].len, .data = bad[i].bytes};
        _cleanup_err_ struct err err = ERR_INIT;

        CHECK(guest_get_failed(&f, &err) == -ERR_INVALID && err.code == ERR_INVALID);
    }
}

TEST(exit_round_trip)
{
    const struct guest_exit in = {.status = 3 << 8,
                                  .flags = GUEST_EXIT_DRAINED,
                                  .stdout_bytes = 1,
                                  .stderr_bytes = 2,
                                  .cpu_usec = 3,
                                  .max_rss = 4,
                                  .io_read = 5,
                                  .io_write = 6,
                                  .memory_peak_before = 7,
                                  .memory_peak = 8,
                                  .memory_limit = 9,
                                  .oom_kills_before = 10,
                                  .oom_kills = 11,
                                  .pids_denied_before = 12,
                                  .pids_denied = GUEST_UNKNOWN};
    _cleanup_buf_ struct buf b = BUF_INIT(1000);
    struct guest_exit out;
    struct guest_frame f;

    CHECK(guest_put_exit(&b, &in) == 0 && parse(&b, GUEST_SIDE_GUEST, &f) == 1);
    CHECK(guest_get_exit(&f, &out, NULL) == 0 && memcmp(&in, &out, sizeof(in)) == 0);
}

static int exit_with(uint32_t status)
{
    const struct guest_exit in = {.status = status};
    _cleanup_buf_ struct buf b = BUF_INIT(1000);
    struct guest_exit out;
    struct guest_frame f;

    if (guest_put_exit(&b, &in) < 0 || parse(&b, GUEST_SIDE_GUEST, &f) != 1)
        return -99;
    return guest_get_exit(&f, &out, NULL);
}

TEST(statuses_that_no_process_has)
{
    CHECK(exit_with(0) == 0 && exit_with(255 << 8) == 0 && exit_with(9) == 0);
    CHECK(exit_with(11 | 0x80) == 0 && exit_with(64) == 0);
    CHECK(exit_with(0x7f) == -ERR_INVALID);   /* stopped */
    CHECK(exit_with(0xffff) == -ERR_INVALID); /* continued */
    CHECK(exit_with(65) == -ERR_INVALID);     /* no such signal */
    CHECK(exit_with(1 << 16) == -ERR_INVALID);
    CHECK(exit_with(0x80000009) == -ERR_INVALID);
}

TEST(done)
{
    const struct guest_done in = {1, UINT64_C(1) << 40, 3};
    _cleanup_buf_ struct buf b = BUF_INIT(100);
    struct guest_done out;
    struct guest_frame f;

    CHECK(guest_put_done(&b, &in) == 0 && parse(&b, GUEST_SIDE_GUEST, &f) == 1);
    guest_get_done(&f, &out);
    CHECK(memcmp(&in, &out, sizeof(in)) == 0);
}
