/*
 * Starting execs: the request is checked, the exec gets its folder, and the owner launches it. The
 * launch continues with events, so that a start that hangs (because the sandbox is frozen during
 * it) does not block other execs.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "supervisor/common/supervisor.h"

/* ---- looking up, counting, freeing ---- */

bool exec_is_live(const struct supervised_exec *x)
{
    return x->state != EXEC_OVER;
}

struct supervised_exec *exec_find(struct supervisor *s, const char *id)
{
    for (struct supervised_exec *x = s->execs; x; x = x->next)
        if (exec_is_live(x) && STREQ(x->id, id))
            return x;
    return NULL;
}

size_t execs_live(const struct supervisor *s)
{
    size_t n = 0;

    for (const struct supervised_exec *x = s->execs; x; x = x->next)
        n += exec_is_live(x);
    return n;
}

void exec_spec_done(struct exec_spec *spec)
{
    free(spec->args.v);
    free(spec->vars.v);
    free(spec->message);
    *spec = (struct exec_spec){0};
}

void exec_free(struct supervised_exec *x)
{
    attachments_remove(x, NULL);
    x->sup->ops->exec_done(x);
    streams_close(x);
    input_close(x);
    fd_close(x->dirfd);
    exec_spec_done(&x->spec);
    free(x);
}

void exec_kill(struct supervised_exec *x, enum end_cause cause)
{
    if (!x->killed) {
        x->killed = true;
        x->kill_cause = cause;
    }
    x->sup->ops->kill(x);
}

/* ---- the request ---- */

char *exec_workdir(const struct exec_spec *spec, const char *of_sandbox)
{
    if (!spec->cwd)
        return xstrdup(of_sandbox);
    if (spec->cwd[0] == '/')
        return xstrdup(spec->cwd);
    return xasprintf("%s/%s", STREQ(of_sandbox, "/") ? "" : of_sandbox, spec->cwd);
}

static int supervisor_exec_take_field(struct supervised_exec *x, const struct sup_value *v,
                                      struct err *err)
{
    switch (v->tag) {
    case SUP_TAG_EXEC:
        if (!v->length || v->length > SUPERVISOR_ID_MAX ||
            strspn(v->data, "0123456789abcdefghijklmnopqrstuvwxyz") != v->length)
            return err_set(err, ERR_INVALID, "'%.32s' is not an exec id", v->data);
        memcpy(x->id, v->data, v->length + 1);
        break;
    case SUP_TAG_ARG:
        strv_list_push(&x->spec.args, (char *)v->data);
        break;
    case SUP_TAG_ENV:
        if (parse_env(v->data, err) < 0)
            return err_wrap(err, "env");
        strv_list_push(&x->spec.vars, (char *)v->data);
        break;
    case SUP_TAG_CWD:
        x->spec.cwd = v->data;
        break;
    case SUP_TAG_USER:
        x->spec.user = v->data;
        break;
    case SUP_TAG_FLAGS:
        x->spec.flags = v->u64;
        break;
    case SUP_TAG_TIMEOUT:
        x->timeout = v->u64;
        break;
    case SUP_TAG_IDLE_TIMEOUT:
        x->idle_timeout = v->u64;
        break;
    case SUP_TAG_ROWS:
        x->spec.rows = (uint16_t)MIN(v->u64, UINT16_MAX);
        break;
    case SUP_TAG_COLS:
        x->spec.cols = (uint16_t)MIN(v->u64, UINT16_MAX);
        break;
    default: /* a field of a newer daemon */
        break;
    }
    return 0;
}

static int supervisor_exec_check_spec(const struct supervised_exec *x, struct err *err)
{
    const struct exec_spec *spec = &x->spec;

    if (!spec->argv || !*spec->argv[0])
        return err_set(err, ERR_INVALID, "no command was given");
    if (spec->cwd && !*spec->cwd)
        return err_set(err, ERR_INVALID, "the working folder must not be empty");
    if (spec->user && parse_user(spec->user, err) < 0)
        return err_wrap(err, "user");
    if (x->timeout > UINT64_MAX / 4 || x->idle_timeout > UINT64_MAX / 4)
        return err_set(err, ERR_INVALID, "the timeout is too long");
    if (x->sup->state != SUP_RUNNING && x->sup->state != SUP_PAUSED)
        return err_set(err, ERR_CONFLICT, "the sandbox is stopping");
    if (execs_live(x->sup) >= SUPERVISOR_EXECS_MAX)
        return err_set(err, ERR_LIMIT, "this sandbox already runs %d execs", SUPERVISOR_EXECS_MAX);
    return 0;
}

static struct supervised_exec *supervisor_exec_new(struct supervisor_peer *p, uint64_t seq)
{
    const struct supervisor_ops *ops = p->sup->ops;
    struct supervised_exec *x = xcalloc(1, ops->exec_size);

    x->sup = p->sup;
    x->starter = p;
    x->seq = seq;
    x->dirfd = x->input.fd = -1;
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        x->streams[i].src.fd = -1;
        x->streams[i].exec = x;
        x->streams[i].journal.fd = -1;
    }
    x->started_wall = time_wall();
    x->started_mono = x->last_output = time_mono();
    ops->exec_init(x);
    return x;
}

/* ---- starting ---- */

static int supervisor_exec_make_folder(struct supervised_exec *x, struct err *err)
{
    struct supervisor *s = x->sup;
    int r;

    if (mkdirat(s->exec_dirfd, x->id, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "create the folder of exec '%s'", x->id);
    r = dir_open(s->exec_dirfd, x->id, &x->dirfd, err);
    if (r < 0)
        return r;
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        journal_writer_init(&x->streams[i].journal, x->dirfd, (enum journal_stream)i,
                            s->journal_budget);
    return 0;
}

void exec_started(struct supervised_exec *x, int fd)
{
    _cleanup_close_ int in = fd;
    struct sup_writer w;

    x->state = EXEC_RUNNING;
    exec_spec_done(&x->spec);
    if (x->handover.input)
        input_begin(x, TAKE_FD(in));
    else
        input_close(x);
    if (x->starter) { /* else the daemon has gone: the command runs on, and its stdin ends */
        sup_begin(&w, SUP_STARTED, x->seq);
        sup_put_str(&w, SUP_TAG_EXEC, x->id);
        sup_put_u64(&w, SUP_TAG_PID, (uint64_t)x->pid);
        peer_send(x->starter, &w, TAKE_FD(in));
        x->starter = NULL;
    }
    streams_notify(x);
}

/* An exec is alone if no other exec runs at any time of its life. */
static void supervisor_exec_mark_alone(struct supervisor *s, struct supervised_exec *x)
{
    x->alone = true;
    for (struct supervised_exec *other = s->execs; other; other = other->next) {
        if (other == x)
            continue;
        other->alone = false; /* a daemonised child of an ended exec counts too */
        x->alone = false;
    }
}

/* The packet lies in the loop's buffer: it is copied once, and not string by string. */
static int supervisor_exec_read_fields(struct supervised_exec *x, const struct sup_reader *packet,
                                       struct err *err)
{
    size_t size = (size_t)(packet->end - packet->p);
    struct sup_reader r = {.head = packet->head};
    struct sup_value v;
    int n;

    x->spec.message = xmemdup(packet->p, size);
    r.p = x->spec.message;
    r.end = r.p + size;
    while ((n = sup_next(&r, &v, err)) > 0) {
        n = supervisor_exec_take_field(x, &v, err);
        if (n < 0)
            return n;
    }
    x->spec.argv = x->spec.args.v;
    x->spec.env = x->spec.vars.v;
    return n;
}

/* fd: the handover, or -1. */
static int supervisor_exec_read_request(struct supervised_exec *x, const struct sup_reader *packet,
                                        int fd, struct err *err)
{
    bool large = packet->head.type == SUP_EXEC_LARGE;
    int r = supervisor_exec_read_fields(x, packet, err);

    if (r < 0 || packet->head.type == SUP_EXEC)
        return r;
    r = handover_read(fd, &x->handover, err);
    if (r < 0)
        return r;
    if (large ? x->spec.argv || x->spec.env : x->handover.argv != NULL)
        return err_set(err, ERR_INVALID, "the command is not where its message has it");
    if (large) {
        x->spec.argv = x->handover.argv;
        x->spec.env = x->handover.env;
    }
    return 0;
}

/* Refuses an exec without making a record: one without an id of its own cannot have a record, and
 * one that the daemon may send again must not have one. */
static bool supervisor_exec_refuse(struct supervised_exec *x, struct err *err)
{
    if (*x->id && exec_find(x->sup, x->id))
        err_set(err, ERR_CONFLICT, "exec '%s' is already running", x->id);
    else if (*x->id && faccessat(x->sup->exec_dirfd, x->id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        err_set(err, ERR_CONFLICT, "exec id '%s' was used before", x->id);
    else if (*x->id && exec_is_late(x))
        err_set(err, ERR_CONFLICT, "the sandbox is stopping");
    else if (*x->id)
        return false;
    else if (!err->code)
        err_set(err, ERR_INVALID, "the request has no exec id");
    exec_send_refused(x, err);
    exec_free(x);
    return true;
}

static int supervisor_exec_launch(struct supervised_exec *x, struct err *err)
{
    static const uint64_t from_start[JOURNAL_STREAMS] = {0, 0};
    int r;

    r = supervisor_exec_check_spec(x, err);
    if (r < 0)
        return r;
    supervisor_exec_mark_alone(x->sup, x);
    r = supervisor_exec_make_folder(x, err);
    if (r < 0)
        return r;
    if (x->spec.flags & SUP_EXEC_ATTACH)
        attachment_add(x, x->starter, from_start);
    return x->sup->ops->launch(x, err);
}

void exec_start(struct supervisor_peer *p, struct sup_reader *reader, int fd)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct supervised_exec *x = supervisor_exec_new(p, reader->head.seq);
    struct supervisor *s = p->sup;
    int r;

    r = supervisor_exec_read_request(x, reader, fd, &err);
    if (supervisor_exec_refuse(x, &err))
        return;
    x->input_whole =
        (x->spec.flags & (SUP_EXEC_STDIN | SUP_EXEC_TTY)) != SUP_EXEC_STDIN || x->handover.input;
    x->next = s->execs;
    s->execs = x;
    if (r >= 0)
        r = supervisor_exec_launch(x, &err);
    if (r >= 0)
        return;
    if (x->dirfd < 0) /* the record of the failure needs the folder too */
        supervisor_exec_make_folder(x, NULL);
    exec_fail_start(x, &err);
}
