#include "guest/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/command.h"
#include "lib/os/pty.h"

enum {
    STATUS_FD = 3, /* the child's status pipe until execve */
};

#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* The child's report when it cannot run the command. */
enum child_step { STEP_STDIO, STEP_FOLDER, STEP_EXEC };

struct failure {
    int32_t step, errnum; /* STEP_EXEC: 0 is "not found" */
};

/* The child's ends of the descriptors in struct guest_child. */
struct ends {
    int status, in, out, err;
    bool tty;
};

char **child_env(const struct guest_spec *spec, const char *secrets)
{
    bool clear = spec->flags & GUEST_SPEC_ENV_CLEAR;
    char *const path[] = {(char *)"PATH=" PATH_DEFAULT, NULL};
    _cleanup_free_ char *folder = secrets ? xasprintf("RIPCORD_SECRETS=%s", secrets) : NULL;
    char *const ours[] = {folder, NULL};
    _cleanup_free_ char **env =
        strv_env_merge((char *const *const[]){path, clear ? NULL : environ, spec->env, ours}, 4);

    return strv_copy(env);
}

/* ---- in the child ---- */

_noreturn_ static void child_fail(int status, enum child_step step, int errnum)
{
    const struct failure f = {.step = step, .errnum = errnum};

    (void)!write(status, &f, sizeof(f));
    _exit(127);
}

static bool child_arrange_stdio(struct ends *e)
{
    if (setsid() < 0 || (e->tty && ioctl(e->in, TIOCSCTTY, 0) < 0))
        return false;
    /* Our descriptors are above 2: main() has made sure. */
    if (dup2(e->in, 0) < 0 || dup2(e->out, 1) < 0 || dup2(e->err, 2) < 0)
        return false;
    if (e->status != STATUS_FD && dup3(e->status, STATUS_FD, O_CLOEXEC) < 0)
        return false;
    e->status = STATUS_FD;
    syscall(SYS_close_range, STATUS_FD + 1U, ~0U, 0);
    return true;
}

/*
 * If a process inside kills the guest, the command dies with it. The relay then kills the rest of
 * the tree (`guest reap`).
 */
_noreturn_ static void child_run(const struct guest_spec *spec, char **env, struct ends *e,
                                 pid_t guest)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != guest)
        _exit(127);
    command_reset_signals();
    umask(022);
    if (!child_arrange_stdio(e))
        child_fail(e->status, STEP_STDIO, errno);
    if (spec->cwd && chdir(spec->cwd) < 0)
        child_fail(e->status, STEP_FOLDER, errno);
    child_fail(e->status, STEP_EXEC, command_exec(spec->argv, env));
}

/* ---- in the guest ---- */

static int child_make_pipe(int *read_end, int *write_end, struct err *err)
{
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    *read_end = p[0];
    *write_end = p[1];
    return 0;
}

static int child_open_terminal(const struct guest_spec *spec, struct guest_child *c, struct ends *e,
                               struct err *err)
{
    int r = pty_open(spec->rows, spec->cols, &c->out, &e->in, err);

    if (r < 0)
        return r;
    c->in = fcntl(c->out, F_DUPFD_CLOEXEC, STATUS_FD);
    e->out = fcntl(e->in, F_DUPFD_CLOEXEC, STATUS_FD);
    e->err = fcntl(e->in, F_DUPFD_CLOEXEC, STATUS_FD);
    if (c->in < 0 || e->out < 0 || e->err < 0)
        return err_sys(err, errno, "prepare the terminal");
    return 0;
}

static int child_open_pipes(const struct guest_spec *spec, struct guest_child *c, struct ends *e,
                            struct err *err)
{
    int r;

    if (spec->flags & GUEST_SPEC_STDIN) {
        r = child_make_pipe(&e->in, &c->in, err);
    } else {
        e->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
        r = e->in < 0 ? err_sys(err, errno, "open '/dev/null' inside") : 0;
    }
    if (r < 0)
        return r;
    r = child_make_pipe(&c->out, &e->out, err);
    if (r < 0)
        return r;
    if (!(spec->flags & GUEST_SPEC_MERGED))
        return child_make_pipe(&c->err, &e->err, err);
    e->err = fcntl(e->out, F_DUPFD_CLOEXEC, STATUS_FD);
    return e->err < 0 ? err_sys(err, errno, "merge stderr into stdout") : 0;
}

static int child_open_all(const struct guest_spec *spec, struct guest_child *c, struct ends *e,
                          struct err *err)
{
    int r;

    r = child_make_pipe(&c->status, &e->status, err);
    if (r < 0)
        return r;
    r = e->tty ? child_open_terminal(spec, c, e, err) : child_open_pipes(spec, c, e, err);
    if (r < 0)
        return r;
    if (fd_set_nonblock(c->status, true) < 0 || fd_set_nonblock(c->out, true) < 0 ||
        (c->in >= 0 && fd_set_nonblock(c->in, true) < 0) ||
        (c->err >= 0 && fd_set_nonblock(c->err, true) < 0))
        return err_sys(err, errno, "prepare a pipe");
    return 0;
}

static void child_close_ends(struct ends *e)
{
    fd_close(e->status);
    fd_close(e->in);
    fd_close(e->out);
    fd_close(e->err);
}

int child_start(const struct guest_spec *spec, char **env, struct guest_child *ret, struct err *err)
{
    _cleanup_(child_close_ends) struct ends e = {-1, -1, -1, -1, spec->flags & GUEST_SPEC_TTY};
    pid_t self = getpid();
    int r;

    *ret = (struct guest_child)CHILD_INIT;
    r = child_open_all(spec, ret, &e, err);
    if (r < 0)
        return r;
    ret->pid = fork();
    if (ret->pid == 0)
        child_run(spec, env, &e, self);
    if (ret->pid >= 0)
        return 0;
    if (errno != EAGAIN)
        return err_sys(err, errno, "start a process in the sandbox");
    err_set(err, ERR_LIMIT, "cannot start a process: the sandbox is at its process limit");
    return err_hint(err, "End some processes in the sandbox, or create it with a higher --pids.");
}

static int child_explain(const struct failure *f, const struct guest_spec *spec, struct err *err)
{
    switch ((enum child_step)f->step) {
    case STEP_FOLDER:
        err_set(err, ERR_INVALID, "working folder '%s': %s", spec->cwd, strerror(f->errnum));
        return err_hint(
            err, "The folder must exist inside the sandbox, and the user needs access to it.");
    case STEP_EXEC:
        return command_explain(spec->argv[0], f->errnum, err);
    case STEP_STDIO:
        break;
    }
    return err_sys(err, f->errnum, "set up stdio");
}

int child_status(const struct guest_child *c, const struct guest_spec *spec, struct err *err)
{
    struct failure f;
    ssize_t n = read(c->status, &f, sizeof(f));

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return n == (ssize_t)sizeof(f) ? child_explain(&f, spec, err) : 1;
}
