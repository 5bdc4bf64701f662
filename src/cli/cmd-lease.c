/* ripcord lease: how long sandboxes stay up and are kept. */
#include "cli/cli.h"
#include "cli/many.h"
#include "cli/spec.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *body = json_object();
    const struct many m = {.method = "PATCH", .suffix = "", .body = body, .done = "changed"};
    int r = leases_from_args(args, body, err);

    if (r < 0)
        return r;
    if (!json_object_size(body)) {
        err_set(err, ERR_INVALID, "there is nothing to change");
        return err_hint(err, "Name a lease: --idle-stop, --max-life or --rm-after.");
    }
    return many_run(cli, args, &m, err);
}

static const struct cli_group *const groups[] = {&lease_group, NULL};

const struct cli_command cmd_lease = {
    .name = "lease",
    .summary = "change how long sandboxes stay up and are kept",
    .usage = "lease NAME... [options]",
    .details =
        "Changes the leases that are given; nothing is started, stopped or re-created by that "
        "alone. 'ripcord show' says what is due next. A sandbox is never stopped for being idle "
        "while a command runs in it; --max-life stops it all the same, and neither removes it.\n\n"
        "Leases are counted while this machine is on, suspended or not; the time that it was off "
        "does not count, and neither does a change of its clock.",
    .examples = "ripcord lease box --idle-stop 30m --rm-after 7d\ta working place\n"
                "ripcord lease box --max-life 0s\tno longer",
    .groups = groups,
    .complete = "sandbox+",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = run,
};
