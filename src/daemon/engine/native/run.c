/*
 * A sandbox's run after its start: connects to its shim, and removes what a run leaves.
 */
#include <time.h>

#include "daemon/engine/native/cgroup-reaper.h"
#include "daemon/engine/native/confined.h"
#include "daemon/engine/native/delete-queue.h"
#include "daemon/engine/native/disk.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"

int native_connect(struct engine *e, const char *id, const struct deadline *by,
                   struct engine_sandbox *ret, struct err *err)
{
    struct native_engine *n = native_of(e);
    _cleanup_close_ int dir = -1;
    int r;

    r = supervisors_connect(&n->supervisors, id, by, ret, err);
    if (r < 0)
        return r;
    ret->disk_held = dir_open(n->sandboxes, id, &dir, NULL) >= 0 && disk_is_held(n->quota, dir);
    return 0;
}

/* Killed processes leave their cgroups a little later, so this tries again until the deadline. */
static int run_sweep_cgroups(struct native_engine *n, const char *id, const struct deadline *by,
                             struct err *err)
{
    const struct timespec pause = {.tv_nsec = 2000000};

    for (;;) {
        _cleanup_err_ struct err why = ERR_INIT;

        if (native_cgroups_sweep(&n->cgroups, id, &why) >= 0)
            return 0;
        if (deadline_passed(by))
            return err_move(err, &why);
        nanosleep(&pause, NULL);
    }
}

/* For a sandbox that does not start again: empty cgroups can wait for the reaper. */
static int run_queue_cgroups(struct native_engine *n, const char *id, const struct deadline *by,
                             struct err *err)
{
    if (!native_cgroups_are_rest(&n->cgroups, id))
        return run_sweep_cgroups(n, id, by, err);
    cgroup_reaper_add(n->cgroup_reaper, id);
    return 0;
}

void native_tidy_network(struct native_engine *n, const struct deadline *by)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (network_tidy(&n->net, by, &err) < 0)
        log_debug("network: %s", err.msg);
}

/* Removes the cgroups of a run. */
typedef int (*run_cgroups_fn)(struct native_engine *n, const char *id, const struct deadline *by,
                              struct err *err);

static int run_end_parts(struct native_engine *n, const char *id, const struct deadline *by,
                         run_cgroups_fn cgroups, struct err *err)
{
    bool old = cache_base_is_old(&n->base, n->runs, id);
    int r = supervisors_end(&n->supervisors, id, by, err);

    if (r < 0)
        return r;
    r = native_confined_await(n, id, by, err);
    if (r < 0)
        return r;
    r = cgroups(n, id, by, err);
    if (r < 0)
        return r;
    r = delete_queue_add(n->delete_queue, n->runs, id, err);
    if (r < 0)
        return r;
    if (old)
        cache_base_sweep(&n->base, n->runs);
    return 0;
}

static int run_end(struct native_engine *n, const char *id, const struct deadline *by,
                   run_cgroups_fn cgroups, struct err *err)
{
    int r = run_end_parts(n, id, by, cgroups, err);

    native_tidy_network(n, by);
    return r < 0 ? err_wrap(err, "clean up sandbox '%s'", id) : 0;
}

int native_cleanup(struct engine *e, const char *id, const struct deadline *by, struct err *err)
{
    return run_end(native_of(e), id, by, run_sweep_cgroups, err);
}

int native_end(struct native_engine *n, const char *id, const struct deadline *by, struct err *err)
{
    return run_end(n, id, by, run_queue_cgroups, err);
}
