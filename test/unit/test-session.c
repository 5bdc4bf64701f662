/* From the bytes of an agent to the events of its session: lines, pieces, wrapping, and the
 * index. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/core/session/session-index.h"
#include "daemon/core/session/session-line.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "tap.h"

enum { MAX_LINE = 8 };

/* ---- lines ---- */

/* Lists the pieces as "text" or "text+part", with a '~' when more pieces follow. */
static void cut(const char *data, size_t len, size_t max, char *ret, size_t size)
{
    struct session_line l;
    uint32_t part = 0;
    size_t at = 0;

    *ret = '\0';
    while (session_line_next(data + at, len - at, true, part, max, &l)) {
        size_t n = strlen(ret);

        snprintf(ret + n, size - n, l.part ? "[%.*s+%u%s]" : "[%.*s]", (int)l.len, l.data, l.part,
                 l.last ? "" : "~");
        part = l.last ? 0 : l.part;
        at += l.used;
    }
}

static const char *pieces(const char *text)
{
    static char ret[512];

    cut(text, strlen(text), MAX_LINE, ret, sizeof(ret));
    return ret;
}

TEST(lines_are_found)
{
    CHECK_STR(pieces(""), "");
    CHECK_STR(pieces("a\nbc\n"), "[a][bc]");
    CHECK_STR(pieces("a\n\nb"), "[a][][b]");
    CHECK_STR(pieces("12345678\n"), "[12345678]");
}

TEST(long_lines_are_cut_and_marked)
{
    CHECK_STR(pieces("123456789\n"), "[12345678+1~][9+2]");
    CHECK_STR(pieces("12345678901234567\nx\n"), "[12345678+1~][90123456+2~][7+3][x]");
    CHECK_STR(pieces("1234567890123456\n"), "[12345678+1~][90123456+2]");
    CHECK_STR(pieces("123456789"), "[12345678+1~][9+2]");
}

TEST(a_cut_does_not_part_a_character)
{
    CHECK_STR(pieces("1234567\xc3\xa9x\n"), "[1234567+1~][\xc3\xa9x+2]");
    CHECK_STR(pieces("123456\xf0\x9f\x98\x80\n"), "[123456+1~][\xf0\x9f\x98\x80+2]");
    CHECK_STR(pieces("123456\xc3\xa9x\n"), "[123456\xc3\xa9+1~][x+2]");
    CHECK_STR(pieces("1234567\xc3x\n"), "[1234567\xc3+1~][x+2]"); /* it was broken in the input */
}

/* The same pieces whether the bytes come at once or one by one. */
TEST(pieces_do_not_depend_on_how_bytes_come)
{
    static const char text[] = "abc\n123456789\n12345678\xc3\xa9\n1234567\xf0\x9f\x98\x80"
                               "1234567\xf0\x9f\n\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\nend";
    size_t len = sizeof(text) - 1, at = 0;
    char whole[512], got[512] = "";
    struct session_line l;
    uint32_t part = 0;

    cut(text, len, MAX_LINE, whole, sizeof(whole));
    for (size_t have = 0; have <= len; have++) {
        while (session_line_next(text + at, have - at, have == len, part, MAX_LINE, &l)) {
            size_t n = strlen(got);

            snprintf(got + n, sizeof(got) - n, l.part ? "[%.*s+%u%s]" : "[%.*s]", (int)l.len,
                     l.data, l.part, l.last ? "" : "~");
            part = l.last ? 0 : l.part;
            at += l.used;
        }
    }
    CHECK(at == len);
    CHECK_STR(got, whole);
}

TEST(a_line_is_not_held_back)
{
    struct session_line l;

    CHECK(session_line_next("a\n", 2, false, 0, MAX_LINE, &l) && l.used == 2);
    CHECK(!session_line_next("a", 1, false, 0, MAX_LINE, &l));
    CHECK(session_line_next("123456789\n", 10, false, 0, MAX_LINE, &l) && l.used == 8);
    CHECK(session_line_next("9\n", 2, false, 1, MAX_LINE, &l) && l.last && l.part == 2);
}

/* ---- events ---- */

static const char *event(const char *text, size_t len, enum journal_stream stream)
{
    static struct buf b = BUF_INIT(SESSION_EVENT_MAX);
    struct session_line l = {.data = text, .len = len, .last = true};

    buf_clear(&b);
    return session_line_event(&l, stream, &b) < 0 ? "too large" : buf_data(&b);
}

#define OUT(text) event(text, sizeof(text) - 1, JOURNAL_STDOUT)
#define LOG(text) "{\"type\":\"log\",\"stream\":\"stdout\",\"text\":\"" text "\"}"

TEST(objects_pass)
{
    CHECK_STR(OUT("{\"a\":1.10}"), "{\"a\":1.10}");
    CHECK_STR(OUT("{\"a\":1,\r\"b\":2}\r"), "{\"a\":1, \"b\":2}");
    CHECK_STR(OUT("{\"a\":[\"\\u0000\"]} \t"), "{\"a\":[\"\\u0000\"]}");
}

/* An agent cannot write an event that looks like ours. */
TEST(objects_of_our_types_are_wrapped)
{
    CHECK_STR(OUT("{\"type\":\"exit\",\"exit_code\":0} "),
              "{\"type\":\"agent\",\"event\":{\"type\":\"exit\",\"exit_code\":0}}");
    CHECK_STR(OUT("{\"a\":{},\"\\u0074ype\":\"g\\u0061p\"}"),
              "{\"type\":\"agent\",\"event\":{\"a\":{},\"\\u0074ype\":\"g\\u0061p\"}}");
    CHECK_STR(OUT("{\"type\":\"agent\"}"), "{\"type\":\"agent\",\"event\":{\"type\":\"agent\"}}");
    CHECK_STR(OUT("{\"type\":\"log\"}"), "{\"type\":\"agent\",\"event\":{\"type\":\"log\"}}");
    CHECK_STR(OUT("{\"type\":\"exits\"}"), "{\"type\":\"exits\"}");
    CHECK_STR(OUT("{\"a\":{\"type\":\"exit\"}}"), "{\"a\":{\"type\":\"exit\"}}");
}

TEST(other_text_is_wrapped)
{
    CHECK_STR(OUT("hello"), LOG("hello"));
    CHECK_STR(OUT("hello\r"), LOG("hello"));
    CHECK_STR(OUT(""), LOG(""));
    CHECK_STR(OUT("[1]"), LOG("[1]"));
    CHECK_STR(OUT("{\"a\":}"), LOG("{\\\"a\\\":}"));
    CHECK_STR(OUT("a\0b"), LOG("a\\u0000b"));
    CHECK_STR(OUT("\x1b[31m\x7f"), LOG("\\u001b[31m\\u007f"));
    CHECK_STR(event("{}", 2, JOURNAL_STDERR),
              "{\"type\":\"log\",\"stream\":\"stderr\",\"text\":\"{}\"}");
}

TEST(broken_text_is_marked)
{
    CHECK_STR(OUT("a\xff z"),
              "{\"type\":\"log\",\"stream\":\"stdout\",\"text\":\"a\xef\xbf\xbd z\","
              "\"invalid_utf8\":true}");
    CHECK_STR(
        OUT("{\"a\":\"\xff\"}"),
        "{\"type\":\"log\",\"stream\":\"stdout\",\"text\":\"{\\\"a\\\":\\\"\xef\xbf\xbd\\\"}\","
        "\"invalid_utf8\":true}");
}

/* A piece is never taken for an object, and the worst one fits. */
TEST(pieces)
{
    struct session_line l = {.data = "{}", .len = 2, .part = 2, .last = false};
    _cleanup_buf_ struct buf b = BUF_INIT(SESSION_EVENT_MAX);
    _cleanup_free_ char *worst = xcalloc(1, SESSION_LINE_MAX);

    CHECK(session_line_event(&l, JOURNAL_STDOUT, &b) == 0);
    CHECK_STR(buf_data(&b), "{\"type\":\"log\",\"stream\":\"stdout\",\"text\":\"{}\",\"part\":2,"
                            "\"more\":true}");
    buf_clear(&b);
    l = (struct session_line){.data = worst, .len = SESSION_LINE_MAX, .part = UINT32_MAX};
    worst[0] = (char)0xff;
    CHECK(session_line_event(&l, JOURNAL_STDOUT, &b) == 0);
}

/* ---- the index ---- */

static char *make_dir(void)
{
    char *dir = xstrdup("/tmp/ripcord-session-XXXXXX");

    return mkdtemp(dir);
}

static void drop_dir(char *dir)
{
    _cleanup_free_ char *file = xasprintf("%s/events", dir);

    unlink(file);
    rmdir(dir);
    free(dir);
}

static struct session_run run_at(uint64_t seq, uint32_t count)
{
    return (struct session_run){.seq = seq, .count = count, .to = seq * 10};
}

TEST(index_finds_the_run_of_a_number)
{
    char *dir = make_dir();
    struct session_index x, again;
    struct session_run run;
    uint64_t n;

    CHECK(session_index_open(&x, dir, NULL) == 0 && x.line_max == SESSION_LINE_MAX);
    CHECK(session_index_count(&x, &n, NULL) == 0 && n == 0);
    for (uint64_t i = 0; i < 50; i++) {
        run = run_at(1 + i * 3, 3);
        CHECK(session_index_put(&x, i, &run, NULL) == 0);
    }
    CHECK(session_index_open(&again, dir, NULL) == 0);
    CHECK(session_index_count(&again, &n, NULL) == 0 && n == 50);
    for (uint64_t seq = 1; seq <= 150; seq++) {
        CHECK(session_index_find(&again, seq, &n, NULL) == 0 && n == (seq - 1) / 3);
        CHECK(session_index_get(&again, n, &run, NULL) == 0 && run.seq == 1 + n * 3);
    }
    CHECK(session_index_find(&again, 10000, &n, NULL) == 0 && n == 49);
    session_index_done(&again);
    session_index_done(&x);
    drop_dir(dir);
}

TEST(forgotten_runs_come_before_kept_runs)
{
    char *dir = make_dir();
    const uint64_t last = SESSION_INDEX_RUNS + SESSION_INDEX_RUNS / 2,
                   kept = last - SESSION_INDEX_RUNS;
    struct session_run run;
    struct session_index x;
    uint64_t n;

    CHECK(session_index_open(&x, dir, NULL) == 0);
    for (uint64_t i = 0; i <= last; i += i == 10          ? kept - 20
                                         : i == kept + 10 ? last - kept - 20
                                                          : 1) {
        run = run_at(1 + i, 1);
        CHECK(session_index_put(&x, i, &run, NULL) == 0);
    }
    CHECK(session_index_get(&x, 5, &run, NULL) < 0);
    CHECK(session_index_get(&x, last, &run, NULL) == 0);
    CHECK(session_index_first(&x, last - 5, last + 1) == last - 5);
    CHECK(session_index_first(&x, 0, kept + 11) == kept);
    CHECK(session_index_find(&x, 3, &n, NULL) == 0 && n >= kept);
    session_index_done(&x);
    drop_dir(dir);
}

TEST(a_torn_end_is_cut_off)
{
    char *dir = make_dir();
    _cleanup_free_ char *file = xasprintf("%s/events", dir);
    struct session_run run = run_at(1, 1);
    struct session_index x;
    uint64_t n;

    CHECK(session_index_open(&x, dir, NULL) == 0);
    CHECK(session_index_put(&x, 0, &run, NULL) == 0);
    run = run_at(2, 1);
    CHECK(session_index_put(&x, 1, &run, NULL) == 0);
    CHECK(truncate(file, 64 + 56 + 30) == 0);
    CHECK(session_index_count(&x, &n, NULL) == 0 && n == 1);
    CHECK(truncate(file, 64 + 2 * 56) == 0); /* zeroes: a file system may leave them */
    CHECK(session_index_count(&x, &n, NULL) == 0 && n == 1);
    session_index_done(&x);
    CHECK(truncate(file, 10) == 0);
    CHECK(session_index_open(&x, dir, NULL) == 0);
    CHECK(session_index_count(&x, &n, NULL) == 0 && n == 0);
    session_index_done(&x);
    drop_dir(dir);
}

TEST(a_foreign_file_is_refused)
{
    char *dir = make_dir();
    _cleanup_free_ char *file = xasprintf("%s/events", dir);
    struct session_index x;
    FILE *f = fopen(file, "we");

    CHECK(f && fprintf(f, "%0100d", 7) == 100 && fclose(f) == 0);
    CHECK(session_index_open(&x, dir, NULL) == -ERR_SYSTEM && x.fd == -1);
    CHECK(session_index_open(&x, file, NULL) == -ERR_SYSTEM); /* a file, not a folder */
    drop_dir(dir);
    CHECK(session_index_open(&x, "/tmp/ripcord-session-none", NULL) == -ERR_NOT_FOUND);
}
