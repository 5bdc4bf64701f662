/*
 * A watch that is attached keeps the sandbox, as any reader of its output does.
 */
#include "daemon/core/exec/exec-linger.h"

#include <stdlib.h>

#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

#define LINGER (60 * USEC_PER_SEC)

struct exec_linger {
    struct exec_linger *next;
    struct exec *exec;
    struct exec_watch watch;
    uint64_t until; /* time_mono(); 0: the command runs */
};

static void exec_linger_on_event(void *arg, enum exec_event event)
{
    struct exec_linger *l = arg;

    if (event == EXEC_EVENT_ENDED)
        l->until = time_mono() + LINGER;
}

void exec_linger(struct exec *x)
{
    struct exec_linger *l = xnew0(struct exec_linger);

    l->exec = exec_ref(x);
    l->watch = (struct exec_watch){
        .fn = exec_linger_on_event, .arg = l, .attached = true, .acked = {UINT64_MAX, UINT64_MAX}};
    exec_watch_add(x, &l->watch);
    l->next = x->m->lingering;
    x->m->lingering = l;
}

static void exec_linger_free(struct exec_linger *l)
{
    exec_watch_remove(l->exec, &l->watch);
    exec_unref(l->exec);
    free(l);
}

void exec_linger_tick(struct manager *m)
{
    uint64_t now = time_mono();

    for (struct exec_linger **at = &m->lingering; *at;) {
        struct exec_linger *l = *at;

        if (!l->until || now < l->until) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        exec_linger_free(l);
    }
}

/* Removing the watches would remove the sandboxes. The next daemon does that. */
void exec_linger_close(struct manager *m)
{
    while (m->lingering) {
        struct exec_linger *l = m->lingering;

        m->lingering = l->next;
        exec_unref(l->exec);
        free(l);
    }
}
