/*
 * The start of a sandbox: writes a plan, leases ids and gives both to a prewarmed shim, which
 * builds the sandbox and answers READY or FAILED. The daemon has threads, so it never forks,
 * unshares or sets namespaces itself.
 *
 * The latency of this path is measured: no fsync, and nothing that could be done at open.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/engine/caches.h"
#include "daemon/engine/handshake.h"
#include "daemon/engine/mounts.h"
#include "daemon/engine/native/cgroup-reaper.h"
#include "daemon/engine/native/confined.h"
#include "daemon/engine/native/disk.h"
#include "daemon/engine/native/image.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/native/prewarmed.h"
#include "daemon/engine/native/tool-caches.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/logout.h"
#include "lib/os/quota.h"
#include "proto/plan.h"
#include "proto/supervisor.h"

#define UNDO_TIMEOUT (10 * USEC_PER_SEC)

struct native_launch {
    struct native_engine *n;
    const struct sandbox_request *req;
    const struct native_step *step; /* a step of a build, or NULL */
    int control;                    /* our end of the shim's socket */
    int plan, lease, log, run;
    int listener;    /* of a confined sandbox's package cache, or -1 */
    char **warnings; /* features that are missing here: owned */
    uint32_t id_base;
    bool disk_held;
};

static void native_launch_done(struct native_launch *l)
{
    fd_close(l->control);
    fd_close(l->plan);
    fd_close(l->lease);
    fd_close(l->log);
    fd_close(l->run);
    fd_close(l->listener);
    strv_free(l->warnings);
}

/* ---- the plan ---- */

/* Without ranges of ids there is no id map, and files in a mount belong to the daemon's user. */
static void native_launch_note_squash(struct native_launch *l, const struct plan_mount *m,
                                      const struct mount_source *src)
{
    if (!l->n->ranges || m->read_only || m->no_root_squash || !mount_source_is_root_only(src))
        return;
    strv_push(&l->warnings,
              xasprintf("mount '%s': the sandbox cannot write to it, because it belongs to root "
                        "(run 'chown USER %s' with an ordinary user, or add ':no_root_squash')",
                        m->source, m->source));
}

static int native_launch_fill_mounts(struct native_launch *l, struct plan *p, struct err *err)
{
    const struct sandbox_spec *spec = &l->req->spec;
    _cleanup_free_ struct mount_source *sources = NULL;
    int r;

    if (spec->n_mounts == 0)
        return 0;
    sources = xcalloc(spec->n_mounts, sizeof(*sources));
    r = native_check_mounts(l->n, spec, sources, err);
    if (r < 0)
        return r;
    p->mounts = xcalloc(spec->n_mounts, sizeof(*p->mounts));
    for (; p->n_mounts < spec->n_mounts; p->n_mounts++) {
        const struct spec_mount *m = &spec->mounts[p->n_mounts];

        p->mounts[p->n_mounts] = (struct plan_mount){.source = xstrdup(m->source),
                                                     .target = xstrdup(m->target),
                                                     .read_only = m->read_only,
                                                     .no_root_squash = m->no_root_squash,
                                                     .dev = sources[p->n_mounts].dev,
                                                     .ino = sources[p->n_mounts].ino};
        native_launch_note_squash(l, &p->mounts[p->n_mounts], &sources[p->n_mounts]);
    }
    return 0;
}

static void native_launch_fill_limits(struct plan *p, const struct sandbox_spec *spec)
{
    p->memory = spec->memory;
    p->cpu_milli = spec->cpu_milli;
    p->pids = spec->pids;
    p->nofile = spec->nofile;
    p->required = spec->asked;
    p->tmp_size = spec->tmp_size;
    p->run_size = spec->run_size;
    p->scratch_size = spec->scratch_size;
}

static void native_launch_fill_names(struct plan *p, const struct native_launch *l)
{
    const struct native_engine *n = l->n;
    const char *id = l->req->id;

    p->sandbox_id = xstrdup(id);
    p->root_id = xstrdup(n->root_id);
    p->name = xstrdup(l->req->name);
    p->hash = xstrdup(l->req->hash);
    p->run_dir = xasprintf("%s/sandboxes/%s", n->run_dir, id);
    p->data_dir = xasprintf("%s/sandboxes/%s", n->state_dir, id);
    p->exec_dir = xasprintf("%s/%s", n->engine.exec_root, id);
    p->cgroup_parent = n->cgroups.place.parent ? xstrdup(n->cgroups.place.parent) : NULL;
}

/* Without a project quota or an image, the budget of a sandbox is only watched. */
static int native_launch_limit_disk(struct native_launch *l, struct plan *p, struct err *err)
{
    const struct native_engine *n = l->n;
    uint64_t size = l->req->spec.disk ? l->req->spec.disk : n->disk_budget;
    const struct disk_usage most = {size, disk_files(size)};
    _cleanup_close_ int dir = -1;
    int r;

    r = dir_open(n->sandboxes, l->req->id, &dir, err);
    if (r < 0)
        return r;
    l->disk_held = disk_is_held(n->quota, dir);
    p->disk_quota = l->disk_held && quota_assigned(dir);
    if (p->disk_quota)
        return quota_limit(dir, &most, err);
    if (sandbox_spec_is_confined(&l->req->spec))
        return 0;
    if (l->disk_held || l->req->spec.disk) /* the shim says if the image is missing */
        p->disk_image = xasprintf("%s/" DISK_IMAGE, p->data_dir);
    return 0;
}

/* The id lease determines the addresses: no two sandboxes of the machine have the same. */
static void native_launch_fill_network(struct plan *p, const struct native_launch *l)
{
    static const enum plan_network modes[] = {
        [SPEC_NETWORK_NONE] = PLAN_NETWORK_NONE,
        [SPEC_NETWORK_PACKAGES] = PLAN_NETWORK_PACKAGES,
        [SPEC_NETWORK_OPEN] = PLAN_NETWORK_OPEN,
    };
    _cleanup_strv_ char **resolvers = NULL;
    uint32_t lease = (l->id_base - IDS_FIRST) / IDS_COUNT;
    char ifname[NETWORK_IFNAME_MAX];

    p->network = modes[l->req->spec.network];
    if (p->network != PLAN_NETWORK_OPEN)
        return;
    resolvers = network_resolvers();
    network_ifname(l->n->root_id, lease, ifname);
    p->net_ifname = xstrdup(ifname);
    p->net_host = network_host_address(lease);
    p->net_sandbox = network_sandbox_address(lease);
    p->net_mtu = network_mtu();
    p->resolv_conf = network_resolv_conf(resolvers);
}

/* The mounts of a build's step are folders of ours, below a state folder that only we may enter. */
static void native_launch_fill_filter(const struct native_launch *l, struct plan *p)
{
    bool host = !l->step && (sandbox_spec_writes_to_host(&l->req->spec) ||
                             sandbox_spec_is_confined(&l->req->spec));
    size_t v = host ? SECCOMP_NO_SET_ID : SECCOMP_SET_ID;

    p->seccomp = xmemdup(l->n->filters[v].code, l->n->filters[v].bytes);
    p->seccomp_len = l->n->filters[v].bytes;
}

/* Fills layers, mounts and user of a build's step; its variables go with the command. */
static void native_launch_fill_step(const struct native_launch *l, struct plan *p)
{
    const struct native_step *s = l->step;

    p->image = s->on_host ? PLAN_IMAGE_HOST : PLAN_IMAGE_ROOTFS;
    p->bare = true;
    p->lower_dir = xstrdup(s->lower_dir);
    p->n_layers = strv_len(s->layers);
    p->layers = p->n_layers ? strv_copy(s->layers) : NULL;
    p->user = xstrdup(l->req->spec.user);
    p->workdir = xstrdup("/");
    p->mounts = xcalloc(s->n_mounts + 1, sizeof(*p->mounts));
    for (; p->n_mounts < s->n_mounts; p->n_mounts++) {
        const struct spec_mount *m = &s->mounts[p->n_mounts];

        p->mounts[p->n_mounts] = (struct plan_mount){.source = xstrdup(m->source),
                                                     .target = xstrdup(m->target),
                                                     .read_only = m->read_only,
                                                     .ours = true};
    }
}

/* Throw-away sandboxes have a client that waits for them, in a session. */
static void native_launch_note_logout(struct native_launch *l)
{
    if (!l->req->ephemeral && !l->step && logout_ends_us())
        strv_push(&l->warnings,
                  xasprintf("its processes end when this user logs out (run 'loginctl "
                            "enable-linger' to keep them; files stay in any case)"));
}

/* Image, caches, ids and variables of a sandbox with namespaces, or of a build's step. */
static int native_launch_fill_inside(struct native_launch *l, struct plan *p, struct err *err)
{
    const struct sandbox_spec *spec = &l->req->spec;
    _cleanup_strv_ char **variables = packages_variables(spec, PLAN_PACKAGES_PORT);
    int r;

    if (l->step) {
        native_launch_fill_step(l, p);
    } else {
        r = native_image_plan(l->n, l->req, p, &variables, err);
        if (r < 0)
            return r;
        r = tool_caches_plan(l->n, l->req, l->run, p, &variables, &l->warnings, err);
        if (r < 0)
            return r;
    }
    p->id_base = l->id_base;
    p->sub_uid = l->n->subids.uid;
    p->sub_gid = l->n->subids.gid;
    p->env = l->step ? strv_copy(variables) : spec_environment(p->user, spec->env, variables);
    return 0;
}

static int native_launch_fill_confined(struct native_launch *l, struct plan *p, struct err *err)
{
    struct native_confined_fds fds = {-1, -1};
    int r = native_confined_plan(l->n, l->req, p, &fds, &l->warnings, err);

    l->lease = fds.lease;
    l->listener = fds.listener;
    return r;
}

static int native_launch_make_plan(struct native_launch *l, struct err *err)
{
    const struct sandbox_spec *spec = &l->req->spec;
    _cleanup_(plan_done) struct plan p = PLAN_INIT;
    int r;

    native_launch_fill_names(&p, l);
    native_launch_fill_limits(&p, spec);
    r = l->step ? 0 : native_launch_limit_disk(l, &p, err);
    if (r < 0)
        return r;
    r = sandbox_spec_is_confined(spec) ? native_launch_fill_confined(l, &p, err)
                                       : native_launch_fill_inside(l, &p, err);
    if (r < 0)
        return r;
    p.journal_budget = l->n->journal_budget;
    p.ephemeral = l->req->ephemeral;
    p.strict = spec->isolation == SPEC_ISOLATION_STRICT;
    p.may_confine = !l->step && native_confined_is_choice(l->n, spec);
    native_launch_fill_filter(l, &p);
    native_launch_fill_network(&p, l);
    r = l->step ? 0 : native_launch_fill_mounts(l, &p, err);
    if (r < 0)
        return r;
    native_launch_note_logout(l);
    return plan_write(&p, &l->plan, err);
}

static int native_launch_lease_ids(struct native_launch *l, struct err *err)
{
    int r;

    if (!l->n->ranges || sandbox_spec_is_confined(&l->req->spec))
        return 0;
    pthread_mutex_lock(&l->n->lock);
    r = ids_lease(&l->n->ids, &l->id_base, &l->lease, err);
    pthread_mutex_unlock(&l->n->lock);
    return r;
}

/* Makes the folder of this run, after removing what a dead run left. */
static int native_launch_make_run_folder(struct native_launch *l, const struct deadline *by,
                                         struct err *err)
{
    const char *id = l->req->id;
    int r;

    cgroup_reaper_reclaim(l->n->cgroup_reaper, id);
    r = prewarmed_folder(l->n->prewarmed, PREWARMED_RUN, l->n->runs, id);
    if (r == -EEXIST) {
        r = native_cleanup(&l->n->engine, id, by, err);
        if (r < 0)
            return r;
        r = prewarmed_folder(l->n->prewarmed, PREWARMED_RUN, l->n->runs, id);
    }
    if (r < 0)
        return err_sys(err, -r, "make run folder of sandbox '%s'", id);
    r = dir_open(l->n->runs, id, &l->run, err);
    if (r < 0)
        return r;
    if (symlinkat(l->n->lower, l->run, "lower") < 0)
        return err_sys(err, errno, "record the image of sandbox '%s'", id);
    l->log = openat(l->run, "shim.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return l->log < 0 ? err_sys(err, errno, "make the log of sandbox '%s'", id) : 0;
}

static int native_launch_start_shim(struct native_launch *l, struct err *err)
{
    const int lease = l->lease < 0 && l->listener >= 0 ? l->n->devnull : l->lease;
    const int fds[PLAN_FDS] = {l->plan, l->log, lease, l->listener};
    struct prewarmed_shim shim;
    size_t n_fds = PLAN_FD_LEASE;
    int r;

    while (n_fds < PLAN_FDS && fds[n_fds] >= 0)
        n_fds++;
    r = prewarmed_shim(l->n->prewarmed, fds, n_fds, &shim, err);
    if (r < 0)
        return r;
    l->control = shim.control;
    supervisors_add(&l->n->supervisors, l->req->id, shim.pid);
    return 0;
}

/* ---- the whole start ---- */

/* Adds the text of the shim's log to the error, when the shim ended without a message. */
static void native_launch_add_log(const struct native_launch *l, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/shim.log", l->req->id);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    char *line;

    if (file_read(l->n->runs, path, KIB(64), &text, &len, NULL) < 0 || len == 0)
        return;
    if (text[len - 1] == '\n')
        text[len - 1] = '\0';
    line = strrchr(text, '\n');
    err_wrap(err, "%.200s", line ? line + 1 : text);
}

static int native_launch_run(struct native_launch *l, const struct deadline *by,
                             struct engine_sandbox *sandbox, struct err *err)
{
    int r;

    r = native_launch_make_run_folder(l, by, err);
    if (r < 0)
        return r;
    r = native_launch_lease_ids(l, err);
    if (r < 0)
        return r;
    if (l->req->spec.network == SPEC_NETWORK_OPEN)
        r = network_ensure(&l->n->net, l->req->id, by, err);
    if (r < 0)
        return r;
    r = native_launch_make_plan(l, err);
    if (r < 0)
        return r;
    r = native_launch_start_shim(l, err);
    if (r < 0)
        return r;
    r = handshake_start(l->control, l->req, by, sandbox, err);
    if (r == -ERR_ENGINE)
        native_launch_add_log(l, err);
    return r;
}

/* A sandbox whose supervisor answers must not get a second one. */
static int native_launch_check_not_running(struct engine *e, const char *id,
                                           const struct deadline *by, struct err *err)
{
    struct native_engine *n = native_of(e);
    _cleanup_err_ struct err why = ERR_INIT;
    struct engine_sandbox sandbox;
    struct stat st;
    int r;

    if (fstatat(n->runs, id, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    r = native_connect(e, id, by, &sandbox, &why);
    if (r == -ERR_UNSUPPORTED) /* alive, and perhaps with execs: the user has to stop it */
        return err_move(err, &why);
    if (r < 0)
        return 0;
    fd_close(sandbox.supervisor_fd);
    return err_set(err, ERR_CONFLICT, "sandbox '%s' is running", id);
}

int native_start(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                 struct engine_sandbox *ret, struct err *err)
{
    return native_start_step(e, req, NULL, by, ret, err);
}

int native_start_step(struct engine *e, const struct sandbox_request *req,
                      const struct native_step *step, const struct deadline *by,
                      struct engine_sandbox *ret, struct err *err)
{
    _cleanup_(native_launch_done) struct native_launch l = {.n = native_of(e),
                                                            .req = req,
                                                            .step = step,
                                                            .control = -1,
                                                            .plan = -1,
                                                            .lease = -1,
                                                            .log = -1,
                                                            .run = -1,
                                                            .listener = -1};
    struct engine_sandbox sandbox = {.supervisor_fd = -1};
    int r;

    r = native_launch_check_not_running(e, req->id, by, err);
    if (r < 0)
        return r;
    r = native_launch_run(&l, by, &sandbox, err);
    if (r < 0) {
        _cleanup_err_ struct err undo = ERR_INIT;
        struct deadline until = deadline_in(UNDO_TIMEOUT);

        if (native_cleanup(e, req->id, &until, &undo) < 0)
            log_debug("sandbox %s: cannot undo a failed start: %s", req->id, undo.msg);
        return err_wrap(err, "start sandbox '%s'", req->name);
    }
    memcpy(sandbox.id, req->id, sizeof(sandbox.id));
    memcpy(sandbox.hash, req->hash, sizeof(sandbox.hash));
    sandbox.supervisor_fd = TAKE_FD(l.control);
    sandbox.warnings = TAKE_PTR(l.warnings);
    sandbox.disk_held = l.disk_held;
    *ret = sandbox;
    return 0;
}
