/* ripcord shell: opens an interactive shell in a sandbox. */
#include <unistd.h>

#include "cli/cli.h"
#include "cli/execute.h"
#include "cli/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

/*
 * Only the sandbox knows which shells exist, so a plain sh looks for them: $SHELL inside the
 * sandbox, then bash, then sh itself.
 */
static char *const shell_argv[] = {
    "/bin/sh", "-c",
    "for s in \"$SHELL\" /bin/bash; do [ -x \"$s\" ] && exec \"$s\" -i; done; exec /bin/sh -i",
    NULL};

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    static const struct cli_option tty = {.name = "tty"}, input = {.name = "interactive"};
    _cleanup_free_ char *target = NULL;
    _cleanup_json_ json_t *spec = NULL;
    struct cli_value *values = xcalloc(args->n_values + 2, sizeof(*values));
    _cleanup_args_ struct cli_args with_tty = {.values = values, .n_values = args->n_values + 2};
    int r;

    for (size_t i = 0; i < args->n_values; i++)
        values[i] = args->values[i];
    values[args->n_values].option = &tty;
    values[args->n_values + 1].option = &input;
    if (!isatty(STDIN_FILENO)) {
        err_set(err, ERR_INVALID, "standard input is not a terminal");
        return err_hint(err, "Use 'ripcord exec -i %s -- sh' to run a script from standard input.",
                        args->words[0]);
    }
    r = parse_name("sandbox name", args->words[0], err);
    if (r < 0)
        return r;
    r = execute_spec(&with_tty, shell_argv, &spec, err);
    if (r < 0)
        return r;
    target = xasprintf("/v1/sandboxes/%s/execs", args->words[0]);
    return execute(cli, &with_tty, target, spec, EXECUTE_EXEC, err);
}

static const struct cli_group *const groups[] = {&place_group, NULL};

const struct cli_command cmd_shell = {
    .name = "shell",
    .summary = "open an interactive shell in a sandbox",
    .usage = "shell NAME [options]",
    .details =
        "Runs the shell of the sandbox's user on a terminal: $SHELL inside the sandbox, else "
        "bash, else sh. Ctrl-P Ctrl-Q detaches and leaves the shell running; 'ripcord attach "
        "NAME last' attaches to it again.",
    .examples = "ripcord shell box\topen a shell as the sandbox's user\n"
                "ripcord shell box --user 0\topen a shell as root in the sandbox",
    .groups = groups,
    .complete = "sandbox",
    .min_args = 1,
    .max_args = 1,
    .stop_after = -1,
    .flags = CLI_RUNS_COMMAND,
    .run = run,
};
