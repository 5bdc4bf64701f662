#include "image/build/stages.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
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
    struct json_lines result; /* a pipe with one line: its result, or its error */
};

struct stage_run {
    const struct stages *s;
    enum stage_progress *progress; /* of the stages */
    struct stage_child children[AT_ONCE_MAX];
    size_t n, at_once;
};

/* ---- children ---- */

static int build_stages_build_in_child(const struct stages *s, size_t stage, struct err *err)
{
    int r = daemon_conn_open(s->daemon_conn, err);

    if (r < 0)
        return r;
    r = s->build(s->arg, stage, err);
    daemon_conn_flush(s->daemon_conn); /* stages that need this one report their steps after it */
    return r;
}

_noreturn_ static void build_stages_be_child(const struct stages *s, size_t stage, int fd)
{
    struct json_lines result = JSON_LINES_INIT(fd);
    _cleanup_err_ struct err err = ERR_INIT;
    int r = build_stages_build_in_child(s, stage, &err);

    (void)json_lines_write(&result, r < 0 ? json_from_err(&err) : s->result(s->arg, stage));
    _exit(r < 0);
}

static int build_stages_start(struct stage_run *x, size_t stage, struct err *err)
{
    pid_t parent = getpid(), pid;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() != parent)
            _exit(1);
        build_stages_be_child(x->s, stage, ends[1]);
    }
    fd_close(ends[1]);
    if (pid < 0) {
        fd_close(ends[0]);
        return err_sys(err, errno, "start the build of a stage");
    }
    x->children[x->n++] =
        (struct stage_child){.stage = stage, .pid = pid, .result = JSON_LINES_INIT(ends[0])};
    x->progress[stage] = STAGE_RUNNING;
    return 0;
}

static void build_stages_end_child(struct stage_run *x, size_t i)
{
    struct stage_child *c = &x->children[i];

    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    json_lines_done(&c->result);
    *c = x->children[--x->n];
}

static int build_stages_on_child(struct stage_run *x, size_t i, struct err *err)
{
    struct stage_child *c = &x->children[i];
    _cleanup_json_ json_t *doc = NULL;
    int r = json_lines_next(&c->result, &doc, err);

    if (r < 0)
        return r;
    if (r == 0)
        return err_set(err, ERR_SYSTEM, "the process of a stage has ended without a result");
    if (json_object_get(doc, "error"))
        return json_to_err(doc, err);
    r = x->s->on_result(x->s->arg, c->stage, doc, err);
    if (r < 0)
        return r;
    x->progress[c->stage] = STAGE_ENDED;
    build_stages_end_child(x, i);
    return 0;
}

static int build_stages_await(struct stage_run *x, struct err *err)
{
    struct pollfd p[AT_ONCE_MAX + 1];
    nfds_t n = x->n;

    for (size_t i = 0; i < x->n; i++)
        p[i] = (struct pollfd){.fd = x->children[i].result.fd, .events = POLLIN};
    p[n] = (struct pollfd){.fd = x->s->daemon_conn->control}; /* for POLLHUP */
    while (poll(p, n + 1, -1) < 0)
        if (errno != EINTR)
            return err_sys(err, errno, "wait for the stages");
    if (p[n].revents)
        return err_set(err, ERR_ENGINE, "the daemon closed its connection to the build");
    /* Backwards: the last child, already handled, takes the place of one that ended. */
    for (size_t i = n; i-- > 0;) {
        int r = p[i].revents ? build_stages_on_child(x, i, err) : 0;

        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- all stages ---- */

static bool build_stages_may_begin(const struct stage_run *x, size_t stage)
{
    if (x->progress[stage] != STAGE_WAITING || !x->s->is_needed(x->s->arg, stage))
        return false;
    for (size_t i = 0; i < stage; i++)
        if (x->progress[i] != STAGE_ENDED && x->s->waits_for(x->s->arg, stage, i))
            return false;
    return true;
}

/* Builds a stage that runs alone, or starts children for all that may begin and waits for news. */
static int build_stages_go_on(struct stage_run *x, const size_t *ready, size_t n, struct err *err)
{
    if (n == 1 && !x->n) {
        x->progress[*ready] = STAGE_ENDED;
        return x->s->build(x->s->arg, *ready, err);
    }
    if (n)
        daemon_conn_flush(x->s->daemon_conn);
    for (; n && x->n < x->at_once; ready++, n--) {
        int r = build_stages_start(x, *ready, err);

        if (r < 0)
            return r;
    }
    return build_stages_await(x, err);
}

int stages_run(const struct stages *s, struct err *err)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    _cleanup_free_ enum stage_progress *progress = xcalloc(s->n, sizeof(*progress));
    _cleanup_free_ size_t *ready = xcalloc(s->n, sizeof(*ready));
    struct stage_run x = {
        .s = s, .progress = progress, .at_once = (size_t)MAX(1L, MIN(cpus, (long)AT_ONCE_MAX))};
    int r = 0;

    while (r >= 0) {
        size_t n = 0;

        for (size_t i = 0; i < s->n; i++)
            if (build_stages_may_begin(&x, i))
                ready[n++] = i;
        if (!n && !x.n)
            break;
        r = build_stages_go_on(&x, ready, n, err);
    }
    while (x.n)
        build_stages_end_child(&x, x.n - 1);
    return r;
}
