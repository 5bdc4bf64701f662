/* ripcord run: runs one command in a throw-away sandbox, with one request. */
#include "cli/cli.h"
#include "cli/execute.h"
#include "cli/spec.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *spec = NULL, *exec = NULL, *body = NULL;
    int r;

    r = spec_from_args(args, false, &spec, err);
    if (r < 0)
        return r;
    r = execute_spec(args, args->words, &exec, err);
    if (r < 0)
        return r;
    if (args_has(args, "detach"))
        json_object_set_new(exec, "on_disconnect", json_string("keep"));
    body = json_pack("{s:O, s:O}", "spec", spec, "exec", exec);
    return execute(cli, args, "/v1/run", body, EXECUTE_RUN, err);
}

static const struct cli_group *const groups[] = {
    &terminal_group, &exec_group, &place_group, &spec_group, &limits_group, &lease_group, NULL};

const struct cli_command cmd_run = {
    .name = "run",
    .summary = "run a command in a throw-away sandbox",
    .usage = "run [options] [--] CMD [ARG...]",
    .details =
        "Creates a sandbox, runs CMD in it and removes the sandbox. Standard output, standard "
        "error and the exit status are the command's. Exit status 125 means that ripcord failed, "
        "126 that CMD cannot be run, 127 that CMD was not found.\n\n"
        "The command starts at the first word that is not an option. It may be as large as Linux "
        "allows: 128 KiB in one argument or variable, and 2 MiB in all.",
    .examples = "ripcord run -- python3 -c 'print(6 * 7)'\trun one command\n"
                "echo hi | ripcord run -i -- cat\tsend input to it\n"
                "ripcord run --memory 512M --timeout 30s -- make test\tset limits\n"
                "ripcord run --mount . --workdir \"$PWD\" -- make\twork in this folder\n"
                "ripcord run -it -- bash\topen an interactive shell",
    .groups = groups,
    .complete = "command+",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = 0,
    .flags = CLI_RUNS_COMMAND,
    .run = run,
};
