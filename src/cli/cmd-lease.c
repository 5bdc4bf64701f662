/* ripcord lease: changes how long sandboxes run and are kept. */
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
        err_set(err, ERR_INVALID, "no lease is given");
        return err_hint(err, "Give at least one of --idle-stop, --max-life and --rm-after.");
    }
    return many_run(cli, args, &m, err);
}

static const struct cli_group *const groups[] = {&lease_group, NULL};

const struct cli_command cmd_lease = {
    .name = "lease",
    .summary = "change how long sandboxes run and are kept",
    .usage = "lease NAME... [options]",
    .details =
        "Changes the given leases. The change itself does not start, stop or re-create a "
        "sandbox. 'ripcord show' prints the next deadline. --idle-stop never stops a sandbox "
        "while a command runs in it; --max-life does. Neither removes the sandbox.\n\n"
        "Leases count the time that this machine is on, including the time it is suspended. The "
        "time it is off, and changes of its clock, do not count.",
    .examples =
        "ripcord lease box --idle-stop 30m --rm-after 7d\tstop when idle, remove after a week\n"
        "ripcord lease box --max-life 0s\tremove the maximum lifetime",
    .groups = groups,
    .complete = "sandbox+",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = run,
};
