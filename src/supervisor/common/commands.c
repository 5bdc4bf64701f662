/*
 * The requests of a daemon, one function per message. Each function gets its fields in `struct
 * supervisor_request_fields`, answers with RESULT or with its own message, and changes nothing on
 * error.
 */
#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "supervisor/common/supervisor.h"

enum { STOP_GRACE_MAX_SEC = 3600 };

struct supervisor_request_fields {
    struct supervisor_peer *peer;
    struct supervisor *sup;
    uint64_t seq;
    const char *exec_id;
    struct supervised_exec *exec; /* live, or NULL */
    uint64_t signal, cause, rows, cols, grace, port, flags;
    struct sup_copy copy; /* without its flags */
    int fd;               /* descriptor that came with the message, or -1 */
    uint64_t offsets[JOURNAL_STREAMS];
};

static int commands_need_exec(const struct supervisor_request_fields *q, struct err *err)
{
    if (q->exec)
        return 0;
    return err_set(err, ERR_NOT_FOUND, "exec '%.16s' is not running", q->exec_id ? q->exec_id : "");
}

/* All return as struct supervisor_ops describes: 0, 1 (has answered) or an error. */
static int commands_do_attach(const struct supervisor_request_fields *q, struct err *err)
{
    const struct exec_stream *out, *errors;
    struct sup_writer w;
    int r, fd = -1;

    r = commands_need_exec(q, err);
    if (r < 0)
        return r;
    out = &q->exec->streams[JOURNAL_STDOUT];
    errors = &q->exec->streams[JOURNAL_STDERR];
    attachment_add(q->exec, q->peer, q->offsets);
    if (q->exec->tty)
        fd = q->sup->ops->terminal(q->exec);
    sup_begin(&w, SUP_ATTACHED, q->seq);
    sup_put_str(&w, SUP_TAG_EXEC, q->exec->id);
    sup_put_u64(&w, SUP_TAG_STDOUT, out->journal.end);
    sup_put_u64(&w, SUP_TAG_STDERR, errors->journal.end);
    sup_put_u64(&w, SUP_TAG_STDOUT_START, out->journal.start);
    sup_put_u64(&w, SUP_TAG_STDERR_START, errors->journal.start);
    peer_send(q->peer, &w, fd);
    return 1;
}

static int commands_do_detach(const struct supervisor_request_fields *q, struct err *err _unused_)
{
    if (q->exec) {
        attachments_remove(q->exec, q->peer);
        streams_wake(q->exec);
    }
    return 1;
}

static int commands_do_ack(const struct supervisor_request_fields *q, struct err *err _unused_)
{
    struct attachment *a = q->exec ? attachment_find(q->exec, q->peer) : NULL;

    if (!a)
        return 1; /* the exec has ended meanwhile */
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        a->ack[i] = MIN(MAX(a->ack[i], q->offsets[i]), q->exec->streams[i].journal.end);
    a->in_flight = false;
    streams_notify(q->exec);
    streams_wake(q->exec);
    return 1;
}

static int commands_do_signal(const struct supervisor_request_fields *q, struct err *err)
{
    int r = commands_need_exec(q, err);

    if (r < 0)
        return r;
    if (q->exec->state != EXEC_RUNNING)
        return err_set(err, ERR_CONFLICT, "exec '%s' has no running command", q->exec->id);
    if (q->signal < 1 || q->signal > 64)
        return err_set(err, ERR_INVALID, "invalid signal %llu", (unsigned long long)q->signal);
    return q->sup->ops->signal(q->exec, (int)q->signal, err);
}

static int commands_do_kill(const struct supervisor_request_fields *q, struct err *err)
{
    int r = commands_need_exec(q, err);

    if (r < 0)
        return r;
    if (q->cause >= END_CAUSE_MAX)
        return err_set(err, ERR_INVALID, "invalid cause %llu", (unsigned long long)q->cause);
    exec_kill(q->exec, q->cause ? (enum end_cause)q->cause : END_KILLED);
    return 0;
}

static int commands_do_resize(const struct supervisor_request_fields *q, struct err *err)
{
    int r = commands_need_exec(q, err);

    if (r < 0)
        return r;
    if (!q->exec->tty || streams_drained(q->exec))
        return err_set(err, ERR_CONFLICT, "exec '%s' has no terminal", q->exec->id);
    if (q->rows > UINT16_MAX || q->cols > UINT16_MAX)
        return err_set(err, ERR_INVALID, "a terminal has at most 65535 rows and columns");
    return q->sup->ops->resize(q->exec, (uint16_t)q->rows, (uint16_t)q->cols, err);
}

static int commands_do_stdin_close(const struct supervisor_request_fields *q, struct err *err)
{
    int r = commands_need_exec(q, err);

    if (r < 0)
        return r;
    q->exec->input_whole = true;
    return q->sup->ops->stdin_close(q->exec, err);
}

static int commands_do_stop(const struct supervisor_request_fields *q, struct err *err _unused_)
{
    peer_result(q->peer, q->seq, NULL);
    q->sup->for_good |= q->flags & SUP_STOP_FOR_GOOD;
    stop_begin(q->sup, MIN(q->grace, STOP_GRACE_MAX_SEC * USEC_PER_SEC));
    return 1;
}

/* Called even if the state seems right already: other programs may pause and resume a container
 * too. */
static int commands_freeze(const struct supervisor_request_fields *q, bool on, struct err *err)
{
    struct supervisor *s = q->sup;
    int r;

    if (s->state == SUP_STOPPING)
        return err_set(err, ERR_CONFLICT, "the sandbox is stopping");
    r = s->ops->freeze(q->peer, q->seq, on, err);
    if (r == 0)
        s->state = on ? SUP_PAUSED : SUP_RUNNING;
    return r;
}

static int commands_do_pause(const struct supervisor_request_fields *q, struct err *err)
{
    return commands_freeze(q, true, err);
}

static int commands_do_resume(const struct supervisor_request_fields *q, struct err *err)
{
    return commands_freeze(q, false, err);
}

static int commands_do_stats(const struct supervisor_request_fields *q, struct err *err)
{
    return q->sup->ops->stats(q->peer, q->seq, err);
}

/* DIAL, COPY and FILES are answered when the work inside is done. */
static int commands_do_dial(const struct supervisor_request_fields *q, struct err *err)
{
    if (q->port < 1 || q->port > UINT16_MAX)
        return err_set(err, ERR_INVALID, "port must be between 1 and 65535 (got %llu)",
                       (unsigned long long)q->port);
    return q->sup->ops->dial(q->peer, q->seq, q->port, err);
}

static int commands_copy(const struct supervisor_request_fields *q, uint64_t flags, struct err *err)
{
    struct sup_copy copy = q->copy;

    copy.flags = flags;
    if (!copy.path || copy.path[0] != '/')
        return err_set(err, ERR_INVALID, "path '%.80s' is not absolute",
                       copy.path ? copy.path : "");
    if (copy.mode > 0777)
        return err_set(err, ERR_INVALID, "invalid mode %llo", (unsigned long long)copy.mode);
    if (q->fd < 0)
        return err_set(err, ERR_INVALID, "the request has no stream");
    return q->sup->ops->copy(q->peer, q->seq, &copy, q->fd, err);
}

static int commands_do_copy(const struct supervisor_request_fields *q, struct err *err)
{
    return commands_copy(q, SUP_COPY_ATOMIC, err);
}

static int commands_do_copy_as(const struct supervisor_request_fields *q, struct err *err)
{
    return commands_copy(q, q->flags, err);
}

static int commands_do_files(const struct supervisor_request_fields *q, struct err *err)
{
    if (q->fd < 0)
        return err_set(err, ERR_INVALID, "the request has no stream");
    return q->sup->ops->files(q->peer, q->seq, q->copy.user, q->fd, err);
}

static int commands_do_listener(const struct supervisor_request_fields *q, struct err *err)
{
    struct sup_writer w;
    int fd;

    if (!q->sup->ops->listener)
        return err_set(err, ERR_UNSUPPORTED, "the package cache is not available in this sandbox");
    fd = q->sup->ops->listener(q->sup, err);
    if (fd < 0)
        return fd;
    sup_begin(&w, SUP_RESULT, q->seq);
    peer_send(q->peer, &w, fd);
    return 1;
}

static int commands_do_settled(const struct supervisor_request_fields *q, struct err *err _unused_)
{
    if (q->sup->ops->settled)
        q->sup->ops->settled(q->sup);
    return 1;
}

static int commands_do_hello(const struct supervisor_request_fields *q _unused_,
                             struct err *err _unused_)
{
    return 1;
}

typedef int (*command_fn)(const struct supervisor_request_fields *q, struct err *err);

/* clang-format off */
static const command_fn commands[SUP_MSG_TYPE_MAX] = {
    [SUP_HELLO]       = commands_do_hello,
    [SUP_ATTACH]      = commands_do_attach,
    [SUP_DETACH]      = commands_do_detach,
    [SUP_ACK]         = commands_do_ack,
    [SUP_SIGNAL]      = commands_do_signal,
    [SUP_KILL]        = commands_do_kill,
    [SUP_RESIZE]      = commands_do_resize,
    [SUP_STDIN_CLOSE] = commands_do_stdin_close,
    [SUP_STOP]        = commands_do_stop,
    [SUP_PAUSE]       = commands_do_pause,
    [SUP_RESUME]      = commands_do_resume,
    [SUP_STATS]       = commands_do_stats,
    [SUP_DIAL]        = commands_do_dial,
    [SUP_COPY]        = commands_do_copy,
    [SUP_COPY_AS]     = commands_do_copy_as,
    [SUP_FILES]       = commands_do_files,
    [SUP_LISTENER]    = commands_do_listener,
    [SUP_SETTLED]     = commands_do_settled,
};
/* clang-format on */

static void commands_take_field(struct supervisor_request_fields *q, const struct sup_value *v)
{
    switch (v->tag) {
    case SUP_TAG_EXEC:
        q->exec_id = v->data;
        break;
    case SUP_TAG_SIGNAL:
        q->signal = v->u64;
        break;
    case SUP_TAG_CAUSE:
        q->cause = v->u64;
        break;
    case SUP_TAG_ROWS:
        q->rows = v->u64;
        break;
    case SUP_TAG_COLS:
        q->cols = v->u64;
        break;
    case SUP_TAG_FLAGS:
        q->flags = v->u64;
        break;
    case SUP_TAG_GRACE:
        q->grace = v->u64;
        break;
    case SUP_TAG_STDOUT:
        q->offsets[JOURNAL_STDOUT] = v->u64;
        break;
    case SUP_TAG_STDERR:
        q->offsets[JOURNAL_STDERR] = v->u64;
        break;
    case SUP_TAG_PORT:
        q->port = v->u64;
        break;
    case SUP_TAG_PATH:
        q->copy.path = v->data;
        break;
    case SUP_TAG_DIRECTION:
        q->copy.into = v->u64;
        break;
    case SUP_TAG_USER:
        q->copy.user = v->data;
        break;
    case SUP_TAG_OWNER:
        q->copy.owner = v->data;
        break;
    case SUP_TAG_MODE:
        q->copy.mode = v->u64;
        break;
    default: /* a field of a newer daemon */
        break;
    }
}

static int commands_run(struct supervisor_request_fields *q, struct sup_reader *r, struct err *err)
{
    unsigned type = r->head.type;
    struct sup_value v;
    int n;

    if (type >= SUP_MSG_TYPE_MAX || !commands[type])
        return err_set(err, ERR_UNSUPPORTED,
                       "this sandbox's supervisor does not support message %u", type);
    while ((n = sup_next(r, &v, err)) > 0)
        commands_take_field(q, &v);
    if (n < 0)
        return n;
    if (q->exec_id)
        q->exec = exec_find(q->sup, q->exec_id);
    return commands[type](q, err);
}

void command_run(struct supervisor_peer *p, struct sup_reader *r, int fd)
{
    _cleanup_close_ int came = fd;
    struct supervisor_request_fields q = {.peer = p, .sup = p->sup, .seq = r->head.seq, .fd = came};
    _cleanup_err_ struct err err = ERR_INIT;
    int n;

    if (sup_starts_exec(r->head.type)) {
        exec_start(p, r, came);
        return;
    }
    n = commands_run(&q, r, &err);
    if (n <= 0)
        peer_result(p, q.seq, &err);
}
