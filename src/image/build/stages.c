#include "image/build/stages.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { AT_ONCE_MAX = 16 };

enum stage_progress { STAGE_WAITING, STAGE_RUNNING, STAGE_ENDED };

struct stage_child {
    size_t stage;
    pid_t pid;
    struct json_lines lines; /* owns its descriptor */
    unsigned step;           /* number of its current step; 0: between steps */
    bool asking;             /* waits for an answer of the daemon */
};

struct stage_run {
    const struct stages *s;
    enum stage_progress *progress; /* of the stages */
    struct stage_child children[AT_ONCE_MAX];
    size_t n, at_once;
    unsigned asked; /* questions to the daemon without an answer so far */
};

/* ---- children ---- */

__attribute__((noreturn)) static void build_stages_be_child(const struct stage_run *x, size_t stage,
                                                            int fd)
{
    struct daemon_conn daemon_conn = {.lines = JSON_LINES_INIT(fd, fd)};
    _cleanup_err_ struct err err = ERR_INIT;
    json_t *state = NULL;
    int r = x->s->build(x->s->arg, stage, &daemon_conn, &state, &err);

    json_lines_write_or_exit(&daemon_conn.lines,
                             r < 0 ? json_from_err(&err) : json_pack("{s:o}", "state", state));
    _exit(r < 0);
}

static int build_stages_start(struct stage_run *x, size_t stage, struct err *err)
{
    struct stage_child *c = &x->children[x->n];
    pid_t parent = getpid(), pid;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, errno, "make a pair of sockets");
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() != parent)
            _exit(1);
        fd_close(ends[0]);
        for (size_t i = 0; i < x->n; i++)
            fd_close(x->children[i].lines.in);
        build_stages_be_child(x, stage, ends[1]);
    }
    fd_close(ends[1]);
    if (pid < 0) {
        fd_close(ends[0]);
        return err_sys(err, errno, "start the build of a stage");
    }
    *c = (struct stage_child){
        .stage = stage, .pid = pid, .lines = JSON_LINES_INIT(ends[0], ends[0])};
    x->progress[stage] = STAGE_RUNNING;
    x->n++;
    return 0;
}

static void build_stages_end_child(struct stage_run *x, size_t i)
{
    struct stage_child *c = &x->children[i];

    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    fd_close(c->lines.in);
    json_lines_done(&c->lines);
    *c = x->children[--x->n];
}

static bool build_stages_may_begin(const struct stage_run *x, size_t stage)
{
    if (x->progress[stage] != STAGE_WAITING || !x->s->is_needed(x->s->arg, stage))
        return false;
    for (size_t i = 0; i < stage; i++)
        if (x->progress[i] != STAGE_ENDED && x->s->waits_for(x->s->arg, stage, i))
            return false;
    return true;
}

static int build_stages_start_ready(struct stage_run *x, struct err *err)
{
    int r;

    for (size_t i = 0; i < x->s->n && x->n < x->at_once; i++) {
        if (!build_stages_may_begin(x, i))
            continue;
        r = build_stages_start(x, i, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- messages ---- */

/* Takes the reference to the document. 1: the child has ended and left the list. */
static int build_stages_on_child_line(struct stage_run *x, size_t i, json_t *doc, struct err *err)
{
    struct stage_child *c = &x->children[i];
    struct daemon_conn *daemon = x->s->daemon_conn;
    const json_t *state = json_object_get(doc, "state");
    int r = 0;

    if (state) {
        r = x->s->on_result(x->s->arg, c->stage, state, err);
        x->progress[c->stage] = STAGE_ENDED;
        build_stages_end_child(x, i);
        json_decref(doc);
        return r < 0 ? r : 1;
    }
    if (json_object_get(doc, "error")) {
        r = json_to_err(doc, err);
        json_decref(doc);
        return r;
    }
    daemon_conn_set_id(daemon, &c->step, doc);
    if (json_object_get(doc, "run") || json_object_get(doc, "fetch")) {
        c->asking = true;
        x->asked++;
    } else if (json_object_get(doc, "end")) {
        c->step = 0;
    }
    json_lines_write_or_exit(&daemon->lines, doc);
    return 0;
}

static int build_stages_on_child(struct stage_run *x, size_t i, struct err *err)
{
    json_t *doc = NULL;
    int r = json_lines_fill(&x->children[i].lines, err);

    if (r == 0)
        return err_set(err, ERR_SYSTEM, "the process of a stage has ended without a result");
    while (r > 0 && (r = json_lines_take(&x->children[i].lines, &doc, err)) > 0) {
        r = build_stages_on_child_line(x, i, doc, err);
        if (r > 0)
            return 0;
        r = r < 0 ? r : 1;
    }
    return r;
}

static int build_stages_on_answers(struct stage_run *x, struct err *err)
{
    struct json_lines *w = &x->s->daemon_conn->lines;
    json_t *doc = NULL;
    int r = json_lines_fill(w, err);

    if (r == 0)
        return err_set(err, ERR_ENGINE, "the daemon closed its connection to the build");
    while (r > 0 && (r = json_lines_take(w, &doc, err)) > 0) {
        unsigned step = (unsigned)json_integer_value(json_object_get(doc, "id"));

        x->asked -= x->asked > 0;
        for (size_t i = 0; i < x->n; i++)
            if (x->children[i].asking && x->children[i].step == step) {
                x->children[i].asking = false;
                (void)json_lines_write(&x->children[i].lines,
                                       json_incref(doc)); /* a dead child is noticed in poll() */
            }
        json_decref(doc);
    }
    return r;
}

static int build_stages_await(struct stage_run *x, struct err *err)
{
    struct pollfd p[AT_ONCE_MAX + 1];
    nfds_t n = x->n;
    int r;

    for (size_t i = 0; i < x->n; i++)
        p[i] = (struct pollfd){.fd = x->children[i].lines.in, .events = POLLIN};
    p[n] = (struct pollfd){.fd = x->s->daemon_conn->lines.in, .events = POLLIN};
    while (poll(p, n + 1, -1) < 0)
        if (errno != EINTR)
            return err_sys(err, errno, "wait for the stages");
    if (p[n].revents) {
        r = build_stages_on_answers(x, err);
        if (r < 0)
            return r;
    }
    /* Backwards: the last child, already handled, takes the place of one that ended. */
    for (size_t i = n; i-- > 0;) {
        if (!p[i].revents)
            continue;
        r = build_stages_on_child(x, i, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- all stages ---- */

/*
 * Ends all children and waits for the daemon. After a success there is nothing to do. The error
 * that caused it is already set.
 */
static void build_stages_give_up(struct stage_run *x)
{
    struct daemon_conn *daemon = x->s->daemon_conn;

    for (; x->n; build_stages_end_child(x, x->n - 1)) {
        const struct stage_child *c = &x->children[x->n - 1];

        if (c->step)
            json_lines_write_or_exit(&daemon->lines, json_pack("{s:s, s:i}", "end",
                                                               "cancelled: another step failed",
                                                               "id", (int)c->step));
    }
    if (x->asked)
        json_lines_write_or_exit(&daemon->lines, json_pack("{s:b}", "cancel", 1));
    while (x->asked && build_stages_on_answers(x, NULL) >= 0)
        ;
}

int stages_run(const struct stages *s, struct err *err)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct stage_run x = {.s = s, .at_once = (size_t)MAX(1L, MIN(cpus, (long)AT_ONCE_MAX))};
    int r;

    x.progress = xcalloc(s->n, sizeof(*x.progress));
    while ((r = build_stages_start_ready(&x, err)) >= 0 && x.n)
        if ((r = build_stages_await(&x, err)) < 0)
            break;
    build_stages_give_up(&x);
    free(x.progress);
    return r;
}
