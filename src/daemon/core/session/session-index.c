#include "daemon/core/session/session-index.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/core/session/session-line.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

#define MAGIC "ripsess1"

struct session_index_head {
    char magic[8];
    uint32_t line_max; /* the limit that events were cut with */
    uint32_t reserved[13];
};

/* In host byte order: the file never leaves its machine. */
struct session_index_entry {
    struct session_run run;
    uint64_t check;
};

_Static_assert(sizeof(struct session_index_head) == 64 && sizeof(struct session_index_entry) == 56,
               "layout of the file");

/* FNV-1a: protects against torn writes, not against attackers. */
static uint64_t session_index_checksum(const struct session_run *run)
{
    const unsigned char *p = (const unsigned char *)run;
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < sizeof(*run); i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

static off_t session_index_offset_of(uint64_t i)
{
    return (off_t)(sizeof(struct session_index_head) + i * sizeof(struct session_index_entry));
}

static int session_index_read_head(struct session_index *x, struct err *err)
{
    struct session_index_head h = {.magic = MAGIC, .line_max = SESSION_LINE_MAX};
    ssize_t n = pread(x->fd, &h, sizeof(h), 0);

    if (n < 0)
        return err_sys(err, errno, "read the session index");
    if (n < (ssize_t)sizeof(h)) { /* new, or torn when it was created */
        h = (struct session_index_head){.magic = MAGIC, .line_max = SESSION_LINE_MAX};
        if (ftruncate(x->fd, 0) < 0 || pwrite(x->fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
            return err_sys(err, errno, "write the session index");
    }
    if (memcmp(h.magic, MAGIC, sizeof(h.magic)) != 0 || !h.line_max ||
        h.line_max > SESSION_LINE_MAX)
        return err_set(err, ERR_SYSTEM, "the session index has an unknown format");
    x->line_max = h.line_max;
    return 0;
}

int session_index_open(struct session_index *x, const char *dir, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/events", dir);
    int r;

    x->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (x->fd < 0 && errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "no folder '%s'", dir);
    if (x->fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    r = session_index_read_head(x, err);
    if (r < 0)
        session_index_done(x);
    return r;
}

void session_index_done(struct session_index *x)
{
    x->fd = fd_close(x->fd);
}

int session_index_get(const struct session_index *x, uint64_t i, struct session_run *ret,
                      struct err *err)
{
    struct session_index_entry e;
    ssize_t n = pread(x->fd, &e, sizeof(e), session_index_offset_of(i));

    if (n < 0)
        return err_sys(err, errno, "read the session index");
    if (n != (ssize_t)sizeof(e) || e.check != session_index_checksum(&e.run) || !e.run.count ||
        e.run.stream >= JOURNAL_STREAMS)
        return err_set(err, ERR_SYSTEM, "the session index is damaged at run %llu",
                       (unsigned long long)i);
    *ret = e.run;
    return 0;
}

int session_index_count(const struct session_index *x, uint64_t *ret, struct err *err)
{
    struct session_run run;
    struct stat st;
    uint64_t n;

    if (fstat(x->fd, &st) < 0)
        return err_sys(err, errno, "stat the session index");
    n = st.st_size < session_index_offset_of(0)
            ? 0
            : (uint64_t)(st.st_size - session_index_offset_of(0)) /
                  sizeof(struct session_index_entry);
    while (n && session_index_get(x, n - 1, &run, NULL) < 0)
        n--;
    *ret = n;
    return 0;
}

/* Frees the disk space of forgotten runs from time to time. Without support of the file system
 * the file keeps its size. */
static void session_index_forget(const struct session_index *x, uint64_t i)
{
    if (i % (SESSION_INDEX_RUNS / 2) == 0 && i > SESSION_INDEX_RUNS)
        (void)!fallocate(
            x->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, session_index_offset_of(0),
            session_index_offset_of(i - SESSION_INDEX_RUNS) - session_index_offset_of(0));
}

int session_index_put(const struct session_index *x, uint64_t i, const struct session_run *run,
                      struct err *err)
{
    struct session_index_entry e = {.run = *run, .check = session_index_checksum(run)};
    ssize_t n = pwrite(x->fd, &e, sizeof(e), session_index_offset_of(i));

    if (n == (ssize_t)sizeof(e)) {
        session_index_forget(x, i);
        return 0;
    }
    return err_sys(err, n < 0 ? errno : ENOSPC, "write the session index");
}

/* Binary search: forgotten runs come before all kept ones. */
uint64_t session_index_first(const struct session_index *x, uint64_t i, uint64_t count)
{
    while (i < count) {
        uint64_t mid = i + (count - i) / 2;
        struct session_run run;

        if (session_index_get(x, mid, &run, NULL) >= 0)
            count = mid;
        else
            i = mid + 1;
    }
    return count;
}

int session_index_find(const struct session_index *x, uint64_t seq, uint64_t *ret, struct err *err)
{
    uint64_t low, high = 0;
    int r = session_index_count(x, &high, err);

    if (r < 0)
        return r;
    low = session_index_first(x, 0, high);
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        struct session_run run;

        r = session_index_get(x, mid, &run, err);
        if (r < 0)
            return r;
        if (run.seq <= seq)
            low = mid;
        else
            high = mid;
    }
    *ret = low;
    return 0;
}
