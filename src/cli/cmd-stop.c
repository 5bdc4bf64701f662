/* ripcord stop: ends the processes of sandboxes and keeps the files. */
#include "cli/cli.h"
#include "cli/many.h"
#include "proto/spec-limits.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *body = json_object();
    struct many m = {.method = "POST", .suffix = "/stop", .body = body, .done = "stopped"};
    uint64_t grace = 0;
    int r = args_duration_ms(args, "grace", SPEC_STOP_GRACE_MAX_MS, &grace, err);

    if (r < 0)
        return r;
    if (args_has(args, "grace"))
        json_object_set_new(body, "grace_ms", json_integer((json_int_t)grace));
    return many_run(cli, args, &m, err);
}

static const struct cli_option options[] = {
    {"grace", 0, "DURATION", "time between SIGTERM and SIGKILL (default: 10s)", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_stop = {
    .name = "stop",
    .summary = "stop sandboxes and keep their files",
    .usage = "stop [options] NAME...",
    .details =
        "Ends all processes of the sandboxes, with SIGTERM and, after a grace period, with "
        "SIGKILL. The next 'up' or 'exec' starts a stopped sandbox again. Several sandboxes are "
        "stopped in parallel, and each has its own result; the exit status is the highest of "
        "them.",
    .examples = "ripcord stop a b c\tstop several sandboxes\n"
                "ripcord stop --grace 1s box\twait at most one second",
    .groups = groups,
    .complete = "sandbox+",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = run,
};
