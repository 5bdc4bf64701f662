/*
 * Requests of clients to a live exec: signal, kill, resize, end of stdin. Each goes to the
 * supervisor that runs it.
 */
#include <stdlib.h>

#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

struct exec_control_call {
    exec_result_fn done;
    void *arg;
};

static void exec_control_answered(void *arg, const struct err *err, int fd)
{
    struct exec_control_call *r = arg;

    fd_close(fd);
    if (r->done)
        r->done(r->arg, err);
    free(r);
}

static struct exec_control_call *exec_control_call_new(exec_result_fn done, void *arg)
{
    struct exec_control_call *r = xnew0(struct exec_control_call);

    r->done = done;
    r->arg = arg;
    return r;
}

static int exec_control_check_reachable(const struct exec *x, struct err *err)
{
    if (x->state == EXEC_ENDED)
        return err_set(err, ERR_CONFLICT, "exec '%s' has ended", x->id);
    if (!x->sb || !x->sb->conn || !exec_is_sent(x))
        return err_set(err, ERR_CONFLICT, "exec '%s' has not started yet", x->id);
    return 0;
}

int exec_signal(struct exec *x, int sig, exec_result_fn done, void *arg, struct err *err)
{
    int r = exec_control_check_reachable(x, err);

    if (r < 0)
        return r;
    supervisor_conn_signal(x->sb->conn, x->id, sig, exec_control_answered,
                           exec_control_call_new(done, arg));
    return 0;
}

int exec_kill(struct exec *x, exec_result_fn done, void *arg, struct err *err)
{
    int r;

    if (!exec_is_sent(x))
        x->cancelled = true; /* and will not be sent */
    r = exec_control_check_reachable(x, err);
    if (r < 0)
        return r;
    supervisor_conn_kill(x->sb->conn, x->id, END_KILLED, exec_control_answered,
                         exec_control_call_new(done, arg));
    return 0;
}

void exec_resize(struct exec *x, uint16_t rows, uint16_t cols)
{
    if (exec_control_check_reachable(x, NULL) >= 0)
        supervisor_conn_resize(x->sb->conn, x->id, rows, cols);
}

void exec_stdin_close(struct exec *x)
{
    if (exec_control_check_reachable(x, NULL) >= 0)
        supervisor_conn_stdin_close(x->sb->conn, x->id);
}
