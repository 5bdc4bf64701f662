/*
 * A run of a sandbox: starts the container and its relay, and cleans up after the run, so that only
 * the container is left. The order at a start is: clean up after a dead run, start the container,
 * start the relay. After a crash at any point, the next start or `cleanup` finds the rest by name.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/engine/caches.h"
#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/guest-program.h"
#include "daemon/engine/docker/layers.h"
#include "daemon/engine/docker/recreate.h"
#include "daemon/engine/handshake.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/process.h"
#include "lib/os/rmtree.h"
#include "proto/plan.h"
#include "proto/relay-plan.h"
#include "proto/supervisor.h"

enum { LOG_TAIL_MAX = 64 << 10, START_TRIES = 100, UNMOUNT_EVERY = 10 };
/* gVisor has some 40 threads and 20 MiB before the first command. */
enum { OWN_KERNEL_PIDS = 100, OWN_KERNEL_MIB = 128 };

#define UNDO_TIMEOUT (20 * USEC_PER_SEC)
#define RELAY_LOG "relay.log"

struct docker_launch {
    struct docker_engine *d;
    const struct sandbox_request *req;
    char *container;
    json_t *doc; /* the container's inspection */
    int control; /* our end of the relay's socket */
    int plan, log;
};

static void docker_launch_done(struct docker_launch *l)
{
    fd_close(l->control);
    fd_close(l->plan);
    fd_close(l->log);
    free(l->container);
    json_decref(l->doc);
}

static const json_t *docker_launch_labels_of(const struct docker_launch *l)
{
    return json_object_get(json_object_get(l->doc, "Config"), "Labels");
}

/* ---- the environment of the commands ---- */

/* Variables that Podman adds to every container; they do not come from the image. */
static bool docker_launch_is_from_podman(const char *pair)
{
    static const char *const keys[] = {"TERM=", "container=", "HOME=", "HOSTNAME="};

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (strncmp(pair, keys[i], strlen(keys[i])) == 0)
            return true;
    return false;
}

/* Whether a volume is mounted at `target`, or (with `above`) at one of its parents. */
static bool docker_launch_is_mounted(const struct docker_launch *l, const char *target, bool above)
{
    const json_t *m;
    size_t i;

    json_array_foreach (json_object_get(l->doc, "Mounts"), i, m) {
        const char *at = docker_text(m, "Destination");
        size_t len = strlen(at);

        if (STREQ(at, target) ||
            (above && len > 1 && strncmp(target, at, len) == 0 && target[len] == '/'))
            return true;
    }
    return false;
}

/* Variables are set only for caches that are mounted: a tool fails if its cache is missing. */
static bool docker_launch_has_cache(const void *arg, const struct cache_tool *t,
                                    enum spec_cache_mode mode)
{
    return docker_launch_is_mounted(arg, t->target, mode != CACHE_SHARED);
}

static bool docker_launch_has_packages_listener(const struct docker_launch *l)
{
    return l->req->spec.network == SPEC_NETWORK_PACKAGES;
}

static bool docker_launch_has_plain_runtime(const struct docker_launch *l)
{
    const char *runtime = l->req->spec.runtime;

    return runtime ? docker_runtime_is_plain(runtime) : l->d->plain;
}

/* Whether a socket in the container's network namespace is on the loopback that its commands
 * see. */
static bool docker_launch_is_near(const struct docker_launch *l)
{
    return l->d->near && docker_launch_has_plain_runtime(l);
}

static char **docker_launch_environment(const struct docker_launch *l)
{
    const json_t *image = json_object_get(json_object_get(l->doc, "Config"), "Env"), *v;
    bool podman = docker_client(l->d)->flavour == DOCKER_FLAVOUR_PODMAN;
    _cleanup_strv_ char **more = NULL, **packages = NULL;
    size_t i;

    json_array_foreach (image, i, v) {
        const char *pair = json_string_value(v);

        if (pair && !(podman && docker_launch_is_from_podman(pair)))
            strv_add(&more, pair);
    }
    cache_variables(&l->req->spec, docker_launch_has_cache, l, &more);
    if (docker_launch_has_packages_listener(l))
        packages = packages_variables(&l->req->spec, PLAN_PACKAGES_PORT);
    for (char **pair = packages; pair && *pair; pair++)
        strv_add(&more, *pair);
    return spec_environment(l->req->spec.user, l->req->spec.env, more);
}

/* ---- the relay ---- */

static int docker_launch_make_plan(struct docker_launch *l, struct err *err)
{
    struct docker_engine *d = l->d;
    const struct sandbox_request *req = l->req;
    struct relay_plan p = RELAY_PLAN_INIT;
    int r;

    p.sandbox_id = xstrdup(req->id);
    p.name = xstrdup(req->name);
    p.hash = xstrdup(docker_text(docker_launch_labels_of(l), LABEL_HASH));
    p.endpoint = docker_endpoint_text(&docker_client(d)->endpoint);
    p.container = xstrdup(l->container);
    p.run_dir = xasprintf("%s/docker/%s", d->run_dir, req->id);
    p.exec_dir = xasprintf("%s/%s", d->engine.exec_root, req->id);
    p.user = xstrdup(req->spec.user);
    p.workdir = xstrdup(req->spec.workdir);
    p.env = docker_launch_environment(l);
    p.memory = d->engine.caps & ENGINE_CAP_MEMORY_LIMIT ? req->spec.memory : 0;
    p.pids = d->engine.caps & ENGINE_CAP_PIDS_LIMIT ? req->spec.pids : 0;
    p.packages_port = docker_launch_has_packages_listener(l) ? PLAN_PACKAGES_PORT : 0;
    p.packages_inside = !docker_launch_is_near(l);
    p.own_kernel = !docker_launch_has_plain_runtime(l);
    p.journal_budget = d->journal_budget;
    p.ephemeral = req->ephemeral;
    r = relay_plan_write(&p, &l->plan, err);
    relay_plan_done(&p);
    return r;
}

static int docker_launch_spawn_relay(struct docker_launch *l, struct err *err)
{
    bool local = docker_client(l->d)->endpoint.transport == DOCKER_UNIX;
    _cleanup_free_ char *path =
        xasprintf("%s/ripcord-relay%s", l->d->libexec_dir, local ? "" : "-net");
    const char *const argv[] = {"ripcord-relay", l->req->id, NULL};
    int pair[2], r;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "create a socket pair");
    l->control = pair[0];
    r = process_start(&(const struct process_spec){.path = path,
                                                   .argv = argv,
                                                   .fds = {{l->d->devnull, STDIN_FILENO},
                                                           {l->d->devnull, STDOUT_FILENO},
                                                           {l->log, STDERR_FILENO},
                                                           {pair[1], SUP_FD_CONTROL},
                                                           {l->plan, SUP_FD_PLAN}},
                                                   .n_fds = 5},
                      &pid);
    fd_close(pair[1]); /* else the end of the relay would go unnoticed */
    if (r != 0) {
        err_sys(err, r, "start ripcord-relay");
        return err_hint(
            err, "Install ripcord again: ripcord-relay must be in the same folder as ripcordd.");
    }
    supervisors_add(&l->d->supervisors, l->req->id, pid);
    return 0;
}

/* Adds the last line of the relay's log, if the relay ended without reporting an error. */
static void docker_launch_add_log_line(const struct docker_launch *l, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/" RELAY_LOG, l->req->id), *text = NULL;
    size_t len = 0;
    char *line;

    if (file_read(l->d->runs, path, LOG_TAIL_MAX, &text, &len, NULL) < 0 || len == 0)
        return;
    if (text[len - 1] == '\n')
        text[len - 1] = '\0';
    line = strrchr(text, '\n');
    err_wrap(err, "%.200s", line ? line + 1 : text);
}

static int docker_launch_start_relay(struct docker_launch *l, const struct deadline *by,
                                     struct engine_sandbox *sandbox, struct err *err)
{
    int r;

    r = docker_launch_make_plan(l, err);
    if (r < 0)
        return r;
    r = docker_launch_spawn_relay(l, err);
    if (r < 0)
        return r;
    r = handshake_start(l->control, l->req, by, sandbox, err);
    if (r == -ERR_ENGINE)
        docker_launch_add_log_line(l, err);
    return r;
}

/* ---- the container's run ---- */

static int docker_launch_post(struct docker_engine *d, const char *container, const char *verb,
                              const struct deadline *by, struct docker_reply *ret, struct err *err)
{
    _cleanup_free_ char *head = docker_path("/containers/%s", container);
    _cleanup_free_ char *path = xasprintf("%s/%s", head, verb);

    return docker_ask(d, "POST", path, NULL, by, ret, err);
}

/* Kills the container: the relay has already asked its processes to end. A paused container is
 * resumed first, because Podman cannot kill it otherwise. */
static int docker_launch_end_container(struct docker_engine *d, const char *container,
                                       const struct deadline *by, struct err *err)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT, again = DOCKER_REPLY_INIT;
    _cleanup_err_ struct err why = ERR_INIT, second = ERR_INIT;

    if (docker_launch_post(d, container, "stop?t=0", by, &reply, &why) >= 0)
        return 0;
    switch ((int)reply.reason) {
    case DOCKER_NO_CONTAINER:
    case DOCKER_NOT_RUNNING:
    case DOCKER_REMOVING:
        return 0;
    case DOCKER_PAUSED:
    case DOCKER_BAD_STATE:
        docker_launch_post(d, container, "unpause", by, NULL, NULL);
        if (docker_launch_post(d, container, "stop?t=0", by, &again, &second) >= 0 ||
            again.reason == DOCKER_NO_CONTAINER || again.reason == DOCKER_NOT_RUNNING)
            return 0;
        return err_move(err, &second);
    default:
        return err_move(err, &why);
    }
}

static int docker_launch_inspect_container(struct docker_launch *l, const struct deadline *by,
                                           struct err *err)
{
    int r = container_find(l->d, l->req->id, by, &l->container, err);

    return r < 0 ? r : container_inspect(l->d, l->container, by, &l->doc, err);
}

/* Finds the sandbox's container. If it is missing or has another spec, it is created again. */
static int docker_launch_find_container(struct docker_launch *l, const struct deadline *by,
                                        struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    r = docker_launch_inspect_container(l, by, &why);
    if (r < 0 && r != -ERR_NOT_FOUND)
        return err_move(err, &why);
    if (r < 0 || !STREQ(docker_text(docker_launch_labels_of(l), LABEL_HASH), l->req->hash)) {
        container_forget(l->d, l->req->id);
        free(TAKE_PTR(l->container));
        json_decref(TAKE_PTR(l->doc));
        r = docker_create(&l->d->engine, l->req, by, err);
        if (r < 0)
            return r;
        r = docker_launch_inspect_container(l, by, err);
        if (r < 0)
            return r;
    }
    if (json_is_true(json_object_get(json_object_get(l->doc, "State"), "Running"))) {
        /* It belongs to a run that has lost its relay. */
        r = docker_launch_end_container(l->d, l->container, by, err);
        if (r < 0)
            return r;
    }
    return guest_program_renew(l->d, l->req, l->container, by, err);
}

/* Somebody has removed the container's network: it is connected to the present one. */
static int docker_launch_replace_network(struct docker_launch *l, const struct deadline *by,
                                         struct err *err)
{
    const json_t *nets = json_object_get(json_object_get(l->doc, "NetworkSettings"), "Networks");
    _cleanup_json_ json_t *leave = NULL, *join = NULL;
    _cleanup_free_ char *id = NULL, *from = NULL, *to = NULL, *name = NULL;
    void *it = json_object_iter((json_t *)nets);
    int r;

    name = xasprintf("%s-net", l->d->prefix);
    ensured_forget(&l->d->ensured, "network", name);
    r = ensure_network(l->d, by, &id, err);
    if (r < 0)
        return r;
    leave = json_pack("{s:s, s:b}", "Container", l->container, "Force", 1);
    join = json_pack("{s:s}", "Container", l->container);
    from = docker_path("/networks/%s/disconnect", it ? json_object_iter_key(it) : name);
    to = docker_path("/networks/%s/connect", id);
    docker_ask(l->d, "POST", from, leave, by, NULL,
               NULL); /* fails if the old network is gone entirely */
    return docker_ask(l->d, "POST", to, join, by, NULL, err);
}

/* When two processes unmount a container at once, Podman may lose count and believe that it is
 * still mounted. Another unmount corrects that. */
static void docker_launch_unmount(const struct docker_launch *l, const struct deadline *by)
{
    _cleanup_free_ char *path = docker_path("/libpod/containers/%s/unmount", l->container);

    if (docker_client(l->d)->flavour == DOCKER_FLAVOUR_PODMAN)
        docker_ask(l->d, "POST", path, NULL, by, NULL, NULL);
}

/* *ret is the reason of a failure. */
static int docker_launch_post_start(const struct docker_launch *l, const struct deadline *by,
                                    enum docker_reason *ret, struct err *err)
{
    for (int tries = START_TRIES;; tries--) {
        _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
        _cleanup_err_ struct err why = ERR_INIT;
        int r = docker_launch_post(l->d, l->container, "start", by, &reply, &why);

        *ret = reply.reason;
        if (r >= 0)
            return 0;
        /* Both errors pass after a moment. NETWORK_AMBIGUOUS: another daemon has just created the
         * network too, and Docker looks it up by name, not by id, until the duplicate is removed.
         */
        if ((*ret != DOCKER_BUSY && *ret != DOCKER_NETWORK_AMBIGUOUS) || tries <= 1 ||
            deadline_passed(by))
            return err_move(err, &why);
        if (*ret == DOCKER_BUSY && tries % UNMOUNT_EVERY == 0)
            docker_launch_unmount(l, by);
        container_nap();
    }
}

static int docker_launch_start_container(struct docker_launch *l, const struct deadline *by,
                                         struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    enum docker_reason reason;
    int r;

    if (docker_launch_post_start(l, by, &reason, &why) >= 0)
        return 0;
    if (reason != DOCKER_NO_NETWORK || l->req->spec.network != SPEC_NETWORK_OPEN)
        return err_move(err, &why);
    r = docker_launch_replace_network(l, by, err);
    if (r < 0)
        return r;
    return docker_launch_post_start(l, by, &reason, err);
}

static int docker_launch_make_run_folder(struct docker_launch *l, const struct deadline *by,
                                         struct err *err)
{
    _cleanup_free_ char *log = xasprintf("%s/" RELAY_LOG, l->req->id);
    int r;

    r = supervisors_end(&l->d->supervisors, l->req->id, by, err);
    if (r < 0)
        return r;
    r = rmtree(l->d->runs, l->req->id, err);
    if (r < 0)
        return r;
    if (mkdirat(l->d->runs, l->req->id, 0700) < 0)
        return err_sys(err, errno, "create the run folder of sandbox '%s'", l->req->id);
    l->log = openat(l->d->runs, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return l->log < 0 ? err_sys(err, errno, "create the relay log of sandbox '%s'", l->req->id) : 0;
}

/* gVisor then fails in many places, with as many errors, and none of them names a limit. */
static int docker_launch_explain_limits(const struct docker_launch *l, struct err *err)
{
    const struct sandbox_spec *s = &l->req->spec;

    if (docker_launch_has_plain_runtime(l) ||
        (s->pids >= OWN_KERNEL_PIDS && s->memory >= MIB(OWN_KERNEL_MIB)))
        return -(int)err->code;
    return err_hint(err,
                    "The kernel of runtime '%s' counts against the limits of the sandbox, with all "
                    "of its threads. Use at least --memory %dM and --pids %d.",
                    s->runtime ? s->runtime : "default", OWN_KERNEL_MIB, OWN_KERNEL_PIDS);
}

static int docker_launch_run(struct docker_launch *l, const struct deadline *by,
                             struct engine_sandbox *sandbox, struct err *err)
{
    int r;

    r = layers_renew(l->d, l->req, by, err);
    if (r < 0)
        return r;
    r = docker_launch_make_run_folder(l, by, err);
    if (r < 0)
        return r;
    r = docker_launch_find_container(l, by, err);
    if (r < 0)
        return r;
    r = docker_launch_start_container(l, by, err);
    if (r < 0)
        return docker_launch_explain_limits(l, err);
    return docker_launch_start_relay(l, by, sandbox, err);
}

/* A sandbox whose supervisor answers must not get a second one. */
static int docker_launch_check_not_running(struct docker_engine *d, const char *id,
                                           const struct deadline *by, struct err *err)
{
    _cleanup_err_ struct err none = ERR_INIT;
    struct engine_sandbox sandbox;

    if (supervisors_connect(&d->supervisors, id, by, &sandbox, &none) < 0)
        return 0;
    fd_close(sandbox.supervisor_fd);
    return err_set(err, ERR_CONFLICT, "sandbox '%s' is already running", id);
}

int docker_start(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                 struct engine_sandbox *ret, struct err *err)
{
    struct docker_engine *d = docker_of(e);
    _cleanup_(docker_launch_done) struct docker_launch l = {
        .d = d, .req = req, .control = -1, .plan = -1, .log = -1};
    struct engine_sandbox sandbox = {.supervisor_fd = -1};
    int r;

    r = docker_launch_check_not_running(d, req->id, by, err);
    if (r < 0)
        return r;
    if (docker_launch_run(&l, by, &sandbox, err) < 0) {
        struct deadline until = deadline_in(UNDO_TIMEOUT);

        docker_cleanup(e, req->id, &until, NULL);
        return err_wrap(err, "start sandbox '%s'", req->name);
    }
    memcpy(sandbox.id, req->id, sizeof(sandbox.id));
    snprintf(sandbox.hash, sizeof(sandbox.hash), "%s",
             docker_text(docker_launch_labels_of(&l), LABEL_HASH));
    if (*docker_text(docker_launch_labels_of(&l), LABEL_WITHOUT)) { /* created without caches */
        struct deadline soon = deadline_in(d->timeout);
        struct engine_sandbox seen = {0};

        docker_look(e, req->id, &soon, &seen, NULL);
        sandbox.warnings = seen.warnings;
    }
    sandbox.supervisor_fd = TAKE_FD(l.control);
    *ret = sandbox;
    return 0;
}

/* ---- the end ---- */

int docker_cleanup(struct engine *e, const char *id, const struct deadline *by, struct err *err)
{
    struct docker_engine *d = docker_of(e);
    _cleanup_free_ char *container = NULL;
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    r = supervisors_end(&d->supervisors, id, by, err);
    if (r < 0)
        return err_wrap(err, "clean up sandbox '%s'", id);
    r = container_find(d, id, by, &container, &why);
    if (r == 0)
        r = docker_launch_end_container(d, container, by, &why);
    if (r < 0 && r != -ERR_NOT_FOUND) {
        err_move(err, &why);
        return err_wrap(err, "clean up sandbox '%s'", id);
    }
    return rmtree(d->runs, id, err);
}

/* Finds the volumes by label, so that it works without the sandbox's name and container. */
static int docker_launch_remove_volumes(struct docker_engine *d, const char *id,
                                        const struct deadline *by, struct err *err)
{
    _cleanup_json_ json_t *filters =
        json_pack("{s:[o]}", "label", json_sprintf(LABEL_ID "=%s", id));
    _cleanup_free_ char *text = json_to_text(filters, true);
    _cleanup_free_ char *list = docker_path("/volumes?filters=%s", text);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    const json_t *v;
    size_t i;
    int r;

    r = docker_ask(d, "GET", list, NULL, by, &reply, err);
    if (r < 0)
        return r;
    json_array_foreach (json_object_get(reply.json, "Volumes"), i, v) {
        _cleanup_free_ char *path = docker_path("/volumes/%s?force=1", docker_text(v, "Name"));

        if (!docker_owns(d, id, json_object_get(v, "Labels")))
            continue;
        r = docker_ask(d, "DELETE", path, NULL, by, NULL, err);
        if (r < 0)
            return err_wrap(err, "volume '%s'", docker_text(v, "Name"));
    }
    return 0;
}

/* Ends the relay and removes the container. ERR_NOT_FOUND: there is no container. */
static int docker_launch_remove_container(struct docker_engine *d, const char *id,
                                          const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *container = NULL;
    int r;

    r = docker_folders(d, err);
    if (r < 0)
        return r;
    r = supervisors_end(&d->supervisors, id, by, err);
    if (r < 0)
        return r;
    r = container_find(d, id, by, &container, err);
    if (r < 0)
        return r;
    return container_remove(d, container, by, err);
}

static int docker_launch_remove(struct docker_engine *d, const char *id, const struct deadline *by,
                                struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    r = docker_launch_remove_container(d, id, by, &why);
    if (r < 0 && r != -ERR_NOT_FOUND)
        return err_move(err, &why);
    container_forget(d, id);
    r = docker_drop_kept(d, id, by, err);
    if (r < 0)
        return r;
    r = docker_launch_remove_volumes(d, id, by, err);
    if (r < 0)
        return r;
    r = rmtree(d->runs, id, err);
    if (r < 0)
        return r;
    return rmtree(d->execs, id, err);
}

int docker_remove(struct engine *e, const char *id, const struct deadline *by, struct err *err)
{
    int r = docker_launch_remove(docker_of(e), id, by, err);

    return r < 0 ? err_wrap(err, "remove sandbox '%s'", id) : 0;
}
