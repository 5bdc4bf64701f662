/* ripcord exec: runs a command in a named sandbox. */
#include "cli/cli.h"
#include "cli/execute.h"
#include "cli/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_free_ char *target = NULL;
    _cleanup_json_ json_t *spec = NULL;
    int r;

    r = parse_name("sandbox name", args->words[0], err);
    if (r < 0)
        return r;
    r = execute_spec(args, args->words + 1, &spec, err);
    if (r < 0)
        return r;
    target = xasprintf("/v1/sandboxes/%s/execs", args->words[0]);
    return execute(cli, args, target, spec, EXECUTE_EXEC, err);
}

static const struct cli_group *const groups[] = {&terminal_group, &exec_group, &place_group, NULL};

const struct cli_command cmd_exec = {
    .name = "exec",
    .summary = "run a command in a sandbox",
    .usage = "exec NAME [options] [--] CMD [ARG...]",
    .details =
        "Runs CMD in the sandbox NAME and starts the sandbox if it is stopped. Standard output, "
        "standard error and the exit status are the command's. Exit status 125 means that "
        "ripcord failed, 126 that CMD cannot be run, 127 that CMD was not found.\n\n"
        "The output is stored. If this program or the daemon ends, the command continues, and "
        "you can return to it with 'ripcord logs' or 'ripcord attach'. Ctrl-C is sent to the "
        "command; a second Ctrl-C within two seconds kills it.\n\n"
        "A command may be as large as Linux allows: 128 KiB in one argument or variable, and 2 "
        "MiB in all. See LIMITS in ripcord(1).",
    .examples =
        "ripcord exec box -- ls -la\trun a command\n"
        "ripcord exec box -it -- python3\trun it interactively\n"
        "ripcord exec box --detach -- ./server\trun it in the background\n"
        "ripcord exec box --timeout 5m --stats -- make\tset a time limit and print the resource "
        "usage",
    .groups = groups,
    .complete = "sandbox command+",
    .min_args = 2,
    .max_args = CLI_ANY,
    .stop_after = 1,
    .flags = CLI_RUNS_COMMAND,
    .run = run,
};
