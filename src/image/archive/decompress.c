#include "image/archive/decompress.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

/* The read-ahead is small, because it counts as read, and a decompression bomb is small, too. */
enum { AHEAD = 64 << 10, PIECE = 256 << 10, RATIO_MAX = 1000 };
#define RATIO_FREE MIB(64) /* up to here any ratio is fine: an empty tar is all zeroes */

struct decompress_source {
    struct decompress_range range;
    uint64_t taken;
    char buf[AHEAD];
};

static la_ssize_t decompress_source_read(struct archive *a, void *arg, const void **ret)
{
    struct decompress_source *s = arg;
    uint64_t left = s->range.size - s->taken;
    ssize_t n;

    do
        n = s->range.size == UINT64_MAX ? read(s->range.fd, s->buf, sizeof(s->buf))
                                        : pread(s->range.fd, s->buf, MIN(sizeof(s->buf), left),
                                                (off_t)(s->range.at + s->taken));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        archive_set_error(a, errno, "read the stream: %s", strerror(errno));
    else
        s->taken += (uint64_t)n;
    *ret = s->buf;
    return n;
}

static int decompress_fault(struct archive *a, struct err *err)
{
    const char *why = archive_error_string(a);

    return err_set(err, ERR_INVALID, "%s", why ? why : "the stream is damaged");
}

static int decompress_copy(struct archive *a, const struct decompress_source *s, int out,
                           uint64_t max, struct err *err)
{
    _cleanup_free_ char *buf = xmalloc(PIECE);
    uint64_t total = 0;

    for (;;) {
        la_ssize_t n = archive_read_data(a, buf, PIECE);
        int r;

        if (n == 0)
            return 0;
        if (n < 0)
            return decompress_fault(a, err);
        total += (uint64_t)n;
        if (total > max)
            return err_set(err, ERR_LIMIT, "the stream is longer than %llu bytes",
                           (unsigned long long)max);
        if (total > RATIO_FREE && total / RATIO_MAX > s->taken)
            return err_set(err, ERR_LIMIT,
                           "the stream grows to more than %d times its compressed size", RATIO_MAX);
        r = fd_write_all(out, buf, (size_t)n);
        if (r < 0)
            return err_sys(err, -r, "write the uncompressed stream");
    }
}

/* Format "raw" is the output of the filters; "empty" is a stream without bytes. */
int decompress_stream(const struct decompress_range *in, int out, uint64_t max, struct err *err)
{
    struct archive *a = archive_read_new();
    struct decompress_source *s = xnew0(struct decompress_source);
    struct archive_entry *e;
    int r;

    s->range = *in;
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_zstd(a);
    archive_read_support_filter_xz(a);
    archive_read_support_format_raw(a);
    archive_read_support_format_empty(a);
    r = archive_read_open(a, s, NULL, decompress_source_read, NULL);
    if (r == ARCHIVE_OK)
        r = archive_read_next_header(a, &e);
    if (r == ARCHIVE_EOF)
        r = 0;
    else if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
        r = decompress_fault(a, err);
    else
        r = decompress_copy(a, s, out, max, err);
    archive_read_free(a);
    free(s);
    return r;
}
