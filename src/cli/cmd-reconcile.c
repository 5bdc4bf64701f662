/* ripcord reconcile: compares the database with the engines. */
#include <poll.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { LOOK_EVERY_MS = 250 };

/* ---- while it goes on ---- */

static void show_progress(struct client *other)
{
    _cleanup_json_ json_t *doc = NULL;
    const json_t *run, *counts;

    if (client_call(other, "GET", "/v1/reconcile?brief=1", NULL, &doc, NULL) < 0)
        return;
    run = json_object_get(doc, "reconcile");
    counts = json_object_get(run, "counts");
    fprintf(stderr, "\r\033[K%llu of %llu checked, %llu removed, %llu failed",
            (unsigned long long)json_number_of(run, "finished"),
            (unsigned long long)json_number_of(run, "total"),
            (unsigned long long)json_number_of(counts, "removed"),
            (unsigned long long)json_number_of(counts, "failed"));
    fflush(stderr);
}

/* Called when the response is slow. Shows the progress, which a second connection polls, until the
 * response arrives. */
static void on_slow(void *userdata)
{
    struct client *c = userdata;
    struct pollfd p = {.fd = c->http.fd, .events = POLLIN};
    _cleanup_client_ struct client other;

    client_init_like(&other, c);
    other.on_slow = NULL;
    do
        show_progress(&other);
    while (poll(&p, 1, LOOK_EVERY_MS) == 0);
    fputs("\r\033[K", stderr);
}

/* ---- the report ---- */

static bool is_noteworthy(const json_t *item)
{
    const char *action = json_text_of(item, "action"), *result = json_text_of(item, "result");

    return !action || !result || !STREQ(action, "adopt") || !STREQ(result, "done") ||
           json_text_of(item, "reason");
}

static enum output_color color_of(const char *result)
{
    if (!result)
        return COLOR_NONE;
    return STREQ(result, "failed")     ? COLOR_RED
           : STREQ(result, "deferred") ? COLOR_YELLOW
           : STREQ(result, "done")     ? COLOR_GREEN
                                       : COLOR_NONE;
}

static void print_results(const json_t *results)
{
    static const char *const titles[] = {"ENGINE", "OBJECT", "NAME", "ACTION", "RESULT", "REASON"};
    struct table *t = table_new(titles, ARRAY_SIZE(titles));
    bool any = false;
    const json_t *item;
    size_t i;

    json_array_foreach (results, i, item) {
        const char *name = json_text_of(item, "name"), *result = json_text_of(item, "result");

        if (!is_noteworthy(item))
            continue;
        any = true;
        table_add(t, json_text_of(item, "engine"));
        table_add(t, json_text_of(item, "kind"));
        table_add(t, name ? name : json_text_of(item, "id"));
        table_add(t, json_text_of(item, "action"));
        table_add(t, result);
        table_color(t, color_of(result));
        table_add(t, json_text_of(item, "reason"));
    }
    if (any)
        table_shorten(t, ARRAY_SIZE(titles) - 1); /* REASON */
    table_print(t);
    table_free(t);
}

static void print_counts(const json_t *run)
{
    static const char *const names[] = {"adopted",        "recreated", "removed", "cleaned",
                                        "marked_stopped", "deferred",  "failed"};
    static const char *const words[] = {"unchanged",      "re-created", "removed", "cleaned up",
                                        "marked stopped", "deferred",   "failed"};
    const json_t *counts = json_object_get(run, "counts");
    bool dry = json_is_true(json_object_get(run, "dry_run")), first = true;
    char took[FORMAT_MAX];

    fputs(dry ? "plan: " : "", stdout);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        uint64_t n = json_number_of(counts, names[i]);

        if (!n && i > 0)
            continue;
        printf("%s%llu %s", first ? "" : ", ", (unsigned long long)n, words[i]);
        first = false;
    }
    printf(" (%s)\n", format_duration(json_number_of(run, "took_ms") * USEC_PER_MSEC, took));
}

static void print_unreachable(const json_t *list)
{
    const json_t *e;
    size_t i;

    json_array_foreach (list, i, e) {
        fprintf(stderr, "ripcord: engine '%s' was skipped: ", json_text_of(e, "engine"));
        output_text(stderr, json_text_of(e, "reason"));
        fputc('\n', stderr);
    }
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL, *body = json_object();
    const json_t *report;
    struct client *c;
    int r = cli_client(cli, &c, err);

    if (r < 0)
        return r;
    json_object_set_new(body, "dry_run", json_boolean(args_has(args, "dry-run")));
    json_object_set_new(body, "from_engine", json_boolean(args_has(args, "from-engine")));
    c->on_slow = !cli->json && isatty(STDERR_FILENO) ? on_slow : NULL;
    c->userdata = c;
    r = client_call(c, "POST", "/v1/reconcile", body, &doc, err);
    if (r < 0)
        return r;
    report = json_object_get(doc, "reconcile");
    if (cli->json) {
        output_json(doc);
    } else {
        print_results(json_object_get(report, "results"));
        print_counts(report);
        print_unreachable(json_object_get(report, "unreachable"));
    }
    return json_number_of(json_object_get(report, "counts"), "failed") ||
                   json_array_size(json_object_get(report, "unreachable"))
               ? err_code_exit(ERR_SYSTEM)
               : 0;
}

static const struct cli_option options[] = {
    {"dry-run", 'n', NULL, "print the plan and change nothing", NULL},
    {"from-engine", 0, NULL, "add sandboxes that are missing in the database to it", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_reconcile = {
    .name = "reconcile",
    .summary = "compare the database with the engines and repair differences",
    .usage = "reconcile [options]",
    .details =
        "Checks every object of this root on every engine. An object that matches the database "
        "is not changed. An object with an outdated configuration is re-created when it is idle. "
        "Leftovers of crashes and objects of an earlier system (keys 'legacy.*' in ripcord.yaml) "
        "are removed. A sandbox that was removed without ripcord is marked as stopped. A sandbox "
        "in state 'failed' is reported with its reason and not changed. An object in which a "
        "command runs is deferred. A failure is reported with the reason of the engine and "
        "retried later.\n\n"
        "The daemon does the same when it starts and then at intervals (reconcile.interval).\n\n"
        "With --from-engine, sandboxes of this root that are missing in the database are added "
        "to it instead of being removed. Use it after the database was lost.\n\n"
        "The exit status is 1 if an action failed or an engine could not be reached.",
    .examples =
        "ripcord reconcile --dry-run\tprint the plan\n"
        "ripcord reconcile --json | jq '.reconcile.results[] | select(.result == \"failed\")'\t"
        "list the failures\n"
        "ripcord reconcile --from-engine\trestore a lost database",
    .groups = groups,
    .max_args = 0,
    .stop_after = -1,
    .run = run,
};
