/* ripcord cache: the package cache, the caches of tools and the cache mounts of builds. */
#include <string.h>

#include "cli/cache-mounts.h"
#include "cli/cache-tools.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

static const char *size_of(const json_t *obj, const char *key, char buf[static FORMAT_MAX])
{
    return format_size(json_number_of(obj, key), buf);
}

/* ---- ls ---- */

static void print_files(const json_t *files)
{
    static const char *const titles[] = {"FILE", "SIZE", "USED", "DIGEST"};
    struct table *t = table_new(titles, ARRAY_SIZE(titles));
    const json_t *f;
    size_t i;

    json_array_foreach (files, i, f) {
        char size[FORMAT_MAX], age[AGE_MAX], text[TIME_FORMAT_MAX];
        const char *used = time_format(json_number_of(f, "last_used") * USEC_PER_SEC, text);

        table_add(t, json_text_of(f, "file"));
        table_add(t, size_of(f, "size", size));
        table_add(t, output_age(used, age));
        table_add(t, json_text_of(f, "digest"));
    }
    table_print(t);
    table_free(t);
}

static int run_ls(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL, *tools = NULL, *mounts = NULL;
    int r;

    (void)args;
    r = cli_call(cli, "GET", "/v1/caches/packages", NULL, &doc, err);
    if (r < 0)
        return r;
    r = cache_tools_list(cli, &tools, err);
    if (r < 0)
        return r;
    r = cache_mounts_list(cli, &mounts, err);
    if (r < 0)
        return r;
    if (cli->json) {
        json_object_set(doc, "tools", json_object_get(tools, "caches"));
        json_object_set(doc, "errors", json_object_get(tools, "errors"));
        json_object_set(doc, "mounts", json_object_get(mounts, "mounts"));
        output_json(doc);
        return 0;
    }
    cache_tools_print(tools);
    if (json_array_size(json_object_get(tools, "caches")) > 0)
        putchar('\n');
    cache_mounts_print(mounts);
    print_files(json_object_get(doc, "files"));
    return 0;
}

/* ---- show ---- */

/* Adds one row. of: the sandbox, or "all"; eco: the ecosystem, e.g. "pypi". */
static void add_counters(struct table *t, const char *of, const char *eco, const json_t *c)
{
    uint64_t refused = json_number_of(c, "denials") + json_number_of(c, "mismatches");
    const uint64_t numbers[] = {json_number_of(c, "hits"), json_number_of(c, "misses")};
    char text[FORMAT_MAX];

    table_add(t, of);
    table_add(t, eco);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        snprintf(text, sizeof(text), "%llu", (unsigned long long)numbers[i]);
        table_add(t, text);
    }
    table_add(t, size_of(c, "bytes_store", text));
    table_add(t, size_of(c, "bytes_upstream", text));
    snprintf(text, sizeof(text), "%llu", (unsigned long long)refused);
    table_add(t, text);
}

static void print_counters(const json_t *doc)
{
    static const char *const titles[] = {"SANDBOX",    "SOURCE",     "HITS",   "MISSES",
                                         "FROM CACHE", "DOWNLOADED", "REFUSED"};
    struct table *t = table_new(titles, ARRAY_SIZE(titles));
    const char *id, *eco;
    json_t *sandbox, *c;

    json_object_foreach (json_object_get(doc, "ecosystems"), eco, c)
        add_counters(t, "all", eco, c);
    json_object_foreach (json_object_get(doc, "sandboxes"), id, sandbox) {
        const char *name = json_text_of(json_object_get(doc, "names"), id);

        json_object_foreach (sandbox, eco, c)
            if (json_number_of(c, "requests"))
                add_counters(t, name ? name : id, eco, c);
    }
    table_print(t);
    table_free(t);
}

static void print_store(const json_t *doc)
{
    const json_t *store = json_object_get(doc, "store"), *u;
    char bytes[FORMAT_MAX], budget[FORMAT_MAX];
    size_t i;

    printf("package cache: %llu file%s, %s of %s\n",
           (unsigned long long)json_number_of(store, "files"),
           json_number_of(store, "files") == 1 ? "" : "s", size_of(store, "bytes", bytes),
           size_of(store, "budget", budget));
    json_array_foreach (json_object_get(doc, "upstreams"), i, u) {
        output_text(stdout, json_text_of(u, "name"));
        fputs(": ", stdout);
        output_text(stdout, json_text_of(u, "url"));
        puts(json_is_true(json_object_get(u, "down")) ? " (not responding)" : "");
    }
    print_counters(doc);
}

static void print_package(const json_t *doc)
{
    static const char *const titles[] = {"FILE", "VERSION", "SIZE", "CACHED"};
    struct table *t = table_new(titles, ARRAY_SIZE(titles));
    const json_t *f;
    size_t i;

    json_array_foreach (json_object_get(doc, "files"), i, f) {
        uint64_t size = json_number_of(f, "size");
        char text[FORMAT_MAX];

        table_add(t, json_text_of(f, "file"));
        table_add(t, json_text_of(f, "version"));
        table_add(t, size ? format_size(size, text) : NULL);
        table_add(t, json_is_true(json_object_get(f, "stored")) ? "yes" : "no");
    }
    table_print(t);
    table_free(t);
}

static int show_all(struct cli *cli, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL, *mounts = NULL;
    int r = cli_call(cli, "GET", "/v1/caches", NULL, &doc, err);

    if (r < 0)
        return r;
    r = cache_mounts_list(cli, &mounts, err);
    if (r < 0)
        return r;
    if (cli->json) {
        json_object_set(doc, "mounts", mounts);
        output_json(doc);
        return 0;
    }
    cache_mounts_print_sum(mounts);
    print_store(doc);
    return 0;
}

static int run_show(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_free_ char *escaped = NULL, *target = NULL;
    _cleanup_json_ json_t *doc = NULL, *one = NULL;
    int r;

    if (args->n_words < 2)
        return show_all(cli, err);
    escaped = client_escape(args->words[1]);
    target = xasprintf("/v1/caches/packages/show?of=%s", escaped);
    r = cli_call(cli, "GET", target, NULL, &doc, err);
    if (r < 0)
        return r;
    if (cli->json) {
        output_json(doc);
    } else if (json_object_get(doc, "files")) {
        print_package(doc);
    } else {
        one = json_pack("[O]", doc);
        print_files(one);
    }
    return 0;
}

/* ---- verify, prune ---- */

static int run_verify(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL, *body = json_object();
    int r = cli_call(cli, "POST", "/v1/caches/packages/verify", body, &doc, err);
    const json_t *bad, *d;
    char bytes[FORMAT_MAX];
    size_t i;

    (void)args;
    if (r < 0)
        return r;
    bad = json_object_get(doc, "bad");
    if (cli->json) {
        output_json(doc);
        return json_array_size(bad) ? 1 : 0;
    }
    printf("checked %llu files, %s: %zu corrupt\n",
           (unsigned long long)json_number_of(doc, "checked"), size_of(doc, "bytes", bytes),
           json_array_size(bad));
    json_array_foreach (bad, i, d) {
        fputs("removed: ", stdout);
        output_text(stdout, json_string_value(d));
        putchar('\n');
    }
    return json_array_size(bad) ? 1 : 0;
}

static int read_limits(const struct cli_args *args, json_t *body, struct err *err)
{
    uint64_t keep = 0, unused = 0;
    int r = args_size(args, "keep", 0, INT64_MAX, &keep, err);

    if (r < 0)
        return r;
    r = args_duration_ms(args, "unused", SPEC_LEASE_MAX_MS, &unused, err);
    if (r < 0)
        return r;
    if (args_has(args, "keep"))
        json_object_set_new(body, "keep", json_integer((json_int_t)keep));
    if (args_has(args, "unused"))
        json_object_set_new(body, "unused_ms", json_integer((json_int_t)unused));
    return 0;
}

static int prune_mounts(struct cli *cli, const json_t *body, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r = cache_mounts_prune(cli, body, &doc, err);

    if (r < 0)
        return r;
    if (cli->json)
        output_json(doc);
    else
        cache_mounts_print_pruned(doc);
    return 0;
}

static int run_prune(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL, *body = json_object();
    char bytes[FORMAT_MAX];
    int r;

    if (args_has(args, "tool") &&
        (args_has(args, "keep") || args_has(args, "unused") || args_has(args, "mounts"))) {
        err_set(err, ERR_INVALID, "--tool cannot be combined with --keep, --unused or --mounts");
        return err_hint(
            err, "Use --tool alone to remove the shared base and the shared stores of a tool.");
    }
    if (args_get(args, "tool"))
        return cache_tools_prune(cli, args_get(args, "tool"), err);
    r = read_limits(args, body, err);
    if (r < 0)
        return r;
    if (args_has(args, "mounts"))
        return prune_mounts(cli, body, err);
    r = cli_call(cli, "POST", "/v1/caches/packages/prune", body, &doc, err);
    if (r < 0)
        return r;
    if (cli->json)
        output_json(doc);
    else
        printf("removed %llu files, %s\n", (unsigned long long)json_number_of(doc, "removed"),
               size_of(doc, "bytes", bytes));
    return 0;
}

/* ---- all of them ---- */

static const struct cli_action actions[] = {
    {"ls", 0, "", run_ls},
    {"show", 1, "", run_show},
    {"verify", 0, "", run_verify},
    {"prune", 0, " keep unused mounts tool ", run_prune},
    {"rm", CLI_ANY, "", cache_mounts_rm},
    {"warm", CLI_ANY, " tool requirements package-lock engine image ", cache_tools_warm},
    {0},
};

static const struct cli_option prune_options[] = {
    {"keep", 0, "SIZE", "remove the least recently used files until SIZE is left; 0 removes all",
     NULL},
    {"unused", 0, "DURATION", "remove files that were not used for this long, e.g. 30d", NULL},
    {"mounts", 0, NULL, "prune the cache mounts of builds instead of the package cache", NULL},
    {0},
};
static const struct cli_option tool_options[] = {
    {"tool", 0, "TOOL",
     "prune: remove the shared base and the shared stores of this tool ('all': every tool); warm: "
     "fill the shared base of this tool",
     "pip npm uv pnpm yarn all"},
    {0},
};
static const struct cli_option warm_options[] = {
    {"requirements", 0, "FILE", "download the packages of a requirements file (pip, uv)", "@file"},
    {"package-lock", 0, "FILE", "download the packages of a package-lock.json (npm)", "@file"},
    {"engine", 0, "NAME", "fill the base for sandboxes of this engine", "native docker"},
    {"image", 0, "IMAGE", "use the tool of this image", "@image"},
    {0},
};
static const struct cli_group prune_group = {"Options of prune", prune_options};
static const struct cli_group tool_group = {"Options of prune and warm", tool_options};
static const struct cli_group warm_group = {"Options of warm", warm_options};
static const struct cli_group *const groups[] = {&prune_group, &tool_group, &warm_group, NULL};

const struct cli_command cmd_cache = {
    .name = "cache",
    .summary = "show, check and clean the caches",
    .usage =
        "cache ls | show [PACKAGE] | verify | prune [options] | rm MOUNT... | warm --tool TOOL "
        "[options] [PACKAGE...]",
    .details =
        "There are three kinds of caches. The package cache stores every package file that a "
        "sandbox with network 'packages' downloads, and checks each file against the digest in "
        "the registry's index. Tool caches are the caches that pip, npm, uv, pnpm and yarn keep "
        "themselves, below /cache in each sandbox (see --cache of 'up' and 'run'). A tool cache "
        "has a base, which 'warm' fills and all sandboxes read, and, in mode 'shared', a store "
        "that the sandboxes of one group write. Cache mounts belong to "
        "builds (RUN --mount=type=cache).\n\n"
        "ls lists tool caches, cache mounts and the files of the package cache.\n\n"
        "show prints the size of the package cache, its upstream registries, and the hits and "
        "misses. With pypi/NAME, npm/NAME or a digest it shows that package or file.\n\n"
        "verify reads every file of the package cache again and removes corrupt files. The exit "
        "status is 1 if a file was corrupt.\n\n"
        "prune removes the least recently used files until the package cache fits its budget "
        "(packages.budget in ripcord.yaml(5)). The options set other limits. With --mounts it "
        "prunes cache mounts. With --tool it removes the base and the shared stores of a tool.\n\n"
        "rm removes single cache mounts by id. The id of a mount is its id in the Dockerfile, or "
        "its target if it has no id. All cache mounts share one budget (build.mounts_budget): "
        "after a build, the least recently used mounts are removed until the budget is met. "
        "Mounts in use are never removed.\n\n"
        "warm fills the base of a tool's cache. All sandboxes see the base below their private "
        "layer, and no sandbox can change it. The tool downloads the packages in a throw-away "
        "sandbox that can reach only the package cache. No code of a package runs there.",
    .examples =
        "ripcord cache show\tshow size, hits and misses\n"
        "ripcord cache show pypi/requests\tlist the cached releases of a package\n"
        "ripcord cache prune --unused 30d\tremove files that were not used for 30 days\n"
        "ripcord cache rm /root/.cache/pip\tremove a cache mount of builds\n"
        "ripcord cache warm --tool pip requests==2.32.3\tprepare a package for every new "
        "sandbox\n"
        "ripcord cache warm --tool npm --package-lock package-lock.json\tprepare all packages of "
        "a project",
    .groups = groups,
    .actions = actions,
    .words = "ls show verify prune rm warm",
    .complete = "word",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = cli_run_action,
};
