#include "lib/journal/times.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { TIMES_NAME_MAX = 16 };

static const char *times_name(const char *stream, char buf[TIMES_NAME_MAX])
{
    snprintf(buf, TIMES_NAME_MAX, "%s.times", stream);
    return buf;
}

void times_writer_init(struct times_writer *w)
{
    *w = (struct times_writer){.fd = -1, .last = time_wall(), .gap = TIMES_GAP_USEC};
}

void times_writer_done(struct times_writer *w)
{
    w->fd = fd_close(w->fd);
}

/* Keeps every second mark. Offsets no longer ascend if this is interrupted: times_read() copes. */
static void times_thin(struct times_writer *w)
{
    size_t size = w->n * sizeof(struct times_mark), kept = w->n / 2;
    _cleanup_free_ struct times_mark *marks = xmalloc(size);

    if (pread(w->fd, marks, size, 0) != (ssize_t)size)
        return;
    for (size_t i = 0; i < kept; i++)
        marks[i] = marks[2 * i];
    size = kept * sizeof(*marks);
    if (pwrite(w->fd, marks, size, 0) != (ssize_t)size || ftruncate(w->fd, (off_t)size) < 0)
        return;
    w->n = kept;
    w->gap *= 2;
}

void times_writer_note(struct times_writer *w, int dirfd, const char *stream, uint64_t offset)
{
    struct times_mark mark = {.usec = time_wall(), .offset = offset};
    char name[TIMES_NAME_MAX];

    /* A clock that was set back makes a mark, too. */
    if (mark.usec >= w->last && mark.usec - w->last < w->gap)
        return;
    if (w->fd < 0)
        w->fd = openat(dirfd, times_name(stream, name), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                       0600);
    if (w->fd < 0)
        return;
    if (w->n == TIMES_MAX)
        times_thin(w);
    if (w->n == TIMES_MAX ||
        pwrite(w->fd, &mark, sizeof(mark), (off_t)(w->n * sizeof(mark))) != sizeof(mark))
        return;
    w->n++;
    w->last = mark.usec;
}

int times_read(int dirfd, const char *stream, struct times_mark **ret, size_t *ret_n,
               struct err *err)
{
    _cleanup_free_ struct times_mark *marks = NULL;
    char name[TIMES_NAME_MAX];
    _cleanup_close_ int fd =
        openat(dirfd, times_name(stream, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    size_t n = 0;
    ssize_t size;

    if (fd < 0 && errno != ENOENT)
        return err_sys(err, errno, "open '%s'", name);
    marks = xcalloc(TIMES_MAX, sizeof(*marks));
    size = fd < 0 ? 0 : fd_read_full(fd, marks, TIMES_MAX * sizeof(*marks));
    if (size < 0)
        return err_sys(err, (int)-size, "read '%s'", name);
    for (size_t i = 0; i < (size_t)size / sizeof(*marks); i++)
        if (!n || marks[i].offset > marks[n - 1].offset)
            marks[n++] = marks[i];
    *ret = TAKE_PTR(marks);
    *ret_n = n;
    return 0;
}
