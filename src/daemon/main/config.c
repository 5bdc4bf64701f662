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
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

enum key_type { KEY_STRING, KEY_SIZE, KEY_DURATION, KEY_CPUS, KEY_COUNT, KEY_BOOL, KEY_LIST };

struct config_key {
    const char *name;
    enum key_type type;
    size_t offset;
    const char *def; /* as in the file; lists: comma-separated */
    const char *doc;
};

#define AT(member) offsetof(struct daemon_config, member)

/* clang-format off */
static const struct config_key keys[] = {
    {"engine",                 KEY_STRING,   AT(engine), "native", "default engine of new sandboxes: native or docker"},
    {"defaults.memory",        KEY_SIZE,     AT(memory), "4G", "memory of a sandbox, without swap"},
    {"defaults.cpus",          KEY_CPUS,     AT(cpus), "2", "processors of a sandbox"},
    {"defaults.pids",          KEY_COUNT,    AT(pids), "300", "maximum number of processes and threads in a sandbox"},
    {"defaults.nofile",        KEY_COUNT,    AT(nofile), "16384", "maximum number of open files of each process"},
    {"defaults.network",       KEY_STRING,   AT(network), "packages", "network mode: none, packages or open"},
    {"defaults.cache",         KEY_STRING,   AT(cache), "layered", "mode of the tool caches: layered, private, readonly or off"},
    {"defaults.tmp",           KEY_SIZE,     AT(tmp), "128M", "size of /tmp"},
    {"defaults.run",           KEY_SIZE,     AT(run), "32M", "size of /run"},
    {"defaults.scratch",       KEY_SIZE,     AT(scratch), "512M", "size of /scratch"},
    {"defaults.user",          KEY_STRING,   AT(user), "agent", "user that runs the commands"},
    {"defaults.workdir",       KEY_STRING,   AT(workdir), "/home/agent", "working folder of commands"},
    {"defaults.idle_stop",     KEY_DURATION, AT(idle_stop), "0s", "stop a sandbox after this time without a command; 0s: never"},
    {"defaults.max_life",      KEY_DURATION, AT(max_life), "0s", "stop a sandbox this long after its start, even if commands run; 0s: never"},
    {"defaults.rm_after",      KEY_DURATION, AT(rm_after), "0s", "remove a sandbox that has been stopped for this long; 0s: never"},
    {"mounts.roots",           KEY_LIST,     AT(mount_roots), "/home,/srv,/mnt,/media,/data,/tmp,/work", "mount sources must be below one of these folders"},
    {"journal.budget",         KEY_SIZE,     AT(journal_budget), "256M", "maximum stored output of each stream of a command"},
    {"disk.budget",            KEY_SIZE,     AT(disk_budget), "20G", "disk space of a sandbox without --disk; the limit of its files is one for each 16 KiB; 0: no limit"},
    {"disk.images",            KEY_BOOL,     AT(disk_images), "no", "hold disk.budget with a disk image for each new sandbox where the file system has no project quotas"},
    {"disk.floor",             KEY_SIZE,     AT(disk_floor), "1G", "refuse new work when less disk space is free (at most a tenth of the disk counts); 0: never"},
    {"journal.sandbox_budget", KEY_SIZE,     AT(journal_sandbox_budget), "1G", "maximum stored output of all finished commands of a sandbox; 0: no limit"},
    {"journal.keep",           KEY_DURATION, AT(journal_keep), "7d", "how long the output of finished commands is stored; 0s: for ever"},
    {"history.keep",           KEY_COUNT,    AT(history_keep), "1000", "number of finished commands that are stored per sandbox, with their output; 0: all"},
    {"events.keep",            KEY_COUNT,    AT(events_keep), "10000", "number of events that are stored; 0: none"},
    {"docker.host",            KEY_STRING,   AT(docker_host), "", "address of Docker or Podman, as in DOCKER_HOST; empty: DOCKER_HOST, CONTAINER_HOST or the usual sockets"},
    {"docker.prefix",          KEY_STRING,   AT(docker_prefix), "ripcord", "prefix of the names of containers, volumes and the network on that engine"},
    {"docker.image",           KEY_STRING,   AT(docker_image), "ripcord/default", "image that 'default' stands for on that engine"},
    {"docker.label",           KEY_STRING,   AT(docker_label), "", "additional label, key=value, on every object that ripcord creates on that engine; empty: none"},
    {"docker.timeout",         KEY_DURATION, AT(docker_timeout), "30s", "maximum time for one answer of that engine"},
    {"reconcile.interval",     KEY_DURATION, AT(reconcile_interval), "5m", "how often the objects on the engines are compared with the stored state; 0s: only at start"},
    {"reconcile.native",       KEY_COUNT,    AT(reconcile_native), "4", "number of objects of the native engine that reconcile handles at the same time"},
    {"reconcile.docker",       KEY_COUNT,    AT(reconcile_docker), "8", "number of objects of Docker or Podman that reconcile handles at the same time"},
    {"legacy.containers",      KEY_LIST,     AT(legacy_containers), "", "names (shell patterns) of an earlier system's containers; reconcile removes them when no command runs in them"},
    {"legacy.networks",        KEY_LIST,     AT(legacy_networks), "", "names of that system's networks, removed after its containers"},
    {"legacy.volumes",         KEY_LIST,     AT(legacy_volumes), "", "names of that system's volumes, removed after its containers"},
    {"legacy.label",           KEY_STRING,   AT(legacy_label), "", "label, key or key=value, that legacy containers must also have; empty: the name is enough"},
    {"cache.required",         KEY_BOOL,     AT(cache_required), "no", "refuse to create a sandbox when a tool cache or the package cache is missing, instead of warning"},
    {"packages.pypi",          KEY_STRING,   AT(packages_pypi), "https://pypi.org/simple/", "index of Python packages for the package cache; empty: none"},
    {"packages.npm",           KEY_STRING,   AT(packages_npm), "https://registry.npmjs.org/", "index of npm packages for the package cache; empty: none"},
    {"packages.upstreams",     KEY_STRING,   AT(packages_upstreams), "", "JSON file with further indexes, their scopes and credentials"},
    {"packages.private",       KEY_BOOL,     AT(packages_private), "no", "allow private addresses for packages.pypi and packages.npm"},
    {"packages.ca_file",       KEY_STRING,   AT(packages_ca_file), "", "CA certificates (PEM) for packages.pypi and packages.npm; empty: the system's"},
    {"packages.proxy",         KEY_STRING,   AT(packages_proxy), "", "HTTP proxy for requests to the indexes; empty: none"},
    {"packages.offline",       KEY_STRING,   AT(packages_offline), "auto", "auto: serve stored pages when an index is down; always: never ask an index; never: never serve stale pages"},
    {"packages.min_age",       KEY_DURATION, AT(packages_min_age), "0s", "hide releases that are younger than this"},
    {"packages.deny",          KEY_LIST,     AT(packages_deny), "", "refused packages: name, npm:name or pypi:name, with or without ==version"},
    {"packages.budget",        KEY_SIZE,     AT(packages_budget), "20G", "maximum size of the package cache; the least recently used files are removed first"},
    {"packages.metadata_life", KEY_DURATION, AT(packages_metadata_life), "5m", "how long a package's list of releases stays valid before the index is asked again"},
    {"packages.uid",           KEY_COUNT,    AT(packages_uid), "60997", "user id of the package cache's process when the daemon runs as root"},
    {"image.max_size",         KEY_SIZE,     AT(image_max), "20G", "maximum size of an image that is imported or pulled: of its uncompressed archive, and of all its files"},
    {"build.mounts_budget",    KEY_SIZE,     AT(build_mounts_budget), "20G", "maximum size of all cache mounts of builds; the least recently used ones are removed first"},
    {"transfer.mirrors",       KEY_LIST,     AT(transfer_mirrors), "", "mirrors that are asked for images first: docker.io=https://mirror.example"},
    {"transfer.ca_file",       KEY_STRING,   AT(transfer_ca_file), "", "CA certificates (PEM) for image registries; empty: the system's"},
    {"transfer.proxy",         KEY_STRING,   AT(transfer_proxy), "", "HTTP proxy for requests to image registries; empty: none"},
    {"transfer.add_hosts",     KEY_LIST,     AT(transfer_add_hosts), "", "hosts with private addresses from which ADD in a Dockerfile may download: host or host:port"},
    {"transfer.add_max",       KEY_SIZE,     AT(transfer_add_max), "8G", "maximum size of a file that ADD downloads"},
    {"transfer.uid",           KEY_COUNT,    AT(transfer_uid), "60996", "user id of the image transfer process when the daemon runs as root"},
    {"stop_grace",             KEY_DURATION, AT(stop_grace), "10s", "time between TERM and KILL when a sandbox is stopped"},
    {"http.listen",            KEY_STRING,   AT(http_listen), "", "TCP address of the API in addition to the unix socket, e.g. 127.0.0.1:7070; requests need the token; empty: none"},
    {"http.remote",            KEY_BOOL,     AT(http_remote), "no", "allow an http.listen address that other machines can reach; the traffic is not encrypted"},
    {"http.hosts",             KEY_LIST,     AT(http_hosts), "", "host names accepted at http.listen besides its address and localhost: name or name:port"},
    {"http.connections",       KEY_COUNT,    AT(connections), "1024", "maximum number of open connections"},
    {"http.body_max",          KEY_SIZE,     AT(body_max), "16M", "maximum size of a request body; the largest command takes 12M when JSON escapes each of its bytes"},
    {"log.level",              KEY_STRING,   AT(log_level), "info", "error, warn, info or debug"},
    {"log.json",               KEY_BOOL,     AT(log_json), "no", "log as JSON lines"},
};
/* clang-format on */

enum { KEYS = ARRAY_SIZE(keys) };

/* Groups of keys that were renamed. The old names work for one more version, with a warning. */
static const struct config_rename {
    const char *old, *now;
} renamed_groups[] = {
    {"registry.", "packages."},
    {"hub.", "transfer."},
};

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
        return parse_cpus(text, SPEC_CPUS_MIN_MILLI, SPEC_CPUS_MAX_MILLI, at, err);
    case KEY_COUNT:
        return parse_u32(text, 1, 10000000, at, err);
    case KEY_BOOL:
        return parse_bool(text, at, err);
    case KEY_LIST:
        return err_set(err, ERR_INVALID, "'%s': must be a list", text);
    }
    return 0;
}

static int daemon_config_set_list(void *at, enum key_type type, char *const *items, struct err *err)
{
    if (type != KEY_LIST)
        return err_set(err, ERR_INVALID, "must be a single value, not a list");
    strv_free(*(char ***)at);
    *(char ***)at = strv_copy(items);
    return 0;
}

static void daemon_config_set_default(struct daemon_config *c, const struct config_key *k)
{
    void *at = (char *)c + k->offset;
    _cleanup_free_ char *copy = NULL;
    char *rest, *item;

    if (k->type != KEY_LIST) {
        daemon_config_set_text(at, k->type, k->def, NULL);
        return;
    }
    copy = rest = xstrdup(k->def);
    while (*k->def && (item = strsep(&rest, ",")))
        strv_add((char ***)at, item);
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
                : err_hint(err, "Run 'ripcordd --help-config' to list all keys.");
}

struct config_loading {
    struct daemon_config *config;
    const char *path;
    bool seen[KEYS];
};

/* The present name of a key of a renamed group, owned; NULL for all other keys. */
static char *daemon_config_new_name(const char *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(renamed_groups); i++) {
        size_t len = strlen(renamed_groups[i].old);

        if (strncmp(key, renamed_groups[i].old, len) == 0)
            return xasprintf("%s%s", renamed_groups[i].now, key + len);
    }
    return NULL;
}

static int daemon_config_on_entry(void *arg, const struct config_entry *e, struct err *err)
{
    struct config_loading *l = arg;
    _cleanup_free_ char *new_name = daemon_config_new_name(e->key), *warning = NULL;
    const char *name = new_name ? new_name : e->key;
    int k = daemon_config_find_key(name, err), r;
    void *at;

    if (k < 0)
        return k;
    if (l->seen[k])
        return err_set(err, ERR_INVALID, "key '%s' is given twice (first at %s)", name,
                       l->config->sources[k]);
    l->seen[k] = true;
    at = (char *)l->config + keys[k].offset;
    r = e->items ? daemon_config_set_list(at, keys[k].type, e->items, err)
                 : daemon_config_set_text(at, keys[k].type, e->value, err);
    if (r < 0)
        return err_wrap(err, "key '%s'", e->key);
    free(l->config->sources[k]);
    l->config->sources[k] = xasprintf("%s:%zu", l->path, e->line);
    if (!new_name)
        return 0;
    warning = xasprintf("%s: key '%s' is deprecated, use '%s' (the next version removes the old "
                        "name)",
                        l->config->sources[k], e->key, new_name);
    strv_add(&l->config->warnings, warning);
    return 0;
}

/* Docker's rule for names. The limit leaves room for the name of a sandbox. */
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

/* Checks that need more than one value, or more than the type of one. */
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
                       "key 'packages.offline': '%.20s' must be auto, always or never",
                       c->packages_offline);
    if (!c->docker_timeout)
        return err_set(err, ERR_INVALID, "key 'docker.timeout': must not be 0");
    for (char **p = c->mount_roots; p && *p; p++)
        if (spec_check_path("mounts.roots", *p, err) < 0)
            return -ERR_INVALID;
    return 0;
}

int config_load(struct daemon_config *ret, const char *path, struct err *err)
{
    _cleanup_config_ struct daemon_config c = {0};
    struct config_loading l = {.config = &c, .path = path};
    int r;

    for (size_t i = 0; i < KEYS; i++) {
        daemon_config_set_default(&c, &keys[i]);
        strv_add(&c.sources, "default");
    }
    r = config_file_read(path, daemon_config_on_entry, &l, err);
    if (r < 0)
        return r;
    r = daemon_config_check(&c, err);
    if (r < 0)
        return err_wrap(err, "'%s'", path);
    *ret = c;
    c = (struct daemon_config){0};
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
    strv_free(c->warnings);
    *c = (struct daemon_config){0};
}

/* ---- showing ---- */

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
        return json_from_strv(*(char **const *)at);
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
        fprintf(f, "%-24s %s (default %s)\n", keys[i].name, keys[i].doc,
                *keys[i].def ? keys[i].def : "empty");
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
    spec.asked = 0; /* a default that cannot be enforced is dropped with a warning, not refused */
    *ret = spec;
    return 0;
}
