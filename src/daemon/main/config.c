#include "daemon/main/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/sandbox/spec.h"
#include "daemon/main/config-file.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum key_type { KEY_STRING, KEY_SIZE, KEY_DURATION, KEY_CPUS, KEY_COUNT, KEY_BOOL, KEY_LIST };

struct config_key {
    const char *name;
    enum key_type type;
    size_t offset;
    const char *def; /* as one would write it; lists: comma-separated */
    const char *doc;
};

#define AT(member) offsetof(struct daemon_config, member)

/* clang-format off */
static const struct config_key keys[] = {
    {"engine",             KEY_STRING,   AT(engine),      "native",      "engine of sandboxes that name none"},
    {"defaults.memory",    KEY_SIZE,     AT(memory),      "4G",          "memory of a sandbox, without swap"},
    {"defaults.cpus",      KEY_CPUS,     AT(cpus),        "2",           "processors of a sandbox"},
    {"defaults.pids",      KEY_COUNT,    AT(pids),        "300",         "processes and threads of a sandbox"},
    {"defaults.nofile",    KEY_COUNT,    AT(nofile),      "16384",       "open files of each process"},
    {"defaults.network",   KEY_STRING,   AT(network),     "packages",    "network mode: none, packages or open"},
    {"defaults.cache",     KEY_STRING,   AT(cache),       "layered",     "how package caches are kept: layered, private, readonly or off"},
    {"defaults.tmp",       KEY_SIZE,     AT(tmp),         "128M",        "size of /tmp"},
    {"defaults.run",       KEY_SIZE,     AT(run),         "32M",         "size of /run"},
    {"defaults.scratch",   KEY_SIZE,     AT(scratch),     "512M",        "size of /scratch"},
    {"defaults.user",      KEY_STRING,   AT(user),        "agent",       "user that commands run as"},
    {"defaults.workdir",   KEY_STRING,   AT(workdir),     "/home/agent", "folder that commands start in"},
    {"defaults.idle_stop", KEY_DURATION, AT(idle_stop),   "0s",          "stop a sandbox after this long without a command; 0s: never"},
    {"defaults.max_life",  KEY_DURATION, AT(max_life),    "0s",          "stop a sandbox this long after it came up, whatever runs in it; 0s: never"},
    {"defaults.rm_after",  KEY_DURATION, AT(rm_after),    "0s",          "remove a sandbox that has been stopped for this long; 0s: never"},
    {"mounts.roots",       KEY_LIST,     AT(mount_roots), "/home,/srv,/mnt,/media,/data,/tmp,/work", "folders below which mount sources may lie"},
    {"journal.budget",     KEY_SIZE,     AT(journal_budget), "256M",     "output kept for each stream of a command"},
    {"disk.floor",         KEY_SIZE,     AT(disk_floor),  "1G",          "below this much free space no new work is taken (at most a tenth of the disk counts); 0: never"},
    {"journal.sandbox_budget", KEY_SIZE, AT(journal_sandbox_budget), "1G", "output kept of the finished commands of a sandbox; 0: all"},
    {"journal.keep",       KEY_DURATION, AT(journal_keep), "7d",         "how long output of finished commands is kept; 0s: for ever"},
    {"history.keep",       KEY_COUNT,    AT(history_keep), "1000",       "how many finished commands of a sandbox are remembered, with their output; 0: all"},
    {"events.keep",        KEY_COUNT,    AT(events_keep), "10000",       "how many events are kept; 0: none"},
    {"docker.host",        KEY_STRING,   AT(docker_host), "",            "where Docker or Podman listens, as in DOCKER_HOST; empty: by DOCKER_HOST, CONTAINER_HOST, or the usual sockets"},
    {"docker.prefix",      KEY_STRING,   AT(docker_prefix), "ripcord",   "begins the names of containers, volumes and the network on that engine"},
    {"docker.image",       KEY_STRING,   AT(docker_image), "ripcord/default", "what image 'default' stands for on that engine"},
    {"docker.label",       KEY_STRING,   AT(docker_label), "",           "a further label, key=value, on everything that is made on that engine; empty: none"},
    {"docker.timeout",     KEY_DURATION, AT(docker_timeout), "30s",      "how long one answer of that engine may take"},
    {"reconcile.interval", KEY_DURATION, AT(reconcile_interval), "5m",   "how often what is on the engines is compared with what should be there; 0s: only at the start"},
    {"reconcile.native",   KEY_COUNT,    AT(reconcile_native), "4",      "objects of the native engine that reconcile works on at a time"},
    {"reconcile.docker",   KEY_COUNT,    AT(reconcile_docker), "8",      "objects of Docker or Podman that it works on at a time"},
    {"legacy.containers",  KEY_LIST,     AT(legacy_containers), "",      "names (shell patterns) of an earlier system's containers, which reconcile removes when no command runs in them"},
    {"legacy.networks",    KEY_LIST,     AT(legacy_networks), "",        "names of its networks, removed after those"},
    {"legacy.volumes",     KEY_LIST,     AT(legacy_volumes), "",         "names of its volumes, removed after those"},
    {"legacy.label",       KEY_STRING,   AT(legacy_label), "",           "key or key=value that legacy containers must carry beside their name; empty: the name is enough"},
    {"cache.required",     KEY_BOOL,     AT(cache_required), "no",       "refuse to make a sandbox when one of its caches or the package registry is not there, instead of a warning"},
    {"registry.pypi",      KEY_STRING,   AT(packages_pypi), "https://pypi.org/simple/", "where the package registry gets Python packages; empty: nowhere"},
    {"registry.npm",       KEY_STRING,   AT(packages_npm), "https://registry.npmjs.org/", "where it gets npm packages; empty: nowhere"},
    {"registry.upstreams", KEY_STRING,   AT(packages_upstreams), "",     "JSON file with further indexes, their scopes and credentials"},
    {"registry.private",   KEY_BOOL,     AT(packages_private), "no",     "registry.pypi and registry.npm may have private addresses"},
    {"registry.ca_file",   KEY_STRING,   AT(packages_ca_file), "",       "certificates (PEM) that those two are checked against; empty: the system's"},
    {"registry.proxy",     KEY_STRING,   AT(packages_proxy), "",         "HTTP proxy between the registry and the world; empty: none"},
    {"registry.offline",   KEY_STRING,   AT(packages_offline), "auto",   "auto: what is kept when the index is down; always: never ask it; never: no stale answer"},
    {"registry.min_age",   KEY_DURATION, AT(packages_min_age), "0s",     "hide releases that are younger"},
    {"registry.deny",      KEY_LIST,     AT(packages_deny), "",          "packages that are refused: name, npm:name or pypi:name, with ==version or without"},
    {"registry.budget",    KEY_SIZE,     AT(packages_budget), "20G",     "how much the registry keeps; what was not used longest goes first"},
    {"registry.metadata_life", KEY_DURATION, AT(packages_metadata_life), "5m", "how long a package's list of releases is believed before its index is asked again"},
    {"build.mounts_budget", KEY_SIZE,    AT(build_mounts_budget), "20G", "how much all cache mounts of builds keep; what was not used longest goes first"},
    {"hub.mirrors",        KEY_LIST,     AT(transfer_mirrors), "",            "where images are asked for first: docker.io=https://mirror.example"},
    {"hub.ca_file",        KEY_STRING,   AT(transfer_ca_file), "",            "certificates (PEM) that registries of images are checked against; empty: the system's"},
    {"hub.proxy",          KEY_STRING,   AT(transfer_proxy), "",              "HTTP proxy between registries of images and us; empty: none"},
    {"hub.add_hosts",      KEY_LIST,     AT(transfer_add_hosts), "",          "hosts with private addresses that ADD of a Dockerfile may fetch from: host or host:port"},
    {"hub.add_max",        KEY_SIZE,     AT(transfer_add_max), "8G",          "largest file that ADD fetches"},
    {"hub.uid",            KEY_COUNT,    AT(transfer_uid), "60996",           "user id of what talks to them when the daemon is root"},
    {"registry.uid",       KEY_COUNT,    AT(packages_uid), "60997",      "user id of the registry's process when the daemon is root"},
    {"stop_grace",         KEY_DURATION, AT(stop_grace),  "10s",         "time between TERM and KILL when a sandbox is stopped"},
    {"http.listen",        KEY_STRING,   AT(http_listen), "",            "address to answer on beside the unix socket, 127.0.0.1:7070, to those who have the token; empty: none"},
    {"http.remote",        KEY_BOOL,     AT(http_remote), "no",          "http.listen may be an address that other machines reach: there is no encryption"},
    {"http.hosts",         KEY_LIST,     AT(http_hosts),  "",            "names by which it may be asked for there, beside its address and localhost: name or name:port"},
    {"http.connections",   KEY_COUNT,    AT(connections), "1024",        "connections that may be open at once"},
    {"http.body_max",      KEY_SIZE,     AT(body_max),    "1M",          "largest request body"},
    {"log.level",          KEY_STRING,   AT(log_level),   "info",        "error, warn, info or debug"},
    {"log.json",           KEY_BOOL,     AT(log_json),    "no",          "log as JSON lines"},
};
/* clang-format on */

enum { KEYS = ARRAY_SIZE(keys) };

static int daemon_config_set_text(void *at, enum key_type type, const char *text, struct err *err)
{
    switch (type) {
    case KEY_STRING:
        free(*(char **)at);
        *(char **)at = xstrdup(text);
        return 0;
    case KEY_SIZE:
        return parse_size(text, at, err);
    case KEY_DURATION:
        return parse_duration(text, at, err);
    case KEY_CPUS:
        return parse_cpus(text, 1, 1024000, at, err);
    case KEY_COUNT:
        return parse_u32(text, 1, 10000000, at, err);
    case KEY_BOOL:
        return parse_bool(text, at, err);
    case KEY_LIST:
        return err_set(err, ERR_INVALID, "'%s' is one word: a list is needed", text);
    }
    return 0;
}

static int daemon_config_set_list(void *at, enum key_type type, char *const *items, struct err *err)
{
    if (type != KEY_LIST)
        return err_set(err, ERR_INVALID, "a list is not what is needed here");
    strv_free(*(char ***)at);
    *(char ***)at = strv_copy(items);
    return 0;
}

static char **daemon_config_split(const char *text)
{
    _cleanup_free_ char *copy = xstrdup(text);
    char *rest = copy, *item;
    char **v = NULL;

    while (*text && (item = strsep(&rest, ",")))
        strv_add(&v, item);
    return v;
}

static void daemon_config_set_default(struct daemon_config *c, const struct config_key *k)
{
    void *at = (char *)c + k->offset;

    if (k->type == KEY_LIST)
        *(char ***)at = daemon_config_split(k->def);
    else
        daemon_config_set_text(at, k->type, k->def, NULL);
}

static int daemon_config_find_key(const char *name, struct err *err)
{
    const char *names[KEYS];
    const char *near;

    for (size_t i = 0; i < KEYS; i++) {
        names[i] = keys[i].name;
        if (STREQ(keys[i].name, name))
            return (int)i;
    }
    err_set(err, ERR_INVALID, "unknown key '%s'", name);
    near = strv_nearest(name, names, KEYS);
    return near ? err_hint(err, "Did you mean '%s'?", near)
                : err_hint(err, "'ripcordd --help-config' lists all keys.");
}

struct loading {
    struct daemon_config *config;
    const char *path;
    bool seen[KEYS];
};

static int daemon_config_on_entry(void *arg, const struct config_entry *e, struct err *err)
{
    struct loading *l = arg;
    int k = daemon_config_find_key(e->key, err), r;
    void *at;

    if (k < 0)
        return k;
    if (l->seen[k])
        return err_set(err, ERR_INVALID, "key '%s' is given twice", e->key);
    l->seen[k] = true;
    at = (char *)l->config + keys[k].offset;
    r = e->items ? daemon_config_set_list(at, keys[k].type, e->items, err)
                 : daemon_config_set_text(at, keys[k].type, e->value, err);
    if (r < 0)
        return err_wrap(err, "key '%s'", e->key);
    free(l->config->sources[k]);
    l->config->sources[k] = xasprintf("%s:%zu", l->path, e->line);
    return 0;
}

/* What Docker takes for a name, short enough to leave room for a sandbox's. */
static int daemon_config_check_prefix(const char *prefix, struct err *err)
{
    static const char ok[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t len = strlen(prefix);

    if (len >= 2 && len <= 40 && strspn(prefix, ok) == len && isalnum((unsigned char)*prefix))
        return 0;
    return err_set(err, ERR_INVALID,
                   "key 'docker.prefix': '%.60s' must be 2 to 40 letters, digits and . _ -",
                   prefix);
}

/* What no single value shows to be wrong. */
static int daemon_config_check(const struct daemon_config *c, struct err *err)
{
    struct sandbox_spec spec;
    enum log_level level;
    int r;

    r = config_spec(c, &spec, err);
    if (r < 0)
        return r;
    sandbox_spec_done(&spec);
    r = log_parse_level(c->log_level, &level, err);
    if (r < 0)
        return err_wrap(err, "key 'log.level'");
    r = daemon_config_check_prefix(c->docker_prefix, err);
    if (r < 0)
        return r;
    if (!STREQ(c->packages_offline, "auto") && !STREQ(c->packages_offline, "always") &&
        !STREQ(c->packages_offline, "never"))
        return err_set(err, ERR_INVALID,
                       "key 'registry.offline': '%.20s' is not auto, always or "
                       "never",
                       c->packages_offline);
    if (!c->docker_timeout)
        return err_set(err, ERR_INVALID, "key 'docker.timeout' must not be 0");
    for (char **p = c->mount_roots; p && *p; p++)
        if (spec_check_path("mounts.roots", *p, err) < 0)
            return -ERR_INVALID;
    return 0;
}

int config_load(struct daemon_config *ret, const char *path, struct err *err)
{
    struct daemon_config c = {0};
    struct loading l = {.config = &c, .path = path};
    int r;

    for (size_t i = 0; i < KEYS; i++) {
        daemon_config_set_default(&c, &keys[i]);
        strv_add(&c.sources, "default");
    }
    r = config_file_read(path, daemon_config_on_entry, &l, err);
    if (r >= 0 && daemon_config_check(&c, err) < 0)
        r = err_wrap(err, "'%s'", path);
    if (r < 0) {
        config_done(&c);
        return r;
    }
    *ret = c;
    return 0;
}

void config_done(struct daemon_config *c)
{
    for (size_t i = 0; i < KEYS; i++) {
        void *at = (char *)c + keys[i].offset;

        if (keys[i].type == KEY_STRING)
            free(*(char **)at);
        if (keys[i].type == KEY_LIST)
            strv_free(*(char ***)at);
    }
    strv_free(c->sources);
    *c = (struct daemon_config){0};
}

/* ---- showing ---- */

static json_t *daemon_config_list_to_json(char *const *v)
{
    json_t *a = json_array();

    for (; v && *v; v++)
        json_array_append_new(a, json_string(*v));
    return a;
}

static json_t *daemon_config_value_to_json(const struct daemon_config *c,
                                           const struct config_key *k)
{
    const void *at = (const char *)c + k->offset;
    char tmp[FORMAT_MAX];
    uint32_t milli;

    switch (k->type) {
    case KEY_STRING:
        return json_string(*(char *const *)at);
    case KEY_SIZE:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case KEY_DURATION:
        return json_string(format_duration(*(const uint64_t *)at, tmp));
    case KEY_CPUS:
        milli = *(const uint32_t *)at;
        return milli % 1000 ? json_real(milli / 1000.0) : json_integer(milli / 1000);
    case KEY_COUNT:
        return json_integer(*(const uint32_t *)at);
    case KEY_BOOL:
        return json_boolean(*(const bool *)at);
    case KEY_LIST:
        return daemon_config_list_to_json(*(char **const *)at);
    }
    return json_null();
}

json_t *config_to_json(const struct daemon_config *c)
{
    json_t *o = json_object();

    for (size_t i = 0; i < KEYS; i++)
        json_object_set_new(o, keys[i].name,
                            json_pack("{s:o, s:s}", "value",
                                      daemon_config_value_to_json(c, &keys[i]), "source",
                                      c->sources[i]));
    return o;
}

void config_print(const struct daemon_config *c, FILE *f)
{
    for (size_t i = 0; i < KEYS; i++) {
        _cleanup_json_ json_t *v = daemon_config_value_to_json(c, &keys[i]);
        _cleanup_free_ char *text = json_to_text(v, false);

        fprintf(f, "%s: %s  # %s\n", keys[i].name, text, c->sources[i]);
    }
}

void config_help(FILE *f)
{
    for (size_t i = 0; i < KEYS; i++)
        fprintf(f, "%-20s %s (default %s)\n", keys[i].name, keys[i].doc, keys[i].def);
}

int config_spec(const struct daemon_config *c, struct sandbox_spec *ret, struct err *err)
{
    _cleanup_json_ json_t *doc = json_pack(
        "{s:{s:I, s:f, s:I, s:I}, s:s, s:{s:s}, s:{s:I, s:I, s:I}, s:s, s:s, s:I, s:I, s:I}",
        "limits", "memory", (json_int_t)c->memory, "cpus", c->cpus / 1000.0, "pids",
        (json_int_t)c->pids, "nofile", (json_int_t)c->nofile, "network", c->network, "caches",
        "all", c->cache, "tmpfs", "tmp", (json_int_t)c->tmp, "run", (json_int_t)c->run, "scratch",
        (json_int_t)c->scratch, "user", c->user, "workdir", c->workdir, "idle_stop_ms",
        (json_int_t)(c->idle_stop / USEC_PER_MSEC), "max_life_ms",
        (json_int_t)(c->max_life / USEC_PER_MSEC), "rm_after_ms",
        (json_int_t)(c->rm_after / USEC_PER_MSEC));
    struct sandbox_spec spec;
    const char *engine = NULL;
    int r;

    if (!doc)
        return err_set(err, ERR_INVALID, "key 'defaults': a value is not valid UTF-8");
    spec_defaults(&spec);
    r = spec_apply(&spec, &engine, doc, NULL, err);
    if (r < 0) {
        sandbox_spec_done(&spec);
        return err_wrap(err, "key 'defaults'");
    }
    spec.asked = 0; /* defaults: where they cannot be enforced they are dropped, and it is said */
    *ret = spec;
    return 0;
}
