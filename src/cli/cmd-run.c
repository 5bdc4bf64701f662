/* ripcord run: runs one command in a throw-away sandbox, with one request. */
#include "cli/cli.h"
#include "cli/execute.h"
#include "cli/run-image.h"
#include "cli/spec.h"
#include "lib/base/strv.h"

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *spec = NULL, *exec = NULL, *body = NULL;
    _cleanup_strv_ char **own = NULL; /* the image's command */
    int r;

    r = spec_from_args(args, false, &spec, err);
    if (r < 0)
        return r;
    if (args->n_words) {
        r = execute_spec(args, args->words, &exec, err); /* a mistake in it needs no pull */
        if (r < 0)
            return r;
    }
    r = run_image_ensure(cli, args, NULL, err);
    if (r < 0)
        return r;
    if (!exec) {
        if ((r = run_image_command(cli, args, &own, err)) < 0 ||
            (r = execute_spec(args, own, &exec, err)) < 0)
            return r;
    }
    if (args_has(args, "detach"))
        json_object_set_new(exec, "on_disconnect", json_string("keep"));
    body = json_pack("{s:O, s:O}", "spec", spec, "exec", exec);
    return execute(cli, args, "/v1/run", body, EXECUTE_RUN, err);
}

static const struct cli_group *const groups[] = {&terminal_group, &exec_group,  &place_group,
                                                 &spec_group,     &image_group, &limits_group,
                                                 &lease_group,    NULL};

const struct cli_command cmd_run = {
    .name = "run",
    .summary = "run a command in a throw-away sandbox",
    .usage = "run [options] [--] [CMD [ARG...]]",
    .details =
        "Creates a sandbox, runs CMD in it and removes the sandbox. Standard output, standard "
        "error and the exit status are the command's. Exit status 125 means that ripcord failed, "
        "126 that CMD cannot be run, 127 that CMD was not found.\n\n"
        "The command starts at the first word that is not an option. It may be as large as Linux "
        "allows: 128 KiB in one argument or variable, and 2 MiB in all. Without CMD, the image of "
        "--image runs its own ENTRYPOINT and CMD; a given CMD replaces both. An image that is not "
        "here is pulled first, see --pull.",
    .examples = "ripcord run -- python3 -c 'print(6 * 7)'\trun one command\n"
                "echo hi | ripcord run -i -- cat\tsend input to it\n"
                "ripcord run --memory 512M --timeout 30s -- make test\tset limits\n"
                "ripcord run --mount . --workdir \"$PWD\" -- make\twork in this folder\n"
                "ripcord run --image debian:12 -- cat /etc/os-release\tpull an image and use it\n"
                "ripcord run -it -- bash\topen an interactive shell",
    .groups = groups,
    .complete = "command+",
    .min_args = 0,
    .max_args = CLI_ANY,
    .stop_after = 0,
    .flags = CLI_RUNS_COMMAND,
    .run = run,
};
