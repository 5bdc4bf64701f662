/*
 * Starting execs: the daemon's message is checked, folders and pipes are made, a helper is forked
 * (exec-child.c); its status line then tells whether the command runs. All of that is events, so
 * that a helper that hangs (the sandbox is frozen in the middle of it) holds up nobody else.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/strv.h"
#include "base/xalloc.h"
#include "os/ns.h"
#include "os/pidfd.h"
#include "shim/kin.h"
#include "shim/shim.h"

/* ---- looking up, counting, freeing ---- */

bool exec_is_live(const struct exec *x)
{
    return x->state != EXEC_OVER;
}

struct exec *exec_find(struct shim *s, const char *id)
{
    for (struct exec *x = s->execs; x; x = x->next)
        if (exec_is_live(x) && STREQ(x->id, id))
            return x;
    return NULL;
}

size_t execs_live(const struct shim *s)
{
    size_t n = 0;

    for (const struct exec *x = s->execs; x; x = x->next)
        n += exec_is_live(x);
    return n;
}

void exec_spec_done(struct exec_spec *spec)
{
    strv_free(spec->argv);
    strv_free(spec->env);
    free(spec->cwd);
    free(spec->user);
    *spec = (struct exec_spec){0};
}

void exec_free(struct exec *x)
{
    struct shim *s = x->shim;

    attachments_remove(x, NULL);
    if (x->helper.fd >= 0) { /* it has done its work, and only wants to be reaped */
        pidfd_signal(x->helper.fd, SIGKILL);
        pidfd_reap(x->helper.fd, true, NULL, NULL);
    }
    source_close(s, &x->status);
    source_close(s, &x->helper);
    source_close(s, &x->main);
    streams_close(x);
    cgroup_group_done(&x->group);
    fd_close(x->mark);
    fd_close(x->dirfd);
    fd_close(x->stdin_fd);
    exec_spec_done(&x->spec);
    err_done(&x->start_err);
    free(x);
}

void exec_kill(struct exec *x, enum end_cause cause)
{
    if (!x->killed) {
        x->killed = true;
        x->kill_cause = cause;
    }
    if (cgroup_group_kill(&x->shim->cgroup, &x->group))
        return;
    if (x->main.fd >= 0)
        pidfd_signal(x->main.fd, SIGKILL);
    if (x->helper.fd >= 0)
        pidfd_signal(x->helper.fd, SIGKILL);
    if (x->mark >= 0 && !kin_kill(x->mark))
        log_warn("exec %s: some of its processes do not die; they end with the sandbox", x->id);
}

/* ---- the request ---- */

static int take_field(struct exec *x, const struct shim_value *v, struct err *err)
{
    switch (v->tag) {
    case SHIM_TAG_EXEC:
        if (!v->length || v->length > SHIM_ID_MAX ||
            strspn(v->data, "0123456789abcdefghijklmnopqrstuvwxyz") != v->length)
            return err_set(err, ERR_INVALID, "'%.32s' is not an exec id", v->data);
        memcpy(x->id, v->data, v->length + 1);
        break;
    case SHIM_TAG_ARG:
        strv_add(&x->spec.argv, v->data);
        break;
    case SHIM_TAG_ENV:
        if (parse_env(v->data, err) < 0)
            return err_wrap(err, "env");
        strv_add(&x->spec.env, v->data);
        break;
    case SHIM_TAG_CWD:
        free(x->spec.cwd);
        x->spec.cwd = xstrdup(v->data);
        break;
    case SHIM_TAG_USER:
        free(x->spec.user);
        x->spec.user = xstrdup(v->data);
        break;
    case SHIM_TAG_FLAGS:
        x->spec.flags = v->u64;
        break;
    case SHIM_TAG_TIMEOUT:
        x->timeout = v->u64;
        break;
    case SHIM_TAG_IDLE_TIMEOUT:
        x->idle_timeout = v->u64;
        break;
    case SHIM_TAG_ROWS:
        x->spec.rows = (uint16_t)MIN(v->u64, UINT16_MAX);
        break;
    case SHIM_TAG_COLS:
        x->spec.cols = (uint16_t)MIN(v->u64, UINT16_MAX);
        break;
    default: /* newer than us */
        break;
    }
    return 0;
}

static int check_spec(const struct exec *x, struct err *err)
{
    const struct exec_spec *spec = &x->spec;

    if (!spec->argv || !*spec->argv[0])
        return err_set(err, ERR_INVALID, "no command was given");
    if (spec->cwd && spec->cwd[0] != '/')
        return err_set(err, ERR_INVALID, "working folder '%s' is not absolute", spec->cwd);
    if (spec->user && parse_user(spec->user, err) < 0)
        return err_wrap(err, "user");
    if (x->timeout > UINT64_MAX / 4 || x->idle_timeout > UINT64_MAX / 4)
        return err_set(err, ERR_INVALID, "the timeout is too long");
    if (x->shim->state == SHIM_PAUSED) {
        err_set(err, ERR_CONFLICT, "the sandbox is paused");
        return err_hint(err, "Resume it first: `ripcord resume %s`.", x->shim->plan.name);
    }
    if (x->shim->state != SHIM_RUNNING)
        return err_set(err, ERR_CONFLICT, "the sandbox is stopping");
    if (execs_live(x->shim) >= SHIM_EXECS_MAX)
        return err_set(err, ERR_LIMIT, "%d execs run in this sandbox already", SHIM_EXECS_MAX);
    return 0;
}

static struct exec *exec_new(struct peer *p, uint64_t seq)
{
    struct exec *x = xnew0(struct exec);

    x->shim = p->shim;
    x->starter = p;
    x->seq = seq;
    x->status.fd = x->helper.fd = x->main.fd = x->dirfd = x->stdin_fd = x->mark = -1;
    x->group = (struct cgroup_group)CGROUP_GROUP_INIT;
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        x->streams[i].src.fd = -1;
        x->streams[i].exec = x;
        x->streams[i].journal.fd = -1;
    }
    x->started_wall = time_wall();
    x->started_mono = x->last_output = time_mono();
    return x;
}

/* ---- folders, pipes, helper ---- */

static int make_folder(struct exec *x, struct err *err)
{
    struct shim *s = x->shim;
    int r;

    if (mkdirat(s->exec_dirfd, x->id, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "make the folder of exec '%s'", x->id);
    r = dir_open(s->exec_dirfd, x->id, &x->dirfd, err);
    if (r < 0)
        return r;
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        journal_writer_init(&x->streams[i].journal, x->dirfd, (enum journal_stream)i,
                            s->plan.journal_budget);
    return 0;
}

static int make_group(struct exec *x, struct err *err)
{
    char name[CGROUP_NAME_MAX];
    struct cgroup_usage u;

    cgroup_usage(&x->shim->cgroup, NULL, &u);
    x->pids_denied_before = u.pids_denied;
    snprintf(name, sizeof(name), "x-%s", x->id);
    return cgroup_group_open(&x->shim->cgroup, name, true, &x->group, err);
}

/* Pairs of read and write end. */
struct pipes {
    int in[2], out[2], err[2], status[2];
};

static void pipes_done(struct pipes *p)
{
    int *const all[] = {p->in, p->out, p->err, p->status};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        all[i][0] = fd_close(all[i][0]);
        all[i][1] = fd_close(all[i][1]);
    }
}

static int pipes_open(const struct exec *x, struct pipes *p, struct err *err)
{
    bool tty = x->spec.flags & SHIM_EXEC_TTY, in = x->spec.flags & SHIM_EXEC_STDIN;

    *p = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    if ((in && !tty && pipe2(p->in, O_CLOEXEC) < 0) || (!tty && pipe2(p->out, O_CLOEXEC) < 0) ||
        (!tty && pipe2(p->err, O_CLOEXEC) < 0) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p->status) < 0) {
        int r = err_sys(err, errno, "make pipes for exec '%s'", x->id);

        pipes_done(p);
        return r;
    }
    return 0;
}

static void on_status(struct source *src, uint32_t events);
static void on_helper(struct source *src, uint32_t events);

static int fork_helper(struct exec *x, const struct pipes *p, struct err *err)
{
    struct shim *s = x->shim;
    struct exec_fds fds = {.status = p->status[1],
                           .in = p->in[0],
                           .out = p->out[1],
                           .err = p->err[1],
                           .cgroup = &s->cgroup,
                           .group = &x->group};
    int pidfd = -1;
    pid_t pid;

    pid = ns_clone(0, cgroup_group_clone_fd(&x->group), &pidfd);
    if (pid == 0)
        exec_helper(s, &x->spec, &fds);
    if (pid < 0)
        return err_sys(err, -pid, "start a helper for exec '%s'", x->id);
    if (source_add(s, &x->helper, pidfd, EPOLLIN, on_helper, err) < 0) {
        pidfd_signal(pidfd, SIGKILL);
        pidfd_reap(pidfd, true, NULL, NULL);
        fd_close(pidfd);
        return -ERR_SYSTEM;
    }
    return 0;
}

static int watch(struct exec *x, struct pipes *p, struct err *err)
{
    int r;

    x->tty = x->spec.flags & SHIM_EXEC_TTY;
    r = source_add(x->shim, &x->status, p->status[0], EPOLLIN, on_status, err);
    if (r < 0)
        return r;
    TAKE_FD(p->status[0]);
    r = streams_open(x, p->out[0], p->err[0], err);
    /* Those under watch are the streams' now, also when the second failed. */
    if (x->streams[JOURNAL_STDOUT].src.fd >= 0)
        TAKE_FD(p->out[0]);
    if (x->streams[JOURNAL_STDERR].src.fd >= 0)
        TAKE_FD(p->err[0]);
    x->stdin_fd = TAKE_FD(p->in[1]);
    return r;
}

static int launch(struct exec *x, struct err *err)
{
    struct pipes p;
    int r;

    r = make_group(x, err);
    if (r >= 0)
        r = pipes_open(x, &p, err);
    if (r < 0)
        return r;
    r = fork_helper(x, &p, err);
    if (r >= 0)
        r = watch(x, &p, err);
    pipes_done(&p);
    return r;
}

/* ---- the status line ---- */

static void tell_started(struct exec *x)
{
    struct shim_writer w;
    int fd = TAKE_FD(x->stdin_fd);

    if (x->tty && x->streams[JOURNAL_STDOUT].src.fd >= 0)
        fd = fcntl(x->streams[JOURNAL_STDOUT].src.fd, F_DUPFD_CLOEXEC, 3);
    if (!x->starter) { /* it has gone: its command goes on, with its stdin at its end */
        fd_close(fd);
        return;
    }
    shim_begin(&w, SHIM_STARTED, x->seq);
    shim_put_str(&w, SHIM_TAG_EXEC, x->id);
    shim_put_u64(&w, SHIM_TAG_PID, (uint64_t)x->pid);
    peer_send(x->starter, &w, fd);
    x->starter = NULL;
}

/* The line has ended: the command runs, or the reason why not is known. */
static void resolve(struct exec *x)
{
    struct shim *s = x->shim;

    source_close(s, &x->status);
    if (!x->start_err.code && x->main.fd < 0)
        err_set(&x->start_err, ERR_ENGINE, "the helper that enters the sandbox was killed");
    if (x->start_err.code) {
        if (x->main.fd >= 0) { /* it has said why, and is on its way out */
            pidfd_signal(x->main.fd, SIGKILL);
            pidfd_reap(x->main.fd, true, NULL, NULL);
        }
        source_close(s, &x->main);
        exec_fail_start(x, &x->start_err);
        return;
    }
    x->state = EXEC_RUNNING;
    exec_spec_done(&x->spec);
    tell_started(x);
    streams_notify(x);
    exec_on_main(&x->main, 0); /* may have ended already, and was not looked at while starting */
}

/* From the helper: the command's process exists. Its pidfd comes, then the mark where there is one,
 * then the terminal where that was asked for. */
static void take_process(struct exec *x, const char *packet, size_t len, int fds[EXEC_STARTED_FDS])
{
    int *tty = x->shim->plan.id_base ? &fds[1] : &fds[2];
    _cleanup_err_ struct err err = ERR_INIT;
    struct shim_reader r;
    struct shim_value v;

    if (shim_read(&r, packet, len, &err) < 0)
        return;
    while (shim_next(&r, &v, &err) > 0)
        if (v.tag == SHIM_TAG_PID)
            x->pid = (int)v.u64;
    if (fds[0] >= 0 && source_add(x->shim, &x->main, fds[0], EPOLLIN, exec_on_main, &err) >= 0)
        TAKE_FD(fds[0]);
    if (*tty >= 0 && streams_open(x, *tty, -1, &err) >= 0)
        TAKE_FD(*tty);
    if (!x->shim->plan.id_base)
        x->mark = TAKE_FD(fds[1]);
    if (err.code)
        err_move(&x->start_err, &err);
}

static void on_status(struct source *src, uint32_t events _unused_)
{
    struct exec *x = container_of(src, struct exec, status);
    char *packet = shim_io(x->shim);
    int fds[EXEC_STARTED_FDS] = {-1, -1, -1};
    size_t n = EXEC_STARTED_FDS;
    ssize_t len = fd_recv(src->fd, packet, SHIM_MSG_MAX, fds, &n, MSG_DONTWAIT);

    if (len == -EAGAIN)
        return;
    if (len > 0 && n > 0)
        take_process(x, packet, (size_t)len, fds);
    else if (len > 0 && !x->start_err.code)
        shim_read_err(packet, (size_t)len, &x->start_err);
    else
        resolve(x);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fd_close(fds[i]);
}

static void on_helper(struct source *src, uint32_t events _unused_)
{
    struct exec *x = container_of(src, struct exec, helper);

    if (pidfd_reap(src->fd, false, NULL, NULL) != 0)
        source_close(x->shim, src);
}

/* ---- EXEC ---- */

/* An exec is alone when no other one's life overlaps with its own. */
static void mark_alone(struct shim *s, struct exec *x)
{
    x->alone = true;
    for (struct exec *other = s->execs; other; other = other->next) {
        if (other == x)
            continue;
        other->alone = false; /* a daemonised child of an ended exec counts as company */
        x->alone = false;
    }
}

static int read_request(struct exec *x, struct shim_reader *r, struct err *err)
{
    struct shim_value v;
    int n;

    while ((n = shim_next(r, &v, err)) > 0) {
        n = take_field(x, &v, err);
        if (n < 0)
            return n;
    }
    return n;
}

/* Without an id of its own it cannot be recorded: the answer is all there is. */
static bool refuse(struct exec *x, struct err *err)
{
    struct shim_writer w;

    if (*x->id && exec_find(x->shim, x->id))
        err_set(err, ERR_CONFLICT, "exec '%s' runs already", x->id);
    else if (*x->id && faccessat(x->shim->exec_dirfd, x->id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        err_set(err, ERR_CONFLICT, "exec '%s' has been used before", x->id);
    else if (*x->id)
        return false;
    else if (!err->code)
        err_set(err, ERR_INVALID, "the exec has no id");
    shim_begin(&w, SHIM_EXEC_FAILED, x->seq);
    shim_put_str(&w, SHIM_TAG_EXEC, x->id);
    shim_put_err(&w, err);
    peer_send(x->starter, &w, -1);
    exec_free(x);
    return true;
}

void exec_start(struct peer *p, struct shim_reader *reader)
{
    static const uint64_t from_start[JOURNAL_STREAMS] = {0, 0};
    _cleanup_err_ struct err err = ERR_INIT;
    struct shim *s = p->shim;
    struct exec *x = exec_new(p, reader->head.seq);
    int r;

    r = read_request(x, reader, &err);
    if (refuse(x, &err))
        return;
    x->next = s->execs;
    s->execs = x;
    if (r >= 0)
        r = check_spec(x, &err);
    if (r >= 0)
        mark_alone(s, x);
    if (make_folder(x, r >= 0 ? &err : NULL) < 0 && r >= 0)
        r = -ERR_SYSTEM;
    if (r >= 0 && x->spec.flags & SHIM_EXEC_ATTACH)
        attachment_add(x, p, from_start);
    if (r >= 0)
        r = launch(x, &err);
    if (r < 0)
        exec_fail_start(x, &err);
}
