#include "cli/spec.h"

#include <errno.h>
#include <string.h>

#include "cli/secrets.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

/* clang-format off */
static const struct cli_option spec_options[] = {
    { "engine", 0, "NAME", "engine to run on: native (default) or docker (Docker and Podman)", "native docker" },
    { "image", 0, "IMAGE", "base file system: 'host' (the programs of this machine, read-only; native only) or the name of an image", "@image" },
    { "runtime", 0, "NAME", "runtime of the docker engine, e.g. runsc or kata; 'default' is the engine's default", "default" },
    { "cache", 0, "TOOL=MODE", "cache mode of a tool: layered (default), private, shared[:GROUP], readonly or off; 'all' sets the mode of every tool without a --cache of its own; may be repeated", NULL },
    { "network", 0, "MODE", "network access: none, packages (the package cache only; default) or open", "none packages open" },
    { "isolation", 0, "LEVEL", "shared (default); strict: share no files of images or caches with other sandboxes (engine native with an image of the image store, not 'host'); or confined: weaker, without namespaces, for machines that have none (engine native)", "shared strict confined" },
    { "mount", 'v', "SRC[:DST][:OPTION]", "mount a folder of this machine; without DST at its own path, e.g. '.'; OPTION is ro or no_root_squash; may be repeated", "@dir" },
    { "ports", 0, "PORT[,PORT...]", "with isolation confined: ports of this machine's loopback that commands may listen on; may be repeated", NULL },
    { "label", 0, "KEY=VALUE", "attach a label; may be repeated", NULL },
    { 0 },
};
static const struct cli_option lease_options[] = {
    { "idle-stop", 0, "DURATION", "stop the sandbox after this time without a command, e.g. 30m; 0s: never", NULL },
    { "max-life", 0, "DURATION", "stop the sandbox this long after its start, even if a command runs, e.g. 8h; 0s: never", NULL },
    { "rm-after", 0, "DURATION", "remove the sandbox after it was stopped for this long, e.g. 7d; 0s: never", NULL },
    { 0 },
};
static const struct cli_option limits_options[] = {
    { "memory", 0, "SIZE", "memory, without swap, e.g. 512M (default: 4G)", NULL },
    { "cpus", 0, "N", "number of processors, e.g. 0.5 (default: 2)", NULL },
    { "pids", 0, "N", "number of processes and threads (default: 300)", NULL },
    { "disk", 0, "SIZE", "disk space, e.g. 10G", NULL },
    { "nofile", 0, "N", "number of open files per process", NULL },
    { "tmpfs", 0, "NAME=SIZE", "size of /tmp, /run or /scratch, e.g. tmp=256M; may be repeated", NULL },
    { 0 },
};
static const struct cli_option place_options[] = {
    { "env", 'e', "KEY[=VALUE]", "set an environment variable; KEY alone passes the value of this shell on, or nothing if it is not set here; may be repeated", NULL },
    { "workdir", 'w', "DIR", "working folder (default: /home/agent); for a command, a relative DIR is below the sandbox's working folder", NULL },
    { "user", 'u', "USER", "user in the sandbox: name, UID or UID:GID (default: agent)", NULL },
    { 0 },
};
static const struct cli_option exec_options[] = {
    { "timeout", 0, "DURATION", "kill the command and all processes that it started after this time, e.g. 90s", NULL },
    { "idle-timeout", 0, "DURATION", "kill the command and its processes after this time without output", NULL },
    { "secret", 0, "NAME=@FILE", "pass a secret as a file in $RIPCORD_SECRETS; @- reads standard input; NAME alone takes the value from the environment; may be repeated", NULL },
    { "detach", 'd', NULL, "print the id of the exec and leave it running", NULL },
    { "stats", 0, NULL, "print the resource usage and the package cache statistics of the command on stderr", NULL },
    { 0 },
};
static const struct cli_option terminal_options[] = {
    { "interactive", 'i', NULL, "send standard input to the command", NULL },
    { "tty", 't', NULL, "run the command on a terminal; Ctrl-P Ctrl-Q detaches from it", NULL },
    { 0 },
};
/* clang-format on */

const struct cli_group spec_group = {"Sandbox", spec_options};
const struct cli_group lease_group = {"Leases", lease_options};
const struct cli_group limits_group = {"Limits", limits_options};
const struct cli_group place_group = {"Environment", place_options};
const struct cli_group exec_group = {"Command", exec_options};
const struct cli_group terminal_group = {"Terminal", terminal_options};

int spec_set_text(json_t *obj, const char *key, const char *value, struct err *err)
{
    json_t *text = json_string(value);

    if (!text)
        return err_set(err, ERR_INVALID, "the value of '%s' is not valid UTF-8", key);
    json_object_set_new(obj, key, text);
    return 0;
}

static int cli_spec_set_option(json_t *obj, const char *key, const struct cli_args *a,
                               const char *name, struct err *err)
{
    const char *v = args_get(a, name);

    if (!v)
        return 0;
    if (!*v)
        return err_set(err, ERR_INVALID, "--%s must not be empty", name);
    return spec_set_text(obj, key, v, err);
}

static int cli_spec_set_size(json_t *obj, const char *key, const struct cli_args *a,
                             const char *name, uint64_t min, struct err *err)
{
    uint64_t v = 0;
    int r = args_size(a, name, min, SPEC_BYTES_MAX, &v, err);

    if (r < 0 || !args_has(a, name))
        return r;
    json_object_set_new(obj, key, json_integer((json_int_t)v));
    return 0;
}

static int cli_spec_set_number(json_t *obj, const char *key, const struct cli_args *a,
                               const char *name, uint64_t min, uint64_t max, struct err *err)
{
    uint64_t v = 0;
    int r = args_u64(a, name, min, max, &v, err);

    if (r < 0 || !args_has(a, name))
        return r;
    json_object_set_new(obj, key, json_integer((json_int_t)v));
    return 0;
}

static int cli_spec_set_duration(json_t *obj, const char *key, const struct cli_args *a,
                                 const char *name, uint64_t max, struct err *err)
{
    uint64_t v = 0;
    int r = args_duration_ms(a, name, max, &v, err);

    if (r < 0 || !args_has(a, name))
        return r;
    json_object_set_new(obj, key, json_integer((json_int_t)v));
    return 0;
}

static int cli_spec_set_cpus(json_t *obj, const struct cli_args *a, struct err *err)
{
    const char *v = args_get(a, "cpus");
    uint32_t milli;

    if (!v)
        return 0;
    if (parse_cpus(v, SPEC_CPUS_MIN_MILLI, SPEC_CPUS_MAX_MILLI, &milli, err) < 0)
        return err_wrap(err, "--cpus");
    json_object_set_new(obj, "cpus",
                        milli % 1000 ? json_real(milli / 1000.0) : json_integer(milli / 1000));
    return 0;
}

/* Adds KEY=VALUE. */
static int cli_spec_add_pair(json_t *obj, const char *name, const char *v, struct err *err)
{
    const char *eq = strchr(v, '=');
    _cleanup_free_ char *key = NULL;

    if (!eq || eq == v)
        return err_set(err, ERR_INVALID, "--%s: '%s' must have the form KEY=VALUE", name, v);
    key = xstrndup(v, (size_t)(eq - v));
    return spec_set_text(obj, key, eq + 1, err);
}

static int cli_spec_set_pairs(json_t *doc, const char *member, const struct cli_args *a,
                              const char *name, struct err *err)
{
    _cleanup_json_ json_t *obj = json_object();
    const char *v;

    for (size_t i = 0; (v = args_next(a, name, &i));) {
        int r = cli_spec_add_pair(obj, name, v, err);

        if (r < 0)
            return r;
    }
    if (json_object_size(obj))
        json_object_set(doc, member, obj);
    return 0;
}

/* KEY alone takes our value. As with Docker, a variable that we do not have is left out. */
static int cli_spec_add_env(json_t *env, const char *v, struct err *err)
{
    _cleanup_free_ char *own = strchr(v, '=') ? NULL : xasprintf("%s=", v), *full = NULL;
    const char *value = own ? getenv(v) : NULL;

    if (parse_env(own ? own : v, err) < 0)
        return err_wrap(err, "--env");
    if (!own)
        return cli_spec_add_pair(env, "env", v, err);
    full = xasprintf("%s%s", own, value ? value : "");
    return value ? cli_spec_add_pair(env, "env", full, err) : 0;
}

static int cli_spec_set_env(json_t *doc, const struct cli_args *a, struct err *err)
{
    _cleanup_json_ json_t *env = json_object();
    const char *v;

    for (size_t i = 0; (v = args_next(a, "env", &i));) {
        int r = cli_spec_add_env(env, v, err);

        if (r < 0)
            return r;
    }
    if (json_object_size(env))
        json_object_set(doc, "env", env);
    return 0;
}

static int cli_spec_set_tmpfs(json_t *doc, const struct cli_args *a, struct err *err)
{
    static const char *const names[] = {"tmp", "run", "scratch"};
    _cleanup_json_ json_t *obj = json_object();
    const char *v;

    for (size_t i = 0; (v = args_next(a, "tmpfs", &i));) {
        const char *eq = strchr(v, '='), *hit = NULL;
        uint64_t size;
        int r;

        for (size_t k = 0; eq && k < ARRAY_SIZE(names); k++)
            if (strlen(names[k]) == (size_t)(eq - v) && memcmp(names[k], v, (size_t)(eq - v)) == 0)
                hit = names[k];
        if (!hit)
            return err_set(
                err, ERR_INVALID,
                "--tmpfs: '%s' must have the form NAME=SIZE with NAME tmp, run or scratch", v);
        if (parse_size(eq + 1, &size, err) < 0)
            return err_wrap(err, "--tmpfs");
        r = parse_check_range("the size of --tmpfs", size, SPEC_TMPFS_MIN, SPEC_BYTES_MAX,
                              PARSE_BYTES, err);
        if (r < 0)
            return r;
        json_object_set_new(obj, hit, json_integer((json_int_t)size));
    }
    if (json_object_size(obj))
        json_object_set(doc, "tmpfs", obj);
    return 0;
}

/* Cuts SRC[:DST][:OPTION]. *dst: NULL for the path of SRC. False: another form. */
static bool cli_spec_cut_mount(char *text, const char **src, const char **dst, const char **option)
{
    char *rest = text, *second;

    *src = strsep(&rest, ":");
    second = strsep(&rest, ":");
    *dst = second && *second == '/' ? second : NULL;
    *option = rest ? rest : second && !*dst ? second : "rw";
    return **src && !(second && !*dst && rest) &&
           (STREQ(*option, "rw") || STREQ(*option, "ro") || STREQ(*option, "no_root_squash"));
}

/* A relative SRC is resolved here, because the daemon has another working folder. */
static int cli_spec_find_source(const char *src, char **ret, struct err *err)
{
    *ret = realpath(src, NULL);
    if (*ret)
        return 0;
    err_set(err, ERR_INVALID, "--mount: '%s': %s", src, strerror(errno));
    if (errno != ENOENT || strchr(src, '/'))
        return -ERR_INVALID;
    return err_hint(err, "There are no named volumes: SRC is a folder of this machine.");
}

static int cli_spec_add_mount(json_t *array, const char *v, struct err *err)
{
    _cleanup_free_ char *copy = xstrdup(v), *absolute = NULL;
    _cleanup_json_ json_t *m = json_object();
    const char *src, *dst, *option;
    int r;

    if (!cli_spec_cut_mount(copy, &src, &dst, &option))
        return err_set(err, ERR_INVALID,
                       "--mount: '%s' must have the form SRC[:DST][:ro|:no_root_squash] with an "
                       "absolute DST",
                       v);
    r = cli_spec_find_source(src, &absolute, err);
    if (r < 0)
        return r;
    r = spec_set_text(m, "source", absolute, err);
    if (r < 0)
        return r;
    r = spec_set_text(m, "target", dst ? dst : absolute, err);
    if (r < 0)
        return r;
    json_object_set_new(m, "read_only", json_boolean(STREQ(option, "ro")));
    if (STREQ(option, "no_root_squash"))
        json_object_set_new(m, "no_root_squash", json_true());
    json_array_append(array, m);
    return 0;
}

static int cli_spec_set_mounts(json_t *doc, const struct cli_args *a, struct err *err)
{
    _cleanup_json_ json_t *array = json_array();
    const char *v;

    for (size_t i = 0; (v = args_next(a, "mount", &i));) {
        int r = cli_spec_add_mount(array, v, err);

        if (r < 0)
            return r;
    }
    if (json_array_size(array))
        json_object_set(doc, "mounts", array);
    return 0;
}

static int cli_spec_set_ports(json_t *doc, const struct cli_args *a, struct err *err)
{
    _cleanup_json_ json_t *array = json_array();
    const char *v;

    for (size_t i = 0; (v = args_next(a, "ports", &i));) {
        _cleanup_free_ char *copy = xstrdup(v);

        for (char *rest = copy, *one; (one = strsep(&rest, ","));) {
            uint64_t port;

            if (parse_u64(one, SPEC_PORT_MIN, SPEC_PORT_MAX, &port, err) < 0)
                return err_wrap(err, "--ports");
            json_array_append_new(array, json_integer((json_int_t)port));
        }
    }
    if (json_array_size(array))
        json_object_set(doc, "ports", array);
    return 0;
}

static int cli_spec_set_limits(json_t *doc, const struct cli_args *a, struct err *err)
{
    _cleanup_json_ json_t *limits = json_object();
    int r;

    if ((r = cli_spec_set_size(limits, "memory", a, "memory", SPEC_MEMORY_MIN, err)) < 0 ||
        (r = cli_spec_set_cpus(limits, a, err)) < 0 ||
        (r = cli_spec_set_number(limits, "pids", a, "pids", SPEC_PIDS_MIN, SPEC_PIDS_MAX, err)) <
            0 ||
        (r = cli_spec_set_size(limits, "disk", a, "disk", SPEC_DISK_MIN, err)) < 0 ||
        (r = cli_spec_set_number(limits, "nofile", a, "nofile", SPEC_NOFILE_MIN, SPEC_NOFILE_MAX,
                                 err)) < 0)
        return r;
    if (json_object_size(limits))
        json_object_set(doc, "limits", limits);
    return cli_spec_set_tmpfs(doc, a, err);
}

/* The folder of this shell means nothing in a sandbox, so '.' and '..' are mistakes. */
static int cli_spec_check_workdir(const char *dir, bool of_command, struct err *err)
{
    if (!dir || *dir == '/')
        return 0;
    if (!of_command) {
        err_set(err, ERR_INVALID, "--workdir: '%s' is not an absolute path", dir);
        return err_hint(err, "Only 'run' and 'exec' take a path below the working folder.");
    }
    if (*dir != '.' || (dir[1] && dir[1] != '/' && dir[1] != '.'))
        return 0;
    err_set(err, ERR_INVALID, "--workdir: '%s' must be a path without '.', '..' or '//'", dir);
    return err_hint(err, "For this folder, mount it at its own path: --mount . --workdir \"$PWD\"");
}

/* env, workdir and user have the same meaning in SPEC and EXECSPEC, but for a relative workdir. */
static int cli_spec_set_place(json_t *doc, const struct cli_args *a, bool of_command,
                              struct err *err)
{
    const char *user = args_get(a, "user"), *dir = args_get(a, "workdir");
    int r;

    if (user && parse_user(user, err) < 0)
        return err_wrap(err, "--user");
    r = cli_spec_check_workdir(dir, of_command, err);
    if (r < 0)
        return r;
    if ((r = cli_spec_set_option(doc, "user", a, "user", err)) < 0 ||
        (r = cli_spec_set_option(doc, "workdir", a, "workdir", err)) < 0)
        return r;
    return cli_spec_set_env(doc, a, err);
}

/* A duration; 0 in any unit removes the lease. */
static int cli_spec_set_lease(json_t *doc, const char *key, const struct cli_args *a,
                              const char *name, struct err *err)
{
    const char *v = args_get(a, name);
    uint64_t usec = 1;

    if (!v || parse_duration(v, &usec, NULL) < 0 || usec)
        return cli_spec_set_duration(doc, key, a, name, SPEC_LEASE_MAX_MS, err);
    json_object_set_new(doc, key, json_integer(0));
    return 0;
}

int leases_from_args(const struct cli_args *a, json_t *doc, struct err *err)
{
    int r = cli_spec_set_lease(doc, "idle_stop_ms", a, "idle-stop", err);

    if (r < 0)
        return r;
    r = cli_spec_set_lease(doc, "max_life_ms", a, "max-life", err);
    if (r < 0)
        return r;
    return cli_spec_set_lease(doc, "rm_after_ms", a, "rm-after", err);
}

int spec_from_args(const struct cli_args *a, bool with_place, json_t **ret, struct err *err)
{
    static const char *const engines[] = {"native", "docker"};
    static const char *const networks[] = {"none", "packages", "open"};
    static const char *const levels[] = {"shared", "strict", "confined"};
    _cleanup_json_ json_t *doc = json_object();
    int r;

    if ((r = args_check_words(a, "engine", engines, ARRAY_SIZE(engines), err)) < 0 ||
        (r = args_check_words(a, "network", networks, ARRAY_SIZE(networks), err)) < 0 ||
        (r = args_check_words(a, "isolation", levels, ARRAY_SIZE(levels), err)) < 0 ||
        (r = cli_spec_set_option(doc, "engine", a, "engine", err)) < 0 ||
        (r = cli_spec_set_option(doc, "image", a, "image", err)) < 0 ||
        (r = cli_spec_set_option(doc, "runtime", a, "runtime", err)) < 0 ||
        (r = cli_spec_set_pairs(doc, "caches", a, "cache", err)) < 0 ||
        (r = cli_spec_set_option(doc, "network", a, "network", err)) < 0 ||
        (r = cli_spec_set_option(doc, "isolation", a, "isolation", err)) < 0 ||
        (r = cli_spec_set_limits(doc, a, err)) < 0 || (r = cli_spec_set_mounts(doc, a, err)) < 0 ||
        (r = cli_spec_set_ports(doc, a, err)) < 0 ||
        (r = cli_spec_set_pairs(doc, "labels", a, "label", err)) < 0 ||
        (r = leases_from_args(a, doc, err)) < 0)
        return r;
    if (with_place && (r = cli_spec_set_place(doc, a, false, err)) < 0)
        return r;
    *ret = TAKE_PTR(doc);
    return 0;
}

static int cli_spec_set_argv(json_t *doc, char *const *argv, struct err *err)
{
    _cleanup_json_ json_t *array = json_array();

    for (size_t i = 0; argv[i]; i++) {
        json_t *arg = json_string(argv[i]);

        if (!arg)
            return err_set(err, ERR_INVALID, "argument %zu of the command is not valid UTF-8", i);
        json_array_append_new(array, arg);
    }
    if (!argv[0] || !*argv[0])
        return err_set(err, ERR_INVALID, "the command must not be empty");
    json_object_set(doc, "argv", array);
    return 0;
}

int exec_spec_from_args(const struct cli_args *a, char *const *argv, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *doc = json_object();
    int r;

    if ((r = cli_spec_set_argv(doc, argv, err)) < 0 ||
        (r = cli_spec_set_place(doc, a, true, err)) < 0 ||
        (r = cli_spec_set_duration(doc, "timeout_ms", a, "timeout", SPEC_TIMEOUT_MAX_MS, err)) <
            0 ||
        (r = cli_spec_set_duration(doc, "idle_timeout_ms", a, "idle-timeout", SPEC_TIMEOUT_MAX_MS,
                                   err)) < 0 ||
        (r = secrets_from_args(a, doc, err)) < 0)
        return r;
    if (args_has(a, "interactive"))
        json_object_set_new(doc, "stdin", json_true());
    if (args_has(a, "tty"))
        json_object_set_new(doc, "tty", json_true());
    if (args_has(a, "stats"))
        json_object_set_new(doc, "stats", json_true());
    *ret = TAKE_PTR(doc);
    return 0;
}
