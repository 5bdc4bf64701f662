/*
 * Segment journals and end records.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "lib/journal/journal.h"
#include "lib/journal/record.h"
#include "lib/os/rmtree.h"
#include "tap.h"

enum { SEG = JOURNAL_SEGMENT_SIZE };

struct place {
    char dir[32];
    int fd;
};

static void place_done(struct place *p)
{
    fd_close(p->fd);
    if (*p->dir)
        rmtree(AT_FDCWD, p->dir, NULL);
}

#define PLACE(p)                                                                                   \
    __attribute__((cleanup(place_done))) struct place p = {"/tmp/test-journal-XXXXXX", -1};        \
    CHECK(mkdtemp(p.dir));                                                                         \
    p.fd = open(p.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);                                        \
    CHECK(p.fd >= 0)

/* Byte n of the stream, so that a shift by any amount shows. */
static char byte_at(uint64_t n)
{
    return (char)(n * 31 + (n >> 13));
}

static int append(struct journal_writer *w, size_t len)
{
    _cleanup_free_ char *data = xmalloc(len);

    for (size_t i = 0; i < len; i++)
        data[i] = byte_at(w->end + i);
    return journal_writer_append(w, data, len, NULL);
}

static bool reads_back(struct journal_reader *r, uint64_t from, uint64_t to)
{
    _cleanup_free_ char *data = xmalloc(100000);

    while (from < to) {
        ssize_t n = journal_reader_read(r, from, data, 100000, NULL);

        if (n <= 0)
            return false;
        for (ssize_t i = 0; i < n; i++)
            if (data[i] != byte_at(from + (uint64_t)i))
                return false;
        from += (uint64_t)n;
    }
    return true;
}

TEST(written_bytes_come_back_across_segments)
{
    struct journal_writer w;
    struct journal_reader r;
    uint64_t start, end;
    char c;

    PLACE(p);
    journal_writer_init(&w, p.fd, JOURNAL_STDOUT, 0);
    CHECK(journal_reader_open(&r, p.fd, ".", JOURNAL_STDOUT, NULL) == 0);
    CHECK(journal_reader_extent(&r, &start, &end, NULL) == 0 && start == 0 && end == 0);
    CHECK(journal_reader_read(&r, 0, &c, 1, NULL) == 0);
    CHECK(append(&w, 5) == 0);
    CHECK(append(&w, SEG) == 0);
    CHECK(append(&w, SEG - 5) == 0); /* ends exactly at a segment's end */
    CHECK(append(&w, 7) == 0);
    CHECK(journal_reader_extent(&r, &start, &end, NULL) == 0);
    CHECK(start == 0 && end == 2 * (uint64_t)SEG + 7 && w.end == end);
    CHECK(reads_back(&r, 0, end));
    CHECK(reads_back(&r, SEG - 3, end));
    CHECK(journal_reader_read(&r, end, &c, 1, NULL) == 0);
    CHECK(append(&w, 3) == 0 && reads_back(&r, end, end + 3));
    CHECK(faccessat(p.fd, "out.00000002", F_OK, 0) == 0);
    journal_writer_done(&w);
    journal_reader_done(&r);
}

TEST(streams_do_not_mix)
{
    struct journal_writer out, err;
    struct journal_reader r;
    uint64_t start, end;

    PLACE(p);
    journal_writer_init(&out, p.fd, JOURNAL_STDOUT, 0);
    journal_writer_init(&err, p.fd, JOURNAL_STDERR, 0);
    CHECK(append(&out, 10) == 0 && append(&err, 20) == 0);
    CHECK(journal_reader_open(&r, p.fd, ".", JOURNAL_STDERR, NULL) == 0);
    CHECK(journal_reader_extent(&r, &start, &end, NULL) == 0 && end == 20);
    journal_reader_done(&r);
    journal_writer_done(&out);
    journal_writer_done(&err);
}

TEST(trim_drops_whole_segments_down_to_the_budget)
{
    struct journal_writer w;
    struct journal_reader r;
    uint64_t start, end;
    char c;

    PLACE(p);
    journal_writer_init(&w, p.fd, JOURNAL_STDOUT, SEG + 100);
    for (int i = 0; i < 4; i++)
        CHECK(append(&w, SEG) == 0);
    CHECK(append(&w, 50) == 0);
    journal_writer_trim(&w, 0);
    CHECK(w.start == 0); /* someone needs them */
    journal_writer_trim(&w, SEG + 1);
    CHECK(w.start == SEG);
    journal_writer_trim(&w, UINT64_MAX);
    CHECK(w.start == 3 * (uint64_t)SEG);
    CHECK(journal_reader_open(&r, p.fd, ".", JOURNAL_STDOUT, NULL) == 0);
    CHECK(journal_reader_extent(&r, &start, &end, NULL) == 0);
    CHECK(start == w.start && end == w.end);
    CHECK(journal_reader_read(&r, 0, &c, 1, NULL) == -ERR_NOT_FOUND);
    CHECK(reads_back(&r, start, end));
    journal_writer_done(&w);
    journal_reader_done(&r);
}

TEST(budget_below_a_segment_keeps_the_newest)
{
    struct journal_writer w;

    PLACE(p);
    journal_writer_init(&w, p.fd, JOURNAL_STDOUT, 10);
    CHECK(append(&w, 1000) == 0);
    journal_writer_trim(&w, UINT64_MAX);
    CHECK(w.start == 0);
    CHECK(append(&w, SEG) == 0);
    journal_writer_trim(&w, UINT64_MAX);
    CHECK(w.start == SEG);
    journal_writer_done(&w);
}

TEST(foreign_names_are_not_segments)
{
    struct journal_reader r;
    uint64_t start, end;

    PLACE(p);
    CHECK(mkdirat(p.fd, "out.0000000x", 0700) == 0 && mkdirat(p.fd, "out.1", 0700) == 0 &&
          mkdirat(p.fd, "out.99999999999999999999999", 0700) == 0);
    CHECK(journal_reader_open(&r, p.fd, ".", JOURNAL_STDOUT, NULL) == 0);
    CHECK(journal_reader_extent(&r, &start, &end, NULL) == 0 && end == 0);
    journal_reader_done(&r);
}

TEST(full_disk_counts_what_was_written)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct journal_writer w;
    int full;

    PLACE(p);
    CHECK(symlinkat("/dev/full", p.fd, "err.00000000") == 0);
    journal_writer_init(&w, p.fd, JOURNAL_STDERR, 0);
    /* A symlink is not followed, not even ours. */
    CHECK(journal_writer_append(&w, "x", 1, &err) < 0 && err.errnum == ELOOP);
    full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    w.fd = full;
    err_done(&err);
    CHECK(journal_writer_append(&w, "x", 1, &err) == -ERR_SYSTEM);
    CHECK(err.errnum == ENOSPC && w.end == 0);
    journal_writer_done(&w);
}

/* ---- end records ---- */

static const struct end_record sample = {
    .cause = END_OOM,
    .exit_code = -1,
    .signal = 9,
    .started_wall = 1700000000000000,
    .ended_wall = 1700000001000000,
    .wall_usec = 1000000,
    .cpu_usec = 5,
    .memory_peak = 6,
    .memory_limit = 7,
    .oom_kills = 1,
    .pids_denied = 2,
    .io_read = 3,
    .io_write = 4,
    .stdout_bytes = UINT64_MAX,
    .stderr_bytes = 8,
    .stdout_dropped = 9,
    .stderr_dropped = 10,
    .drained = true,
};

TEST(record_round_trip)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct end_record got;

    PLACE(p);
    CHECK(end_record_read(p.fd, &got, &err) == -ERR_NOT_FOUND);
    CHECK(end_record_write(p.fd, &sample, NULL) == 0);
    CHECK(end_record_read(p.fd, &got, NULL) == 0);
    CHECK(got.cause == END_OOM && got.exit_code == -1 && got.signal == 9 && got.drained);
    CHECK(got.stdout_bytes == UINT64_MAX && got.stderr_dropped == 10 && got.io_write == 4);
    CHECK(got.started_wall == sample.started_wall && got.pids_denied == 2);
    CHECK(got.error == ERR_NONE && !*got.message);
}

TEST(record_message_cannot_forge_fields)
{
    struct end_record rec = {.cause = END_START_FAILED, .exit_code = -1, .error = ERR_NOT_FOUND},
                      got;
    _cleanup_buf_ struct buf b = BUF_INIT(8192);

    snprintf(rec.message, sizeof(rec.message), "command 'x\ncause=exited\nexit_code=0' not found");
    snprintf(rec.hint, sizeof(rec.hint), "look\nsignal=9");
    CHECK(end_record_format(&rec, &b) == 0);
    CHECK(end_record_parse(buf_data(&b), b.len, &got, NULL) == 0);
    CHECK(got.cause == END_START_FAILED && got.exit_code == -1 && got.error == ERR_NOT_FOUND);
    CHECK(end_record_status(&got) == 127 && got.signal == 0);
    CHECK(strncmp(got.hint, "look", 4) == 0);
}

TEST(record_status_is_what_a_shell_shows)
{
    struct end_record rec = {.cause = END_EXITED, .exit_code = 7};

    CHECK(end_record_status(&rec) == 7);
    CHECK(end_record_status(&sample) == 137);
    rec = (struct end_record){.cause = END_START_FAILED, .exit_code = -1, .error = ERR_DENIED};
    CHECK(end_record_status(&rec) == 126);
    rec.error = ERR_SYSTEM;
    CHECK(end_record_status(&rec) == 125);
    rec = (struct end_record){.cause = END_ENGINE_LOST, .exit_code = -1};
    CHECK(end_record_status(&rec) == 125);
}

TEST(broken_records_are_refused)
{
    static const char *const bad[] = {
        "",
        "cause=exited",            /* cut off: no line end */
        "cause=exited\nexit_code", /* cut off in the middle */
        "exit_code=0\n",           /* no cause */
        "cause=nonsense\n",
        "cause=exited\nexit_code=256\n",
        "cause=exited\nexit_code=-1\n",
        "cause=exited\nsignal=65\n",
        "cause=exited\nwall_usec=1x\n",
        "cause=exited\nno equals sign\n",
    };
    struct end_record rec = {.signal = 77};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK(end_record_parse(bad[i], strlen(bad[i]), &rec, NULL) == -ERR_INVALID);
        CHECK(rec.signal == 77);
    }
    CHECK(end_record_parse("cause=exited\nfuture=1\n", 22, &rec, NULL) == 0 && rec.signal == 0);
    CHECK(end_record_parse("cause=exited\0\n", 14, &rec, NULL) == -ERR_INVALID);
}

TEST(cause_names)
{
    enum end_cause c;

    for (int i = 0; i < END_CAUSE_MAX; i++)
        CHECK(end_cause_parse(end_cause_name((enum end_cause)i), &c) == 0 && (int)c == i);
    CHECK(end_cause_parse("", &c) < 0);
}

TEST(times_are_marked_at_most_once_in_a_gap)
{
    PLACE(p);
    struct times_writer w;
    _cleanup_free_ struct times_mark *marks = NULL;
    size_t n = 1;

    CHECK(times_read(p.fd, "out", &marks, &n, NULL) == 0 && n == 0);
    times_writer_init(&w);
    times_writer_note(&w, p.fd, "out", 0);
    CHECK(w.n == 0 && w.fd < 0); /* within the gap after the start */
    w.last -= TIMES_GAP_USEC;
    times_writer_note(&w, p.fd, "out", 10);
    times_writer_note(&w, p.fd, "out", 20);
    CHECK(w.n == 1);
    w.last += 10 * TIMES_GAP_USEC; /* the clock was set back */
    times_writer_note(&w, p.fd, "out", 30);
    times_writer_done(&w);
    free(TAKE_PTR(marks));
    CHECK(times_read(p.fd, "out", &marks, &n, NULL) == 0 && n == 2);
    CHECK(marks[0].offset == 10 && marks[1].offset == 30);
    CHECK(marks[0].usec && marks[1].usec >= marks[0].usec);
}

TEST(times_of_a_long_stream_are_thinned)
{
    PLACE(p);
    struct times_writer w;
    _cleanup_free_ struct times_mark *marks = NULL;
    struct stat st;
    size_t n;

    times_writer_init(&w);
    for (uint64_t i = 0; i < 3 * TIMES_MAX; i++) {
        w.last -= w.gap;
        times_writer_note(&w, p.fd, "err", i);
    }
    CHECK(fstat(w.fd, &st) == 0 && st.st_size <= (off_t)(TIMES_MAX * sizeof(*marks)));
    CHECK(w.gap == 16 * TIMES_GAP_USEC || w.gap == 8 * TIMES_GAP_USEC);
    times_writer_done(&w);
    CHECK(times_read(p.fd, "err", &marks, &n, NULL) == 0 && n > TIMES_MAX / 2);
    CHECK(marks[0].offset == 0 && marks[n - 1].offset == 3 * TIMES_MAX - 1);
    for (size_t i = 1; i < n; i++)
        if (marks[i].offset <= marks[i - 1].offset)
            CHECK(!"ascending");
}

TEST(times_of_an_interrupted_thinning_ascend)
{
    PLACE(p);
    struct times_mark raw[] = {{1, 0}, {3, 20}, {2, 10}, {3, 20}, {4, 30}};
    _cleanup_free_ struct times_mark *marks = NULL;
    _cleanup_close_ int fd = openat(p.fd, "out.times", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    size_t n;

    CHECK(write(fd, raw, sizeof(raw)) == sizeof(raw));
    CHECK(write(fd, "torn", 4) == 4);
    CHECK(times_read(p.fd, "out", &marks, &n, NULL) == 0 && n == 3);
    CHECK(marks[1].offset == 20 && marks[2].offset == 30);
}
