/*
 * Dialling a port, copying files and file operations. Each job has a guest of its own (`guest
 * dial`, `copy-in`, `copy-out`, `files`). The relay forwards bytes between the guest's stream and a
 * local descriptor: the daemon's tar stream for a copy, its socket for file operations, or one end
 * of a socket pair for a dial, whose other end the daemon gets. If one side is slow, only the other
 * side of the same job waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "supervisor/relay/relay.h"

enum {
    JOB_CHUNK = 64 << 10,
    JOB_QUEUE = 256 << 10, /* unwritten bytes in each direction: above it no source is read */
    JOB_QUEUE_MAX = JOB_QUEUE + GUEST_PAYLOAD_MAX,
    JOB_WORDS_MAX = 6, /* of the guest's command line */
};

enum job_kind { JOB_DIAL, JOB_COPY_IN, JOB_COPY_OUT, JOB_FILES };

struct relay_job {
    struct relay_job *next;
    enum job_kind kind;
    struct guest_stream stream;
    struct supervisor_peer *peer; /* waits for RESULT; NULL: no peer waits any more */
    uint64_t seq;
    struct loop_source local;
    int tar_fd;           /* until HELLO has arrived */
    bool needs_words;     /* the guest must know the words after copy-in's path */
    struct buf out;       /* for the local side */
    bool local_read_done; /* its end was forwarded */
    bool guest_done;      /* the guest sends no more bytes for the local side */
    bool over;            /* the job ends with the result below */
    struct err err;
    struct guest_done stats;
};

/* ---- the end ---- */

static void relay_job_free(struct relay_job *j)
{
    struct relay_job **at = &j->stream.relay->jobs;

    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    guest_stream_done(&j->stream);
    source_close(&j->stream.relay->sup, &j->local);
    fd_close(j->tar_fd);
    buf_done(&j->out);
    err_done(&j->err);
    free(j);
}

static void relay_job_answer(struct relay_job *j, int fd)
{
    struct sup_writer w;

    if (!j->peer) {
        fd_close(fd);
        return;
    }
    sup_begin(&w, SUP_RESULT, j->seq);
    if (j->err.code)
        sup_put_err(&w, &j->err);
    if (j->kind != JOB_DIAL) {
        sup_put_stat(&w, "entries", j->stats.entries);
        sup_put_stat(&w, "bytes", j->stats.bytes);
        sup_put_stat(&w, "skipped", j->stats.skipped);
    }
    peer_send(j->peer, &w, fd);
    j->peer = NULL;
}

/*
 * Called last in each handler. When the guest has sent its last frame, or its stream is gone, the
 * job is over once the local side has all earlier bytes.
 */
static void relay_job_settle(struct relay_job *j)
{
    if (!j->over || (j->out.len && !j->err.code && j->local.fd >= 0))
        return;
    relay_job_answer(j, -1);
    relay_job_free(j);
}

static void relay_job_fail(struct relay_job *j, struct err *err)
{
    if (!j->err.code)
        err_move(&j->err, err);
    j->over = true;
    guest_stream_close(&j->stream);
}

/* ---- the local side ---- */

static void relay_job_watch_local(struct relay_job *j)
{
    uint32_t events = j->out.len ? EPOLLOUT : 0;
    bool reads =
        j->kind != JOB_COPY_OUT && !j->local_read_done && j->stream.state == GUEST_STREAM_UP;

    if (reads && j->stream.out.len < JOB_QUEUE)
        events |= EPOLLIN;
    if ((j->kind == JOB_DIAL && j->local_read_done) ||
        (j->kind == JOB_FILES && !(events & EPOLLIN)))
        events |= EPOLLPRI; /* never happens, but with it epoll reports a hang-up */
    source_set(&j->stream.relay->sup, &j->local, events);
}

static void relay_job_local_lost(struct relay_job *j, int errnum)
{
    _cleanup_err_ struct err err = ERR_INIT;

    err_sys(&err, errnum, j->kind == JOB_COPY_OUT ? "write archive" : "forward bytes");
    buf_clear(&j->out);
    relay_job_fail(j, &err);
}

static void relay_job_write_local(struct relay_job *j)
{
    while (j->out.len) {
        ssize_t n = write(j->local.fd, buf_data(&j->out), j->out.len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            relay_job_local_lost(j, errno);
            return;
        }
        buf_consume(&j->out, (size_t)n);
    }
    if (!j->out.len && j->guest_done && j->kind == JOB_DIAL)
        shutdown(j->local.fd, SHUT_WR);
    if (j->out.len < JOB_QUEUE)
        guest_stream_resume(&j->stream);
}

static void relay_job_read_local(struct relay_job *j)
{
    char *io = supervisor_io(&j->stream.relay->sup);
    ssize_t n = read(j->local.fd, io, JOB_CHUNK);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        relay_job_local_lost(j, errno);
        return;
    }
    if (n == 0 && j->kind == JOB_FILES) { /* the daemon waits for no answer any more */
        relay_job_local_lost(j, EPIPE);
        return;
    }
    j->local_read_done = n == 0;
    if (guest_put(&j->stream.out, n ? GUEST_STDIN : GUEST_STDIN_EOF, io, (size_t)n) < 0)
        relay_job_local_lost(j, ENOBUFS);
    else
        guest_stream_flush(&j->stream);
}

static void relay_job_on_local(struct loop_source *src, uint32_t events)
{
    struct relay_job *j = container_of(src, struct relay_job, local);

    if (events & (EPOLLOUT | EPOLLERR))
        relay_job_write_local(j);
    if (!j->over && src->events & EPOLLIN && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        relay_job_read_local(j);
    else if (!j->over && (j->kind == JOB_DIAL || j->kind == JOB_FILES) && events & EPOLLHUP)
        relay_job_local_lost(j, EPIPE); /* the daemon has closed both directions */
    relay_job_watch_local(j);
    relay_job_settle(j);
}

static void relay_job_set_local(struct relay_job *j, int fd)
{
    fd_set_nonblock(fd, true);
    j->local = (struct loop_source){.fd = fd, .ready = relay_job_on_local};
    relay_job_watch_local(j);
}

/* ---- the guest's side ---- */

static void relay_job_on_greeted(struct guest_stream *l)
{
    struct relay_job *j = container_of(l, struct relay_job, stream);

    _cleanup_err_ struct err err = ERR_INIT;

    if (j->needs_words && l->guest_minor < GUEST_MINOR_WORDS) {
        err_set(&err, ERR_UNSUPPORTED,
                "the program inside the sandbox is too old for an owner, a mode or parents");
        err_hint(&err, "Stop the sandbox and start it again.");
        relay_job_fail(j, &err);
    } else if (j->kind != JOB_DIAL) {
        relay_job_set_local(j, TAKE_FD(j->tar_fd));
    }
}

static int relay_job_on_connected(struct relay_job *j, struct err *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "make a socket pair");
    relay_job_set_local(j, pair[0]);
    relay_job_answer(j, pair[1]);
    return 1;
}

static int relay_job_on_output(struct relay_job *j, const struct guest_frame *f, struct err *err)
{
    if (buf_append(&j->out, f->data, f->length) < 0)
        return err_set(err, ERR_LIMIT, "the guest sent more than was requested");
    relay_job_write_local(j);
    relay_job_watch_local(j);
    return j->out.len < JOB_QUEUE;
}

static int relay_job_on_frame(struct guest_stream *l, const struct guest_frame *f, struct err *err)
{
    struct relay_job *j = container_of(l, struct relay_job, stream);
    bool dialled = j->kind == JOB_DIAL && j->local.fd >= 0;
    unsigned type = f->type;

    if (type == GUEST_STARTED && j->kind == JOB_DIAL && !dialled)
        return relay_job_on_connected(j, err);
    if (type == GUEST_STDOUT && !j->guest_done && (dialled || j->kind >= JOB_COPY_OUT))
        return relay_job_on_output(j, f, err);
    if (type == GUEST_FAILED && !dialled) {
        guest_get_failed(f, &j->err);
    } else if (type == GUEST_DONE) {
        guest_get_done(f, &j->stats);
        j->guest_done = true;
    } else if (type == GUEST_STDOUT_EOF && dialled) {
        j->guest_done = true;
        relay_job_write_local(j);
        return 1;
    } else {
        return err_set(err, ERR_INVALID, "the guest sent frame 0x%02x out of order", type);
    }
    j->over = true;
    return 0; /* no frame follows */
}

static void relay_job_on_drained(struct guest_stream *l)
{
    struct relay_job *j = container_of(l, struct relay_job, stream);

    relay_job_watch_local(j);
}

/* Also called after the last frame, when the engine ends the stream. */
static void relay_job_on_ended(struct guest_stream *l, struct err *err)
{
    struct relay_job *j = container_of(l, struct relay_job, stream);
    _cleanup_err_ struct err none = ERR_INIT;

    if (!j->over && !err)
        err_set(&none, ERR_ENGINE, "the helper inside the sandbox ended without an answer");
    if (!j->over)
        relay_job_fail(j, err ? err : &none);
}

static void relay_job_on_settle(struct guest_stream *l)
{
    relay_job_settle(container_of(l, struct relay_job, stream));
}

static const struct guest_stream_ops job_stream_ops = {
    .greeted = relay_job_on_greeted,
    .frame = relay_job_on_frame,
    .drained = relay_job_on_drained,
    .ended = relay_job_on_ended,
    .settle = relay_job_on_settle,
};

/* ---- starting ---- */

static int relay_job_start(struct supervisor_peer *p, uint64_t seq, enum job_kind kind,
                           const struct sup_copy *copy, const char *const *args, int fd,
                           struct err *err)
{
    struct relay *r = relay_of(p->sup);
    size_t live = 0;
    struct relay_job *j;

    for (j = r->jobs; j; j = j->next)
        live++;
    if (live >= RELAY_JOBS_MAX)
        return err_set(err, ERR_LIMIT, "this sandbox already has %d copies and dials in progress",
                       RELAY_JOBS_MAX);
    if (r->sup.state != SUP_RUNNING)
        return err_set(err, ERR_CONFLICT, "the sandbox is not running");
    if (fd >= 0 && (fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
        return err_sys(err, errno, "duplicate the stream's descriptor");
    j = xnew0(struct relay_job);
    j->kind = kind;
    j->peer = p;
    j->seq = seq;
    j->local.fd = -1;
    j->tar_fd = fd;
    j->needs_words = copy && (copy->owner || copy->flags & (SUP_COPY_PARENTS | SUP_COPY_MODE));
    j->out = (struct buf)BUF_INIT(JOB_QUEUE_MAX);
    j->next = r->jobs;
    r->jobs = j;
    guest_stream_init(&j->stream, r, &job_stream_ops);
    guest_stream_open(&j->stream, copy && copy->user ? copy->user : r->plan.user, args);
    return 1;
}

int job_dial(struct supervisor_peer *p, uint64_t seq, uint64_t port, struct err *err)
{
    char text[8];
    const char *const args[] = {"dial", text, NULL};

    snprintf(text, sizeof(text), "%u", (unsigned)port);
    return relay_job_start(p, seq, JOB_DIAL, NULL, args, -1, err);
}

int job_copy(struct supervisor_peer *p, uint64_t seq, const struct sup_copy *copy, int fd,
             struct err *err)
{
    _cleanup_free_ char *owner = copy->owner ? xasprintf("owner=%s", copy->owner) : NULL;
    const char *args[JOB_WORDS_MAX + 1] = {copy->into ? "copy-in" : "copy-out", copy->path};
    char mode[24];
    size_t n = 2;

    if (!copy->into)
        return relay_job_start(p, seq, JOB_COPY_OUT, copy, args, fd, err);
    if (!(copy->flags & SUP_COPY_ATOMIC))
        args[n++] = "through";
    if (copy->flags & SUP_COPY_PARENTS)
        args[n++] = "parents";
    if (owner)
        args[n++] = owner;
    snprintf(mode, sizeof(mode), "mode=%llo", (unsigned long long)copy->mode);
    if (copy->flags & SUP_COPY_MODE)
        args[n++] = mode;
    return relay_job_start(p, seq, JOB_COPY_IN, copy, args, fd, err);
}

/* The guest's own mode of this name came with 1.5; an older guest ends with a text on stderr. */
int job_files(struct supervisor_peer *p, uint64_t seq, const char *user, int fd, struct err *err)
{
    const struct sup_copy as = {.user = user};
    const char *const args[] = {"files", NULL};

    return relay_job_start(p, seq, JOB_FILES, &as, args, fd, err);
}

void jobs_forget(struct supervisor *sup, const struct supervisor_peer *p)
{
    for (struct relay_job *j = relay_of(sup)->jobs; j; j = j->next)
        if (j->peer == p)
            j->peer = NULL;
    controls_forget(relay_of(sup), p);
}

void jobs_end(struct relay *r)
{
    while (r->jobs)
        relay_job_free(r->jobs);
}
