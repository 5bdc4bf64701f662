/*
 * Segments are opened relative to the folder of the exec. They are written with pwrite() at the
 * offset of the stream, so the file position does not matter, and bytes of a failed write do not
 * count.
 */
#include "lib/journal/journal.h"

#include <ctype.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"

enum { SEGMENT_NAME_MAX = 32 };

static const char *const stream_names[JOURNAL_STREAMS] = {
    [JOURNAL_STDOUT] = "out",
    [JOURNAL_STDERR] = "err",
};

static const char *journal_segment_name(const char *stream, uint64_t segment,
                                        char buf[SEGMENT_NAME_MAX])
{
    snprintf(buf, SEGMENT_NAME_MAX, "%s.%08llu", stream, (unsigned long long)segment);
    return buf;
}

/* ---- writer ---- */

void journal_writer_init(struct journal_writer *w, int dirfd, enum journal_stream stream,
                         uint64_t budget)
{
    *w = (struct journal_writer){
        .dirfd = dirfd, .name = stream_names[stream], .fd = -1, .budget = budget};
    times_writer_init(&w->times);
}

void journal_writer_done(struct journal_writer *w)
{
    w->fd = fd_close(w->fd);
    times_writer_done(&w->times);
}

static int journal_open_segment(struct journal_writer *w, struct err *err)
{
    char name[SEGMENT_NAME_MAX];

    journal_segment_name(w->name, w->end / JOURNAL_SEGMENT_SIZE, name);
    w->fd = openat(w->dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (w->fd < 0)
        return err_sys(err, errno, "create journal segment '%s'", name);
    return 0;
}

int journal_writer_append(struct journal_writer *w, const void *data, size_t len, struct err *err)
{
    const char *p = data;

    if (len)
        times_writer_note(&w->times, w->dirfd, w->name, w->end);
    while (len) {
        uint64_t at = w->end % JOURNAL_SEGMENT_SIZE;
        ssize_t n;
        int r;

        if (w->fd < 0) {
            r = journal_open_segment(w, err);
            if (r < 0)
                return r;
        }
        n = pwrite(w->fd, p, MIN(len, JOURNAL_SEGMENT_SIZE - at), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, n < 0 ? errno : ENOSPC, "write journal '%s'", w->name);
        p += n;
        len -= (size_t)n;
        w->end += (uint64_t)n;
        if (w->end % JOURNAL_SEGMENT_SIZE == 0)
            w->fd = fd_close(w->fd);
    }
    return 0;
}

void journal_writer_trim(struct journal_writer *w, uint64_t keep)
{
    char name[SEGMENT_NAME_MAX];

    while (w->budget && w->end - w->start > w->budget) {
        uint64_t segment = w->start / JOURNAL_SEGMENT_SIZE;
        uint64_t next = (segment + 1) * JOURNAL_SEGMENT_SIZE;

        /* The segment that is written stays: the newest bytes matter most. */
        if (next > keep || next > w->end)
            return;
        if (unlinkat(w->dirfd, journal_segment_name(w->name, segment, name), 0) < 0 &&
            errno != ENOENT)
            return;
        w->start = next;
    }
}

/* ---- reader ---- */

int journal_reader_open(struct journal_reader *r, int dirfd, const char *exec_dir,
                        enum journal_stream stream, struct err *err)
{
    int fd, code;

    code = dir_open(dirfd, exec_dir, &fd, err);
    if (code < 0)
        return code;
    *r = (struct journal_reader){.dirfd = fd, .stream = stream, .fd = -1};
    return 0;
}

void journal_reader_done(struct journal_reader *r)
{
    r->fd = fd_close(r->fd);
    r->dirfd = fd_close(r->dirfd);
}

/* "out.00000012" gives 12; false when the name is not a segment of this stream. */
static bool journal_parse_segment(const char *name, const char *stream, uint64_t *ret)
{
    uint64_t n = 0;
    size_t len = strlen(stream);

    if (strncmp(name, stream, len) != 0 || name[len] != '.')
        return false;
    name += len + 1;
    if (strlen(name) < 8 || strlen(name) > 12)
        return false;
    for (; *name; name++) {
        if (!isdigit((unsigned char)*name))
            return false;
        n = n * 10 + (uint64_t)(*name - '0');
    }
    *ret = n;
    return true;
}

static int journal_scan_segments(struct journal_reader *r, uint64_t *first, uint64_t *last,
                                 bool *found, struct err *err)
{
    const char *stream = stream_names[r->stream];
    _cleanup_closedir_ DIR *dir = NULL;
    struct dirent *de;
    int fd;

    fd = openat(r->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open journal folder");
    dir = fdopendir(fd);
    if (!dir) {
        fd_close(fd);
        return err_sys(err, errno, "read journal folder");
    }
    *found = false;
    while ((de = readdir(dir))) {
        uint64_t n;

        if (!journal_parse_segment(de->d_name, stream, &n))
            continue;
        *first = *found ? MIN(*first, n) : n;
        *last = *found ? MAX(*last, n) : n;
        *found = true;
    }
    return 0;
}

int journal_reader_extent(struct journal_reader *r, uint64_t *start, uint64_t *end, struct err *err)
{
    char name[SEGMENT_NAME_MAX];
    uint64_t first = 0, last = 0;
    bool found = false;
    struct stat st;
    int code;

    code = journal_scan_segments(r, &first, &last, &found, err);
    if (code < 0)
        return code;
    if (!found) {
        *start = *end = 0;
        return 0;
    }
    if (fstatat(r->dirfd, journal_segment_name(stream_names[r->stream], last, name), &st,
                AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "stat journal segment '%s'", name);
    *start = first * JOURNAL_SEGMENT_SIZE;
    *end = last * JOURNAL_SEGMENT_SIZE + (uint64_t)st.st_size;
    return 0;
}

int journal_reader_times(const struct journal_reader *r, struct times_mark **ret, size_t *ret_n,
                         struct err *err)
{
    return times_read(r->dirfd, stream_names[r->stream], ret, ret_n, err);
}

/* 1: open; 0: not written yet; -ERR_NOT_FOUND: dropped. */
static int journal_seek_segment(struct journal_reader *r, uint64_t offset, struct err *err)
{
    uint64_t segment = offset / JOURNAL_SEGMENT_SIZE, start, end;
    char name[SEGMENT_NAME_MAX];
    int fd, code;

    if (r->fd >= 0 && r->segment == segment)
        return 1;
    fd = openat(r->dirfd, journal_segment_name(stream_names[r->stream], segment, name),
                O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        fd_close(r->fd);
        r->fd = fd;
        r->segment = segment;
        return 1;
    }
    if (errno != ENOENT)
        return err_sys(err, errno, "open journal segment '%s'", name);
    code = journal_reader_extent(r, &start, &end, err);
    if (code < 0)
        return code;
    if (offset < start)
        return err_set(err, ERR_NOT_FOUND, "output before byte %llu was dropped",
                       (unsigned long long)start);
    return 0;
}

ssize_t journal_reader_read(struct journal_reader *r, uint64_t offset, void *data, size_t len,
                            struct err *err)
{
    uint64_t at = offset % JOURNAL_SEGMENT_SIZE;
    ssize_t n;
    int code;

    code = journal_seek_segment(r, offset, err);
    if (code <= 0)
        return code;
    do
        n = pread(r->fd, data, MIN(len, JOURNAL_SEGMENT_SIZE - at), (off_t)at);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(err, errno, "read journal '%s'", stream_names[r->stream]);
    return n;
}
