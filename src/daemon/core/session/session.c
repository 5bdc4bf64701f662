#include "daemon/core/session/session.h"

#include <signal.h>

#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/loop/loop.h"

int session_check_free(const struct sandbox *sb, struct err *err)
{
    for (const struct exec *x = sb->execs; x; x = x->next) {
        if (!x->req.session)
            continue;
        err_set(err, ERR_CONFLICT, "session '%s' is active in sandbox '%s'", x->id, sb->name);
        return err_hint(err,
                        "Follow it with 'ripcord session %s --resume %s', cancel it with 'ripcord "
                        "sessions %s %s --cancel', or run both with --concurrent.",
                        sb->name, x->id, sb->name, x->id);
    }
    return 0;
}

static void session_grace_over(void *arg)
{
    exec_kill(arg, NULL, NULL, NULL);
}

int session_cancel(struct exec *x, uint64_t grace, exec_result_fn done, void *arg, struct err *err)
{
    int r;

    if (!grace)
        return exec_kill(x, done, arg, err);
    r = exec_signal(x, SIGTERM, done, arg, err);
    if (r < 0)
        return r;
    if (!x->grace)
        x->grace = loop_timer_new(x->m->loop, session_grace_over, x);
    loop_timer_set(x->grace, grace, false);
    return 0;
}
