/* ripcord session: runs one turn of an agent: JSON in, JSON lines out. */
#include <string.h>

#include "cli/cli.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/secrets.h"
#include "cli/session-follow.h"
#include "cli/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/jsontext.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

enum { PAYLOAD_MAX = 16 << 20 };

static int set_payload(const struct cli_args *args, json_t *body, struct err *err)
{
    const char *path = args_get(args, "payload");
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    json_t *value;

    if (!path) {
        err_set(err, ERR_INVALID, "--payload is missing");
        return err_hint(
            err, "Give the file with the agent's input; '--payload -' reads standard input.");
    }
    if (input_read(path, PAYLOAD_MAX, &text, &len, err) < 0 ||
        json_text_compact(text, &len, err) < 0)
        return err_wrap(err, "--payload '%s'", path);
    value = json_stringn(text, len);
    explicit_bzero(text, len);
    json_object_set_new(body, "payload_text", value);
    return 0;
}

static int make_body(const struct cli_args *args, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *body = NULL;
    int r;

    r = exec_spec_from_args(args, args->words + 1, &body, err);
    if (r < 0)
        return r;
    r = set_payload(args, body, err);
    if (r < 0)
        return r;
    if (args_has(args, "concurrent"))
        json_object_set_new(body, "concurrent", json_true());
    *ret = TAKE_PTR(body);
    return 0;
}

static int start(struct cli *cli, const struct cli_args *args, json_t **ret, struct err *err)
{
    _cleanup_free_ char *target = xasprintf("/v1/sandboxes/%s/sessions", args->words[0]);
    _cleanup_json_ json_t *body = NULL;
    int r = make_body(args, &body, err);

    if (r < 0)
        return r;
    return cli_call(cli, "POST", target, body, ret, err) < 0 ? spec_name_option(err) : 0;
}

static int follow(struct cli *cli, const struct cli_args *args, const char *id, struct err *err)
{
    struct session_follow o = {.sandbox = args->words[0], .session = id};
    int r;

    o.stats = args_has(args, "stats");
    if ((r = args_duration_ms(args, "timeout", SPEC_TIMEOUT_MAX_MS, &o.timeout_ms, err)) < 0 ||
        (r = args_duration_ms(args, "idle-timeout", SPEC_TIMEOUT_MAX_MS, &o.idle_timeout_ms, err)) <
            0 ||
        (r = args_u64(args, "since", 0, INT64_MAX, &o.since, err)) < 0)
        return r;
    return session_follow(cli, &o, err);
}

static int resume(struct cli *cli, const struct cli_args *args, struct err *err)
{
    const char *id = args_get(args, "resume");
    int r = exec_parse(id, err);

    if (r < 0)
        return err_wrap(err, "--resume");
    if (args->n_words > 1 || args_has(args, "payload"))
        return err_set(err, ERR_INVALID, "--resume cannot be combined with a command or --payload");
    return follow(cli, args, id, err);
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const json_t *session;
    int r = parse_name("sandbox name", args->words[0], err);

    if (r < 0)
        return r;
    if (args_has(args, "resume"))
        return resume(cli, args, err);
    if (args->n_words < 2)
        return err_set(err, ERR_INVALID, "the command of the agent is missing");
    if (args_has(args, "since"))
        return err_set(err, ERR_INVALID, "--since needs --resume");
    r = start(cli, args, &doc, err);
    if (r < 0)
        return r;
    session = json_object_get(doc, "session");
    if (!json_text_of(session, "id"))
        return err_set(err, ERR_ENGINE, "the daemon's response has no session");
    if (!args_has(args, "detach"))
        return follow(cli, args, json_text_of(session, "id"), err);
    if (cli->json)
        output_json(doc);
    else
        printf("%s\n", json_text_of(session, "id"));
    return 0;
}

static const struct cli_option options[] = {
    {"payload", 0, "FILE", "file with the agent's input, one JSON value; '-' is standard input",
     "@file"},
    {"concurrent", 0, NULL, "start the session even if another one is active in the sandbox", NULL},
    {"resume", 0, "SESSION", "attach to a running or ended session instead of starting one", NULL},
    {"since", 0, "N", "with --resume: print the events after number N", NULL},
    {0},
};
static const struct cli_group group = {"Session", options};
static const struct cli_group *const groups[] = {&group, &exec_group, &place_group, NULL};

const struct cli_command cmd_session = {
    .name = "session",
    .summary = "run one turn of an agent: JSON in, JSON lines out",
    .usage = "session NAME [options] --payload FILE [--] CMD [ARG...]",
    .details =
        "Runs CMD in the sandbox NAME and writes the payload as one line to its standard input. "
        "Each line of its standard output that is a JSON object is printed unchanged. Other "
        "lines, and all lines of standard error, become {\"type\":\"log\",...}. The last event "
        "is {\"type\":\"exit\",...} with the end record. The exit status is the status of CMD; "
        "125 means that ripcord failed.\n\n"
        "Events are numbered and stored. If this program or the daemon ends, the session "
        "continues; --resume with --since prints the events after the last one you saw. With "
        "--json, each event has its number. Ctrl-C cancels the session.\n\n"
        "Pass credentials in the payload or with --secret. A secret becomes a file in the folder "
        "$RIPCORD_SECRETS that only the agent can read.",
    .examples =
        "ripcord session box --payload turn.json -- ./agent.py\trun one turn\n"
        "ripcord session box --payload - --secret API_KEY -- ./agent.py\tpass a credential from "
        "the environment\n"
        "ripcord session box --resume last --since 120 --json\tcontinue after a lost connection",
    .groups = groups,
    .complete = "sandbox command+",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = 1,
    .flags = CLI_RUNS_COMMAND,
    .run = run,
};
