#include "daemon/main/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/api/api.h"
#include "daemon/api/auth.h"
#include "daemon/core/caches/sandbox-packages.h"
#include "daemon/core/events/events.h"
#include "daemon/core/sandbox/manager.h"
#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine.h"
#include "daemon/main/config.h"
#include "daemon/main/openapi.h"
#include "daemon/main/options.h"
#include "daemon/main/packages-config.h"
#include "daemon/main/process.h"
#include "daemon/main/service.h"
#include "daemon/main/tcp.h"
#include "daemon/packages/packages-proxy.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/base/path.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/http/server/http-server.h"
#include "lib/loop/loop.h"
#include "lib/os/static-program.h"
#include "lib/store/store.h"
#include "proto/service.h"
#include "version.h"

#define TICK (USEC_PER_SEC / 2)
#define SHUTDOWN_POLL (20 * USEC_PER_MSEC)
#define SHUTDOWN_GRACE (5 * USEC_PER_SEC)

enum {
    ENGINES_MAX = 3,
    BODIES_MAX = 64 << 20, /* of all large requests that are being received */
};

struct daemon {
    struct options options;
    const struct engine_ops *extra_engine; /* or NULL */
    struct path_roots paths;
    struct daemon_config config;
    char *libexec_dir;
    int ready_fd, run_dirfd, lock_fd;
    struct loop *loop;
    struct store *store;
    struct engine *engines[ENGINES_MAX];
    size_t n_engines;
    const char *default_engine;
    struct packages_proxy *packages;
    struct event_log *events;
    struct manager *manager;
    struct api *api;
    struct http_server *server;
    struct tcp *tcp; /* NULL: the API is on the unix socket only */
    struct loop_timer *tick, *shutdown_poll;
    struct loop_signal *sigterm, *sigint;
    struct deadline shutdown_by;
    bool stopping;
};

static int daemon_fail(const struct err *err)
{
    log_error("%s%s%s", err->msg, err->hint ? " -- " : "", err->hint ? err->hint : "");
    return err_code_exit(err->code);
}

/* ---- callbacks of the manager and the API ---- */

static void daemon_on_state(void *arg, const struct sandbox *sb, enum sandbox_state from,
                            enum sandbox_state to)
{
    (void)arg;
    log_at(sb->ephemeral ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "sandbox %s: %s -> %s%s%s id=%s",
           sb->name, sandbox_state_name(from), sandbox_state_name(to), sb->reason ? ": " : "",
           sb->reason ? sb->reason : "", sb->id);
}

static void daemon_on_warning(void *arg, const char *message)
{
    (void)arg;
    log_warn("%s", message);
}

static json_t *daemon_settings(void *arg)
{
    const struct daemon *d = arg;

    return config_to_json(&d->config);
}

static const char *daemon_listen_address(void *arg)
{
    const struct daemon *d = arg;

    return tcp_address(d->tcp);
}

static struct auth *daemon_auth(void *arg)
{
    const struct daemon *d = arg;

    return tcp_auth(d->tcp);
}

/* ---- shutdown: sandboxes keep running, open requests get a short grace period ---- */

static void daemon_shutdown_step(void *arg)
{
    struct daemon *d = arg;

    if ((api_open_calls(d->api) == 0 && !manager_busy(d->manager)) ||
        deadline_passed(&d->shutdown_by))
        loop_stop(d->loop);
}

static void daemon_on_signal(void *arg, int sig)
{
    struct daemon *d = arg;

    if (d->stopping) {
        log_warn("second %s: shutting down immediately", signal_name(sig));
        loop_stop(d->loop);
        return;
    }
    log_info("%s: shutting down; sandboxes keep running", signal_name(sig));
    process_notify("STOPPING=1");
    service_note_stopped(d->run_dirfd, true);
    d->stopping = true;
    d->shutdown_by = deadline_in(SHUTDOWN_GRACE);
    http_server_stop_accepting(d->server);
    tcp_stop_accepting(d->tcp);
    manager_close(d->manager);
    loop_timer_set(d->shutdown_poll, SHUTDOWN_POLL, true);
}

static void daemon_on_tick(void *arg)
{
    struct daemon *d = arg;

    manager_tick(d->manager);
    packages_proxy_tick(d->packages);
    tcp_tick(d->tcp);
    api_tick(d->api);
}

/* ---- set-up, bottom up ---- */

static int daemon_open_folders(struct daemon *d, struct err *err)
{
    int r;

    r = path_roots_make(&d->paths, err);
    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, d->paths.run, &d->run_dirfd, err);
    if (r < 0)
        return r;
    service_take_over(d->run_dirfd, d->paths.run);
    r = process_lock(d->run_dirfd, d->paths.run, &d->lock_fd, err);
    if (r >= 0)
        service_note_stopped(d->run_dirfd, false);
    return r;
}

static int daemon_open_store(struct daemon *d, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/ripcord.db", d->paths.state);

    return store_open(path, &d->store, err);
}

static struct engine_docker_config daemon_docker_config(const struct daemon *d)
{
    return (struct engine_docker_config){
        .host = d->config.docker_host,
        .prefix = d->config.docker_prefix,
        .image = d->config.docker_image,
        .timeout = d->config.docker_timeout,
        .label = d->config.docker_label,
        .legacy =
            {
                .containers = d->config.legacy_containers,
                .networks = d->config.legacy_networks,
                .volumes = d->config.legacy_volumes,
                .label = d->config.legacy_label,
            },
    };
}

static void daemon_add_engine(struct daemon *d, const struct engine_ops *ops)
{
    const struct engine_config config = {
        .state_dir = d->paths.state,
        .run_dir = d->paths.run,
        .root_id = store_root_id(d->store),
        .libexec_dir = d->libexec_dir,
        .journal_budget = d->config.journal_budget,
        .image_max = d->config.image_max,
        .disk_budget = d->config.disk_budget,
        .disk_images = d->config.disk_images,
        .cache_required = d->config.cache_required,
        .at_once =
            ops == &engine_docker_ops ? d->config.reconcile_docker : d->config.reconcile_native,
        .docker = daemon_docker_config(d),
        .transfer = {.uid = d->config.transfer_uid,
                     .mirrors = d->config.transfer_mirrors,
                     .ca_file = d->config.transfer_ca_file,
                     .proxy = d->config.transfer_proxy,
                     .add_hosts = d->config.transfer_add_hosts,
                     .add_max = d->config.transfer_add_max},
    };

    d->engines[d->n_engines++] = engine_new(d->loop, ops, &config);
}

static int daemon_check_default_engine(const struct daemon *d, struct err *err)
{
    const char *names[ENGINES_MAX], *near;

    for (size_t i = 0; i < d->n_engines; i++) {
        names[i] = d->engines[i]->ops->name;
        if (STREQ(names[i], d->default_engine))
            return 0;
    }
    near = strv_nearest(d->default_engine, names, d->n_engines);
    err_set(err, ERR_UNSUPPORTED, "key 'engine': unknown engine '%s'", d->default_engine);
    return err_hint(err, "Did you mean '%s'?", near ? near : names[0]);
}

/*
 * The native engine depends on no other program and is opened now. Other engines are opened on
 * first use, so an engine that is missing or hangs disturbs only its own users.
 */
static int daemon_open_engines(struct daemon *d, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    d->default_engine = d->options.engine ? d->options.engine : d->config.engine;
    if (d->extra_engine)
        daemon_add_engine(d, d->extra_engine);
    else
        daemon_add_engine(d, &engine_native_ops);
    daemon_add_engine(d, &engine_docker_ops);
    r = daemon_check_default_engine(d, err);
    if (r < 0)
        return r;
    if (engine_open_now(d->engines[0], &why) >= 0)
        return 0;
    if (STREQ(d->default_engine, d->engines[0]->ops->name))
        return err_move(err, &why);
    log_warn("%s", why.msg);
    return 0;
}

static int daemon_open_events(struct daemon *d, struct err *err)
{
    int r = events_open(d->loop, d->store, d->config.events_keep, &d->events, err);

    if (r < 0)
        return r;
    events_emit(d->events, "daemon.started", NULL, NULL,
                json_pack("{s:s}", "version", RIPCORD_VERSION));
    return 0;
}

static int daemon_open_manager(struct daemon *d, struct err *err)
{
    struct manager_config config = {
        .loop = d->loop,
        .store = d->store,
        .engines = d->engines,
        .n_engines = d->n_engines,
        .default_engine = d->default_engine,
        .mount_roots = d->config.mount_roots,
        .stop_grace = d->config.stop_grace,
        .journal_sandbox_budget = d->config.journal_sandbox_budget,
        .journal_keep = d->config.journal_keep,
        .history_keep = d->config.history_keep,
        .state_dir = d->paths.state,
        .disk_floor = d->config.disk_floor,
        .disk_budget = d->config.disk_budget,
        .reconcile_interval = d->config.reconcile_interval,
        .packages = d->packages,
        .packages_required = d->config.cache_required,
        .mounts_budget = d->config.build_mounts_budget,
        .events = d->events,
        .on_state = daemon_on_state,
        .on_warning = daemon_on_warning,
        .arg = d,
    };
    int r;

    r = config_spec(&d->config, &config.defaults, err);
    if (r < 0)
        return r;
    d->manager = manager_new(&config);
    sandbox_spec_done(&config.defaults);
    return manager_start(d->manager, err);
}

static int daemon_open_tcp(struct daemon *d, const struct http_server_config *http, struct err *err)
{
    const struct tcp_config config = {
        .listen = d->options.listen ? d->options.listen : d->config.http_listen,
        .remote = d->options.allow_remote || d->config.http_remote,
        .hosts = d->config.http_hosts,
        .state_dir = d->paths.state,
        .loop = d->loop,
        .http = http,
    };

    return tcp_open(&config, &d->tcp, err);
}

static int daemon_open_server(struct daemon *d, struct err *err)
{
    const struct api_config api = {
        .loop = d->loop,
        .manager = d->manager,
        .version = RIPCORD_VERSION,
        .root_id = store_root_id(d->store),
        .state_dir = d->paths.state,
        .run_dir = d->paths.run,
        .settings = daemon_settings,
        .document = openapi_json,
        .listen = daemon_listen_address,
        .auth = daemon_auth,
        .arg = d,
    };
    struct http_server_config http = {
        .on_request = api_on_request,
        .raw_target = api_wants_raw_target,
        .want_stream = api_wants_stream,
        .identify = api_identify,
        .describe = api_describe,
        .admit = auth_unix,
        .body_max = d->config.body_max,
        .bodies_max = BODIES_MAX,
        .connections_max = d->config.connections,
    };
    _cleanup_close_ int fd = -1;
    int r;

    d->api = api_new(&api);
    http.arg = d->api;
    r = daemon_open_tcp(d, &http, err);
    if (r < 0)
        return r;
    r = http_server_new(d->loop, &http, &d->server, err);
    if (r < 0)
        return r;
    r = unix_listen(d->run_dirfd, SERVICE_SOCKET, SOCK_STREAM | SOCK_NONBLOCK, 0600, &fd, err);
    if (r < 0)
        return r;
    return http_server_listen(d->server, TAKE_FD(fd), err);
}

static void daemon_open_timers(struct daemon *d)
{
    d->tick = loop_timer_new(d->loop, daemon_on_tick, d);
    loop_timer_set(d->tick, TICK, true);
    d->shutdown_poll = loop_timer_new(d->loop, daemon_shutdown_step, d);
    d->sigterm = loop_signal_new(d->loop, SIGTERM, daemon_on_signal, d);
    d->sigint = loop_signal_new(d->loop, SIGINT, daemon_on_signal, d);
}

/* Refused packages and failing indexes are logged, and become events of the sandbox. */
static void daemon_on_packages_event(void *arg, const char *json)
{
    struct daemon *d = arg;

    log_info("package cache: %s", json);
    if (d->manager)
        sandbox_packages_event(d->manager, json);
}

static int daemon_open_packages(struct daemon *d, struct err *err)
{
    const struct packages_config_place place = {.loop = d->loop,
                                                .libexec_dir = d->libexec_dir,
                                                .state_dir = d->paths.state,
                                                .on_event = daemon_on_packages_event,
                                                .arg = d};

    return packages_config_open(&d->config, &place, &d->packages, err);
}

static int daemon_open(struct daemon *d, struct err *err)
{
    int r;

    r = daemon_open_folders(d, err);
    if (r < 0)
        return r;
    r = daemon_open_store(d, err);
    if (r < 0)
        return r;
    r = loop_new(&d->loop, err);
    if (r < 0)
        return r;
    r = daemon_open_engines(d, err);
    if (r < 0)
        return r;
    r = daemon_open_packages(d, err);
    if (r < 0)
        return r;
    r = daemon_open_events(d, err);
    if (r < 0)
        return r;
    r = daemon_open_manager(d, err);
    if (r < 0)
        return r;
    r = daemon_open_server(d, err);
    if (r < 0)
        return r;
    daemon_open_timers(d);
    return 0;
}

/*
 * Closes everything, top down, also after a failed daemon_open(). While a worker thread still runs
 * an operation, its objects cannot be freed: then the process just ends. Every part survives that,
 * because it must survive SIGKILL too.
 */
static void daemon_close(struct daemon *d)
{
    if (d->server)
        unlinkat(d->run_dirfd, SERVICE_SOCKET, 0);
    http_server_free(d->server);
    tcp_close(d->tcp);
    if (d->api)
        api_end_calls(d->api);
    if (d->manager && manager_busy(d->manager)) {
        log_warn("shutting down with unfinished operations; the next start continues them");
        events_flush(d->events);
        _exit(0);
    }
    loop_timer_free(d->tick);
    loop_timer_free(d->shutdown_poll);
    loop_signal_free(d->sigterm);
    loop_signal_free(d->sigint);
    manager_free(d->manager);
    packages_proxy_free(d->packages);
    events_close(d->events);
    for (size_t i = 0; i < d->n_engines; i++)
        engine_close(d->engines[i]);
    api_free(d->api);
    loop_free(d->loop);
    store_close(d->store);
    fd_close(d->run_dirfd);
    fd_close(d->lock_fd);
}

static int daemon_run(struct daemon *d)
{
    _cleanup_err_ struct err err = ERR_INIT;
    int status = 0;

    service_enter_scope();
    if (daemon_open(d, &err) < 0) {
        status = daemon_fail(&err);
    } else {
        log_info("ripcordd %s serves '%s' engine=%s root_id=%s", RIPCORD_VERSION, d->paths.run,
                 d->default_engine, store_root_id(d->store));
        process_ready(TAKE_FD(d->ready_fd));
        process_notify("READY=1");
        loop_run(d->loop);
    }
    daemon_close(d);
    return status;
}

/* ---- the command line ---- */

static int daemon_prepare(struct daemon *d, struct err *err)
{
    uint32_t fd;
    enum log_level level;
    int r;

    if (d->options.ready_fd) {
        if (parse_u32(d->options.ready_fd, 3, 65535, &fd, err) < 0)
            return err_wrap(err, "option '--ready-fd'");
        d->ready_fd = (int)fd;
    }
    r = process_harden(d->ready_fd, err);
    if (r < 0)
        return r;
    static_program_init();
    r = path_roots_init(&d->paths, d->options.root, err);
    if (r < 0)
        return r;
    r = config_load(&d->config, d->paths.config, err);
    if (r < 0)
        return r;
    r = log_parse_level(d->options.log_level ? d->options.log_level : d->config.log_level, &level,
                        err);
    if (r < 0)
        return r;
    log_set_level(level);
    log_set_json(d->options.log_json || d->config.log_json);
    for (char **w = d->config.warnings; w && *w; w++)
        log_warn("%s", *w);
    d->libexec_dir = path_of_program("ripcord-shim", RIPCORD_LIBEXECDIR);
    if (!d->libexec_dir) /* the engines that need its programs report which one is missing */
        d->libexec_dir = xstrdup(RIPCORD_LIBEXECDIR);
    return 0;
}

static int daemon_print_and_exit(const struct options *o)
{
    if (o->help)
        options_help(stdout);
    else if (o->version)
        puts("ripcordd " RIPCORD_VERSION);
    else
        config_help(stdout);
    return 0;
}

int daemon_main(int argc, char **argv, const struct engine_ops *extra)
{
    struct daemon d = {.extra_engine = extra, .ready_fd = -1, .run_dirfd = -1, .lock_fd = -1};
    _cleanup_err_ struct err err = ERR_INIT;
    int status;

    if (options_parse(&d.options, argc, argv, &err) < 0)
        return daemon_fail(&err);
    if (d.options.help || d.options.version || d.options.help_config)
        return daemon_print_and_exit(&d.options);
    if (daemon_prepare(&d, &err) < 0) {
        status = daemon_fail(&err);
    } else if (d.options.print_config) {
        config_print(&d.config, stdout);
        status = 0;
    } else {
        status = daemon_run(&d);
    }
    fd_close(d.ready_fd);
    config_done(&d.config);
    path_roots_done(&d.paths);
    free(d.libexec_dir);
    return status;
}
