/*
 * Output: from the command's pipes into the journals, with OUTPUT messages to the attached daemons.
 *
 * The budget. Without an attached reader the command never waits: the oldest segments are dropped.
 * An attached reader that falls a whole budget behind makes the command wait, as a full pipe would:
 * we do not read the pipe until the reader has caught up or gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "supervisor/common/supervisor.h"

enum {
    STREAM_READS = 8,           /* per turn: one busy stream must not starve the others */
    STREAM_WIDEN_AT = 64 << 10, /* the size of a default pipe: it was full */
    STREAM_PIPE_SIZE = 1 << 20,
    STREAM_DISCARD_USEC = 100000, /* between two reads of output that is dropped */
};

/* ---- attachments ---- */

struct attachment *attachment_find(struct supervised_exec *x, const struct supervisor_peer *p)
{
    struct attachment *a = x->attached;

    while (a && a->peer != p)
        a = a->next;
    return a;
}

int attachment_add(struct supervised_exec *x, struct supervisor_peer *p,
                   const uint64_t ack[JOURNAL_STREAMS])
{
    struct attachment *a = attachment_find(x, p);

    if (!a) {
        a = xnew0(struct attachment);
        a->peer = p;
        a->next = x->attached;
        x->attached = a;
    }
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        a->announced[i] = x->streams[i].journal.end; /* ATTACHED carries these offsets */
        a->ack[i] = MIN(ack[i], a->announced[i]);
    }
    a->in_flight = false;
    return 0;
}

void attachments_remove(struct supervised_exec *x, const struct supervisor_peer *p)
{
    for (struct attachment **at = &x->attached; *at;) {
        struct attachment *a = *at;

        if (p && a->peer != p) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        free(a);
    }
}

/* The lowest offset that an attached peer has not read yet; UINT64_MAX without any. */
static uint64_t streams_lowest_ack(const struct supervised_exec *x, int stream)
{
    uint64_t low = UINT64_MAX;

    for (const struct attachment *a = x->attached; a; a = a->next)
        low = MIN(low, a->ack[stream]);
    return low;
}

static void streams_send_output(struct supervised_exec *x, struct attachment *a)
{
    struct sup_writer w;

    for (int i = 0; i < JOURNAL_STREAMS; i++)
        a->announced[i] = x->streams[i].journal.end;
    a->in_flight = true;
    sup_begin(&w, SUP_OUTPUT, 0);
    sup_put_str(&w, SUP_TAG_EXEC, x->id);
    sup_put_u64(&w, SUP_TAG_STDOUT, a->announced[JOURNAL_STDOUT]);
    sup_put_u64(&w, SUP_TAG_STDERR, a->announced[JOURNAL_STDERR]);
    peer_send(a->peer, &w, -1);
}

void streams_notify(struct supervised_exec *x)
{
    for (struct attachment *a = x->attached; a; a = a->next)
        if (!a->in_flight &&
            (a->announced[JOURNAL_STDOUT] < x->streams[JOURNAL_STDOUT].journal.end ||
             a->announced[JOURNAL_STDERR] < x->streams[JOURNAL_STDERR].journal.end))
            streams_send_output(x, a);
}

/* ---- reading ---- */

static int stream_index(const struct exec_stream *st)
{
    return (int)(st - st->exec->streams);
}

static bool streams_reader_too_far_behind(const struct exec_stream *st)
{
    uint64_t low = streams_lowest_ack(st->exec, stream_index(st)), budget = st->journal.budget;

    return budget && low < st->journal.end && st->journal.end - low >= budget &&
           GUARD("back-pressure");
}

void streams_wake(struct supervised_exec *x)
{
    bool behind = false;

    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        struct exec_stream *st = &x->streams[i];

        if (x->state == EXEC_OVER || streams_reader_too_far_behind(st))
            behind = true;
        else
            source_set(x->sup, &st->src, EPOLLIN);
    }
    if (x->fed && !behind)
        x->sup->ops->readable(x);
}

static void streams_keep(struct exec_stream *st, const char *data, size_t len)
{
    struct supervised_exec *x = st->exec;
    _cleanup_err_ struct err err = ERR_INIT;
    uint64_t before = st->journal.end;

    if (st->lost_errno || journal_writer_append(&st->journal, data, len, &err) < 0) {
        if (!st->lost_errno) {
            log_warn("exec %s: output is being lost: %s", x->id, err.msg);
            st->lost_errno = err.errnum ? err.errnum : EIO;
        }
        st->dropped += len - (st->journal.end - before);
    }
    if (GUARD("output budget"))
        journal_writer_trim(&st->journal, streams_lowest_ack(x, stream_index(st)));
    x->last_output = time_mono();
}

bool stream_feed(struct supervised_exec *x, enum journal_stream which, const void *data, size_t len)
{
    struct exec_stream *st = &x->streams[which];

    if (x->state != EXEC_OVER)
        streams_keep(st, data, len);
    return !streams_reader_too_far_behind(st);
}

/* 1: got data, 0: no data now, -1: the end. A terminal ends with EIO. */
static int streams_read_some(struct exec_stream *st)
{
    char *io = supervisor_io(st->exec->sup);
    ssize_t n = read(st->src.fd, io, SUPERVISOR_IO_SIZE);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    if (st->exec->state == EXEC_OVER)
        return 1;
    streams_keep(st, io, (size_t)n);
    /* A command that fills its pipe gets a larger one, which means fewer and larger reads. */
    if (!st->widened && (size_t)n >= STREAM_WIDEN_AT) {
        st->widened = true;
        fcntl(st->src.fd, F_SETPIPE_SZ, STREAM_PIPE_SIZE);
    }
    return 1;
}

/*
 * The exec is over, but one of its children still writes. We read once and then pause: reading at
 * full speed would use a processor outside the sandbox's limits for output that is dropped.
 */
static void streams_discard_some(struct exec_stream *st)
{
    struct supervised_exec *x = st->exec;

    if (streams_read_some(st) < 0) {
        source_close(x->sup, &st->src);
        x->freed = streams_drained(x);
        return;
    }
    source_set(x->sup, &st->src, 0);
    x->discard_at = time_mono() + STREAM_DISCARD_USEC;
}

static void streams_on_stream(struct loop_source *src, uint32_t events _unused_)
{
    struct exec_stream *st = container_of(src, struct exec_stream, src);
    struct supervised_exec *x = st->exec;
    int r = 1;

    if (x->state == EXEC_OVER) {
        streams_discard_some(st);
        return;
    }
    for (int i = 0; i < STREAM_READS && r > 0; i++) {
        r = streams_read_some(st);
        if (r > 0 && streams_reader_too_far_behind(st)) {
            source_set(x->sup, src, 0);
            break;
        }
    }
    if (r < 0)
        source_close(x->sup, src);
    streams_notify(x);
    if (r < 0)
        exec_try_finish(x);
}

/*
 * The time for draining is over, and a process still holds a pipe. The bytes that are in the pipe
 * now belong to the output; bytes that are written later do not.
 */
void streams_read_rest(struct supervised_exec *x)
{
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        struct exec_stream *st = &x->streams[i];
        uint64_t until = st->journal.end + st->dropped;
        int left = 0;

        if (st->src.fd < 0 || ioctl(st->src.fd, FIONREAD, &left) < 0)
            continue;
        until += (uint64_t)left;
        while (st->journal.end + st->dropped < until && streams_read_some(st) > 0)
            ;
    }
}

/* ---- opening and closing ---- */

static int streams_open_one(struct supervised_exec *x, enum journal_stream which, int fd,
                            struct err *err)
{
    int r = fd_set_nonblock(fd, true);

    if (r < 0)
        return err_sys(err, -r, "prepare a pipe");
    return source_add(x->sup, &x->streams[which].src, fd, EPOLLIN, streams_on_stream, err);
}

/* Takes each descriptor that it watches; it is then in streams[].src. */
int streams_open(struct supervised_exec *x, int out, int err_fd, struct err *err)
{
    if (out >= 0) {
        int r = streams_open_one(x, JOURNAL_STDOUT, out, err);

        if (r < 0)
            return r;
    }
    return err_fd >= 0 ? streams_open_one(x, JOURNAL_STDERR, err_fd, err) : 0;
}

bool streams_drained(const struct supervised_exec *x)
{
    return !x->fed && x->streams[JOURNAL_STDOUT].src.fd < 0 &&
           x->streams[JOURNAL_STDERR].src.fd < 0;
}

/*
 * The record is written, and its byte counts are final. A daemonised child may go on writing: we
 * read its pipe slowly and drop the bytes, so that it neither blocks for ever nor gets SIGPIPE.
 */
void stream_discard(struct supervised_exec *x)
{
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        journal_writer_done(&x->streams[i].journal);
    streams_discard_on(x);
}

void streams_discard_on(struct supervised_exec *x)
{
    x->discard_at = DEADLINE_NEVER;
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        source_set(x->sup, &x->streams[i].src, EPOLLIN);
}

void streams_close(struct supervised_exec *x)
{
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        source_close(x->sup, &x->streams[i].src);
        journal_writer_done(&x->streams[i].journal);
    }
}
