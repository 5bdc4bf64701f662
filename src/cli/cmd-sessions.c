/* ripcord sessions: lists, shows and cancels the agent sessions of a sandbox. */
#include <string.h>

#include "cli/cli.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/state.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

static void add_row(struct table *t, const json_t *s)
{
    char end[STATE_END_MAX], age[AGE_MAX], time[FORMAT_MAX];
    const json_t *argv = json_object_get(s, "argv");

    table_add(t, json_text_of(s, "id"));
    table_add(t, state_end(s, end));
    table_color(t, state_color(json_text_of(s, "state")));
    table_add(t, output_age(json_text_of(s, "started_at"), age));
    table_add(t, state_duration(s, time));
    table_add(t, json_string_value(json_array_get(argv, 0)));
}

static void print_table(const json_t *list)
{
    static const char *const titles[] = {"SESSION", "STATE", "STARTED", "TIME", "AGENT"};
    struct table *t = table_new(titles, ARRAY_SIZE(titles));
    const json_t *s;
    size_t i;

    json_array_foreach (list, i, s)
        add_row(t, s);
    table_print(t);
    table_free(t);
}

static int list(struct cli *cli, const char *sandbox, struct err *err)
{
    _cleanup_free_ char *target = xasprintf("/v1/sandboxes/%s/sessions", sandbox);
    _cleanup_json_ json_t *doc = NULL;
    int r = cli_call(cli, "GET", target, NULL, &doc, err);

    if (r < 0)
        return r;
    if (cli->json)
        output_json(doc);
    else
        print_table(json_object_get(doc, "sessions"));
    return 0;
}

static int cancel(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_free_ char *target =
        xasprintf("/v1/sandboxes/%s/sessions/%s/cancel", args->words[0], args->words[1]);
    _cleanup_json_ json_t *body = json_object(), *doc = NULL;
    uint64_t grace = 0;
    int r = args_duration_ms(args, "grace", SPEC_CANCEL_GRACE_MAX_MS, &grace, err);

    if (r < 0)
        return r;
    if (args_has(args, "grace"))
        json_object_set_new(body, "grace_ms", json_integer((json_int_t)grace));
    r = cli_call(cli, "POST", target, body, &doc, err);
    if (r < 0)
        return r;
    if (cli->json)
        output_json(doc);
    return 0;
}

static int show(struct cli *cli, const char *sandbox, const char *id, struct err *err)
{
    _cleanup_free_ char *target = xasprintf("/v1/sandboxes/%s/sessions/%s", sandbox, id);
    _cleanup_json_ json_t *doc = NULL, *one = NULL;
    int r = cli_call(cli, "GET", target, NULL, &doc, err);

    if (r < 0)
        return r;
    if (cli->json) {
        output_json(doc);
        return 0;
    }
    one = json_pack("[O]", json_object_get(doc, "session"));
    print_table(one);
    return 0;
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    int r = parse_name("sandbox name", args->words[0], err);

    if (r < 0)
        return r;
    if (args->n_words > 1 && (r = exec_parse(args->words[1], err)) < 0)
        return r;
    if (args_has(args, "cancel") && args->n_words < 2)
        return err_set(err, ERR_INVALID, "--cancel needs the id of a session");
    if (args_has(args, "grace") && !args_has(args, "cancel"))
        return err_set(err, ERR_INVALID, "--grace needs --cancel");
    if (args->n_words < 2)
        return list(cli, args->words[0], err);
    if (args_has(args, "cancel"))
        return cancel(cli, args, err);
    return show(cli, args->words[0], args->words[1], err);
}

static const struct cli_option options[] = {
    {"cancel", 0, NULL, "end the session: send SIGTERM, then kill all its processes after --grace",
     NULL},
    {"grace", 0, "DURATION", "with --cancel: time between SIGTERM and SIGKILL (default: 5s)", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_sessions = {
    .name = "sessions",
    .summary = "list, show or cancel agent sessions",
    .usage = "sessions NAME [SESSION] [options]",
    .details =
        "Lists the agent sessions of the sandbox, newest first, and how they ended. With SESSION "
        "it shows or cancels one session. 'ripcord session NAME --resume SESSION' prints the "
        "events of a session.",
    .examples = "ripcord sessions box\tlist all sessions\n"
                "ripcord sessions box last --cancel\tcancel the newest session",
    .groups = groups,
    .complete = "sandbox exec",
    .min_args = 1,
    .max_args = 2,
    .stop_after = -1,
    .run = run,
};
