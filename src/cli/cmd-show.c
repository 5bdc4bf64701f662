/* ripcord show: shows the details of one sandbox. */
#include <string.h>

#include "cli/cli.h"
#include "cli/exec-table.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/state.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { SHOW_LABEL_WIDTH = 15 };

static void label(const char *name)
{
    printf("%s%-*s%s", output_color(stdout, COLOR_BOLD), SHOW_LABEL_WIDTH, name,
           output_color(stdout, COLOR_NONE));
}

static void row(const char *name, const char *value)
{
    if (!value || !*value)
        return;
    label(name);
    output_text(stdout, value);
    putchar('\n');
}

static void print_state(const json_t *sb)
{
    const char *state = json_text_of(sb, "state"), *since = json_text_of(sb, "since");
    char age[AGE_MAX];

    label("State");
    fputs(output_color(stdout, state_color(state)), stdout);
    output_text(stdout, state);
    fputs(output_color(stdout, COLOR_NONE), stdout);
    if (since)
        printf(" for %s", output_age(since, age));
    if (json_text_of(sb, "reason")) {
        fputs(" (", stdout);
        output_text(stdout, json_text_of(sb, "reason"));
        putchar(')');
    }
    putchar('\n');
}

/* A limit as text, or NULL without a limit. The caller frees it. */
static char *limit_text(const char *name, const json_t *value)
{
    char size[FORMAT_MAX];

    if (STREQ(name, "memory") || strncmp(name, "disk", 4) == 0)
        return json_integer_value(value) > 0
                   ? xstrdup(format_size((uint64_t)json_integer_value(value), size))
                   : NULL;
    if (json_is_real(value))
        return xasprintf("%g", json_real_value(value));
    return json_integer_value(value) > 0
               ? xasprintf("%llu", (unsigned long long)json_integer_value(value))
               : NULL;
}

static bool is_unenforced(const json_t *sb, const char *name)
{
    const json_t *v;
    size_t i;

    json_array_foreach (json_object_get(sb, "unenforced"), i, v)
        if (json_is_string(v) && STREQ(json_string_value(v), name))
            return true;
    return false;
}

static void add_limit(char ***parts, const json_t *sb, const char *label, const char *key,
                      const json_t *value)
{
    _cleanup_free_ char *text = limit_text(key, value);

    if (text)
        strv_push(parts,
                  xasprintf("%s %s%s", label, text, is_unenforced(sb, key) ? " (unenforced)" : ""));
}

static void print_limits(const json_t *sb)
{
    static const char *const names[] = {"memory", "cpus", "pids", "disk", "nofile"};
    const json_t *limits = json_object_get(sb, "limits");
    _cleanup_strv_ char **parts = NULL;
    _cleanup_free_ char *line = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        add_limit(&parts, sb, names[i], names[i], json_object_get(limits, names[i]));
    add_limit(&parts, sb, "disk budget", "disk_budget", json_object_get(sb, "disk_budget"));
    line = strv_join(parts, ", ");
    row("Limits", line);
}

static void print_pairs(const char *name, const json_t *obj)
{
    const char *key;
    json_t *v;

    json_object_foreach ((json_t *)obj, key, v) {
        _cleanup_free_ char *pair =
            xasprintf("%s=%s", key, json_string_value(v) ? json_string_value(v) : "");

        row(name, pair);
        name = "";
    }
}

static void print_mounts(const json_t *spec)
{
    const char *name = "Mounts";
    const json_t *m;
    size_t i;

    json_array_foreach (json_object_get(spec, "mounts"), i, m) {
        const char *from = json_text_of(m, "source"), *to = json_text_of(m, "target");
        bool squash_off = json_is_true(json_object_get(m, "no_root_squash"));
        _cleanup_free_ char *line =
            xasprintf("%s on %s%s%s", from ? from : "?", to ? to : "?",
                      json_is_true(json_object_get(m, "read_only")) ? " (read-only)" : "",
                      squash_off ? " (no_root_squash)" : "");

        row(name, line);
        name = "";
    }
}

/* Warnings, for example about limits that are not enforced, or a network without the package
 * cache. */
static void print_notes(const json_t *warnings)
{
    const char *name = "Notes";
    const json_t *w;
    size_t i;

    json_array_foreach (warnings, i, w) {
        row(name, json_string_value(w));
        name = "";
    }
}

/* How commands in the sandbox reach the package cache. */
static void print_package_cache(const json_t *doc)
{
    const char *way = json_text_of(doc, "package_cache");

    if (way)
        row("Package cache", STREQ(way, "stream")
                                 ? "through the engine's stream to a listener in the sandbox"
                                 : "through a socket in the sandbox's network");
}

static void print_ports(const json_t *spec)
{
    _cleanup_strv_ char **list = NULL;
    _cleanup_free_ char *text = NULL;
    const json_t *port;
    size_t i;

    json_array_foreach (json_object_get(spec, "ports"), i, port)
        strv_push(&list, xasprintf("%lld", (long long)json_integer_value(port)));
    text = list ? strv_join(list, ", ") : NULL;
    row("Ports", text);
}

/* The package cache statistics for each ecosystem with requests. */
static void print_packages(const json_t *packages)
{
    const char *name = "Packages", *kind;
    char bytes[FORMAT_MAX];
    json_t *c;

    json_object_foreach ((json_t *)packages, kind, c) {
        _cleanup_free_ char *line =
            xasprintf("%s: %llu hits, %llu misses, %s downloaded", kind,
                      (unsigned long long)json_number_of(c, "hits"),
                      (unsigned long long)json_number_of(c, "misses"),
                      format_size(json_number_of(c, "bytes_upstream"), bytes));

        if (!json_number_of(c, "requests"))
            continue;
        row(name, line);
        name = "";
    }
}

static void print_lease(const json_t *spec, const char *key, const char *title)
{
    uint64_t ms = json_number_of(spec, key);
    char text[FORMAT_MAX];

    if (ms)
        row(title, format_duration(ms * USEC_PER_MSEC, text));
}

/* "stops in 29m (idle_stop)" */
static void print_expiry(const json_t *expires)
{
    const char *action = json_text_of(expires, "action"), *by = json_text_of(expires, "by");
    uint64_t in = json_number_of(expires, "in_ms") / 1000 * USEC_PER_SEC;
    _cleanup_free_ char *line = NULL;
    char text[FORMAT_MAX];

    if (!action || !by)
        return;
    line = xasprintf("%s in %s (%s)", STREQ(action, "stop") ? "stops" : "is removed",
                     format_duration(in, text), by);
    row("Expires", line);
}

static void print(const json_t *sb)
{
    const json_t *spec = json_object_get(sb, "spec");
    char age[AGE_MAX], text[FORMAT_MAX];

    row("Name", json_text_of(sb, "name"));
    print_state(sb);
    row("Engine", json_text_of(sb, "engine"));
    row("Image", json_text_of(sb, "image"));
    row("Runtime", json_text_of(spec, "runtime"));
    row("Network", json_text_of(sb, "network"));
    row("Isolation", json_text_of(spec, "isolation")); /* only one that was asked for */
    print_ports(spec);
    print_limits(sb);
    snprintf(text, sizeof(text), "%llu running",
             (unsigned long long)json_number_of(sb, "execs_live"));
    row("Execs", text);
    row("User", json_text_of(spec, "user"));
    row("Workdir", json_text_of(spec, "workdir"));
    print_mounts(spec);
    print_pairs("Caches", json_object_get(spec, "caches"));
    print_pairs("Env", json_object_get(spec, "env"));
    print_pairs("Labels", json_object_get(spec, "labels"));
    print_lease(spec, "idle_stop_ms", "Idle stop");
    print_lease(spec, "max_life_ms", "Max life");
    print_lease(spec, "rm_after_ms", "Rm after");
    print_expiry(json_object_get(sb, "expires"));
    if (json_is_true(json_object_get(sb, "ephemeral")))
        row("Ephemeral", "yes: removed when its command ends");
    snprintf(text, sizeof(text), "%s ago", output_age(json_text_of(sb, "created_at"), age));
    row("Created", text);
    row("Id", json_text_of(sb, "id"));
    row("Hash", json_text_of(sb, "hash"));
}

/* Adds the members "execs" and "totals" to doc. */
static int add_execs(struct cli *cli, const char *name, json_t *doc, struct err *err)
{
    _cleanup_free_ char *target = xasprintf("/v1/sandboxes/%s/execs", name);
    _cleanup_json_ json_t *execs = NULL;
    int r = cli_call(cli, "GET", target, NULL, &execs, err);

    if (r < 0)
        return r;
    json_object_update_missing(doc, execs);
    return 0;
}

static void print_all(const json_t *doc)
{
    print(json_object_get(doc, "sandbox"));
    print_package_cache(doc);
    print_packages(json_object_get(doc, "packages"));
    print_notes(json_object_get(doc, "warnings"));
    if (!json_object_get(doc, "execs"))
        return;
    putchar('\n');
    exec_table(json_object_get(doc, "execs"), true, false);
    putchar('\n');
    exec_totals(json_object_get(doc, "totals"));
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_free_ char *target = NULL;
    _cleanup_json_ json_t *doc = NULL;
    int r = parse_name("sandbox name", args->words[0], err);

    if (r < 0)
        return r;
    target = xasprintf("/v1/sandboxes/%s", args->words[0]);
    r = cli_call(cli, "GET", target, NULL, &doc, err);
    if (r < 0)
        return r;
    if (args_has(args, "execs") && (r = add_execs(cli, args->words[0], doc, err)) < 0)
        return r;
    if (cli->json)
        output_json(doc);
    else
        print_all(doc);
    return 0;
}

static const struct cli_option options[] = {
    {"execs", 0, NULL, "list its execs, how they ended and their resource usage", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_show = {
    .name = "show",
    .summary = "show the details of one sandbox",
    .usage = "show NAME [options]",
    .examples = "ripcord show box --json | jq .sandbox.state\tprint the state for programs\n"
                "ripcord show box --execs\tinclude the execs and their usage",
    .groups = groups,
    .complete = "sandbox",
    .min_args = 1,
    .max_args = 1,
    .stop_after = -1,
    .run = run,
};
