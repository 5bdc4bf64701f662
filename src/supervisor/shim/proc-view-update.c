/*
 * Writes the figures behind /proc/meminfo inside again, about once a second while an exec runs. An
 * idle sandbox costs nothing: no process reads the file, and the next exec refreshes it at once.
 */
#include <unistd.h>

#include "lib/base/buf.h"
#include "supervisor/shim/proc-view.h"
#include "supervisor/shim/shim.h"

uint64_t proc_view_refresh_at(const struct supervisor *sup)
{
    const struct shim *s = container_of(sup, const struct shim, sup);

    return s->meminfo_fd >= 0 && execs_live(sup) ? s->refresh_at : DEADLINE_NEVER;
}

void proc_view_refresh(struct supervisor *sup, uint64_t now)
{
    struct shim *s = shim_of(sup);
    _cleanup_buf_ struct buf text = BUF_INIT(PROC_VIEW_FILE_MAX);
    struct cgroup_usage u;

    s->refresh_at = now + PROC_VIEW_INTERVAL;
    cgroup_usage(&s->cgroup, NULL, &u);
    /* On failure the older figures stay. */
    if (proc_view_meminfo(&text, s->memory_shown, u.memory, cgroup_cache(&s->cgroup)) >= 0)
        (void)!pwrite(s->meminfo_fd, buf_data(&text), text.len, 0);
}
