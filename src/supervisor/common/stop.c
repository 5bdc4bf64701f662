/*
 * The end of a sandbox, for any reason: a request, the end of an ephemeral sandbox's command, the
 * death of pid 1. The commands get SIGTERM and a grace period; then the owner ends every process
 * inside. The sandbox is over when no process is left and every exec has its end record.
 */
#include <signal.h>
#include <unistd.h>

#include "lib/base/macro.h"
#include "supervisor/common/supervisor.h"

enum { FLUSH_WAIT_SEC = 1 };

void stop_begin(struct supervisor *s, uint64_t grace_usec)
{
    bool again = s->state == SUP_STOPPING;
    struct deadline by = deadline_in(grace_usec);

    /* A second request can only shorten the grace. */
    s->stop_by.at = again ? MIN(s->stop_by.at, by.at) : by.at;
    if (again)
        return;
    s->ops->stopping(s);
    s->state = SUP_STOPPING;
    for (struct supervised_exec *x = s->execs; x; x = x->next) {
        x->stopped = x->state == EXEC_STARTING || x->state == EXEC_RUNNING;
        if (x->state == EXEC_RUNNING)
            s->ops->signal(x, SIGTERM, NULL);
    }
    stop_advance(s);
}

static void supervisor_stop_finish(struct supervisor *s)
{
    struct sup_writer w;

    source_close(s, &s->listener);
    unlinkat(s->run_dirfd, SUP_SOCKET, 0);
    s->ops->finish(s);
    sup_begin(&w, SUP_STOPPED, 0);
    peers_broadcast(s, &w);
    peers_finish(s, FLUSH_WAIT_SEC * USEC_PER_SEC);
    s->over = true;
}

void stop_advance(struct supervisor *s)
{
    if (s->over)
        return;
    if (!s->shut && (!execs_live(s) || deadline_passed(&s->stop_by))) {
        s->shut = true;
        s->ops->shut_down(s);
    }
    if (s->gone && !execs_live(s))
        supervisor_stop_finish(s);
}
