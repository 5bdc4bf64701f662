/*
 * The table of commands, and the way from argv to one of them. `ripcord version` must be nearly as
 * fast as an empty program, so nothing runs before it is needed.
 */
#include "cli/cli.h"

#include <string.h>
#include <sys/auxv.h>

#include "cli/aliases.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

/* clang-format off */
static const struct cli_option global_options[] = {
    { "root", 0, "DIR", "store all state below DIR (default: RIPCORD_ROOT)", "@dir" },
    { "host", 0, "ADDR", "connect to the daemon at this TCP address, e.g. 127.0.0.1:7070 (default: RIPCORD_HOST)", NULL },
    { "no-start", 0, NULL, "fail if no daemon runs, instead of starting one", NULL },
    { "json", 0, NULL, "print results and errors as JSON", NULL },
    { "help", 'h', NULL, "show this help", NULL },
    { 0 },
};

const struct cli_group cli_global_group = { "Global options", global_options };

const struct cli_command *const cli_commands[] = {
    &cmd_run, &cmd_up, &cmd_exec, &cmd_session, &cmd_sessions, &cmd_shell, &cmd_attach,
    &cmd_ls, &cmd_show, &cmd_ps, &cmd_logs, &cmd_wait, &cmd_kill,
    &cmd_stop, &cmd_pause, &cmd_resume, &cmd_lease, &cmd_rm,
    &cmd_cp, &cmd_port, &cmd_ssh_config, &cmd_cache, &cmd_image, &cmd_reconcile, &cmd_events,
    &cmd_doctor, &cmd_daemon, &cmd_config, &cmd_token, &cmd_version, &cmd_help,
    NULL,
};
/* clang-format on */

enum { COMMANDS_MAX = sizeof(cli_commands) / sizeof(cli_commands[0]) };

/* Options before the command name. They are parsed as a command that stops at the first word. */
static const struct cli_option top_options[] = {
    {"version", 'V', NULL, "show the version", NULL},
    {0},
};
static const struct cli_group top_group = {"Options", top_options};
static const struct cli_group *const top_groups[] = {&top_group, NULL};
static const struct cli_command top = {
    .name = "help",
    .usage = "[options] COMMAND ...",
    .groups = top_groups,
    .max_args = CLI_ANY,
    .stop_after = 0,
};

const struct cli_command *cli_find_command(const char *name)
{
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if (STREQ((*c)->name, name))
            return *c;
    return NULL;
}

int cli_unknown_command(const char *name, struct err *err)
{
    const char *names[COMMANDS_MAX], *near;
    size_t n = 0;

    for (const struct cli_command *const *c = cli_commands; *c; c++)
        names[n++] = (*c)->name;
    near = alias_nearest(name, names, n);
    err_set(err, ERR_INVALID, "unknown command '%s'", name);
    if (alias_hint(name))
        return err_hint(err, "%s", alias_hint(name));
    if (near)
        return err_hint(err, "Did you mean 'ripcord %s'? Run 'ripcord help' to list the commands.",
                        near);
    return err_hint(err, "Run 'ripcord help' to list the commands.");
}

/* The exit status of a failure. */
static int cli_failure_status(const struct cli *cli, const struct err *err)
{
    bool for_command = cli->command && cli->command->flags & CLI_RUNS_COMMAND && !cli->own_status;

    return for_command ? CLI_EXIT_OURS : err_code_exit(err->code);
}

const struct cli_action *cli_find_action(const struct cli_command *cmd, const char *name)
{
    const char *ours = alias_command(name);

    for (const struct cli_action *a = cmd->actions; a && a->name; a++)
        if (STREQ(a->name, name) || (ours && STREQ(a->name, ours)))
            return a;
    return NULL;
}

static int cli_unknown_action(const struct cli_command *cmd, const char *name, struct err *err)
{
    _cleanup_strv_ char **names = NULL;
    _cleanup_free_ char *all = NULL;
    const char *near;

    for (const struct cli_action *a = cmd->actions; a->name; a++)
        strv_add(&names, a->name);
    all = strv_join(names, ", ");
    near = alias_nearest(name, (const char *const *)names, strv_len(names));
    err_set(err, ERR_INVALID, "unknown action '%s'; supported: %s", name, all);
    return near ? err_hint(err, "Did you mean 'ripcord %s %s'?", cmd->name, near) : -ERR_INVALID;
}

int cli_run_action(struct cli *cli, const struct cli_args *args, struct err *err)
{
    const char *name = args->words[0];
    const struct cli_action *a = cli_find_action(cli->command, name);
    int r;

    if (!a)
        return cli_unknown_action(cli->command, name, err);
    if (args->n_words - 1 > a->max_words)
        return err_set(err, ERR_INVALID, "'ripcord %s %s': unexpected argument '%s'",
                       cli->command->name, a->name, args->words[a->max_words + 1]);
    r = args_check_action(cli->command, a->name, a->options, args, err);
    return r < 0 ? r : a->run(cli, args, err);
}

static void cli_on_slow(void *userdata)
{
    struct cli *cli = userdata;

    output_note(cli->json, "waiting for the daemon…");
}

int cli_client(struct cli *cli, struct client **ret, struct err *err)
{
    int r;

    if (!cli->client_ready) {
        r = client_init(&cli->client, cli->root, cli->host, err);
        if (r < 0)
            return r;
        cli->client.on_slow = cli_on_slow;
        cli->client.userdata = cli;
        cli->client.no_start = cli->no_start;
        cli->client_ready = true;
    }
    *ret = &cli->client;
    return 0;
}

int cli_call(struct cli *cli, const char *method, const char *target, const json_t *body,
             json_t **ret, struct err *err)
{
    struct client *c;
    int r = cli_client(cli, &c, err);

    return r < 0 ? r : client_call(c, method, target, body, ret, err);
}

void cli_take_globals(struct cli *cli, const struct cli_args *args)
{
    const char *root = args_get(args, "root"), *host = args_get(args, "host");

    if (root)
        cli->root = root;
    if (host)
        cli->host = host;
    cli->json |= args_has(args, "json");
    cli->no_start |= args_has(args, "no-start");
}

/* Looks for --json in a command line that cannot be parsed, so that the error has the right
 * form. */
static bool cli_wants_json(int argc, char **argv)
{
    for (int i = 0; i < argc && !STREQ(argv[i], "--"); i++)
        if (STREQ(argv[i], "--json"))
            return true;
    return false;
}

static int cli_run_command(struct cli *cli, int argc, char **argv, struct err *err)
{
    _cleanup_args_ struct cli_args args = CLI_ARGS_INIT;
    int r;

    r = args_parse(cli->command, argc, argv, &args, err);
    if (r < 0) {
        cli->json |= cli_wants_json(argc, argv);
        return r;
    }
    cli_take_globals(cli, &args);
    if (args_has(&args, "help"))
        help_command_or_action(cli->command, args.n_words ? args.words[0] : NULL);
    else
        r = cli->command->run(cli, &args, err);
    if (r < 0)
        return r;
    /* Fails when the output cannot be written, as cat(1) does. */
    if (fflush(stdout) != 0 || ferror(stdout))
        return err_sys(err, errno, "write to standard output");
    return r;
}

/* *words: the command line from the command's name on. Replaces the name by ours. *ret_made: what
 * the caller frees. */
static void cli_replace_alias(char ***words, char ***ret_made)
{
    const char *ours = alias_command((*words)[0]);
    _cleanup_strv_ char **made = NULL;

    if (!ours)
        return;
    for (const char *p = ours; *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");

        strv_push(&made, xstrndup(p, len));
        p += len;
    }
    for (char **w = *words + 1; *w; w++)
        strv_add(&made, *w);
    *words = *ret_made = TAKE_PTR(made);
}

static int cli_run(struct cli *cli, int argc, char **argv, struct err *err)
{
    _cleanup_args_ struct cli_args args = CLI_ARGS_INIT;
    char *version[] = {"version", NULL}, *help[] = {"help", NULL};
    _cleanup_strv_ char **made = NULL;
    char **words;
    int r;

    r = args_parse(&top, argc - 1, argv + 1, &args, err);
    if (r < 0)
        return r;
    cli_take_globals(cli, &args);
    words = args_has(&args, "help") || (!args.n_words && !args_has(&args, "version")) ? help
            : args_has(&args, "version")                                              ? version
                                                                                      : args.words;
    if (!cli_find_command(words[0]))
        cli_replace_alias(&words, &made);
    cli->command = cli_find_command(words[0]);
    if (!cli->command)
        return cli_unknown_command(words[0], err);
    r = cli_run_command(cli, (int)strv_len(words) - 1, words + 1, err);
    /* Without arguments the help is a reaction to a mistake, so the exit status is not 0. */
    return r == 0 && argc == 1 ? err_code_exit(ERR_INVALID) : r;
}

/*
 * Seeds the hash tables of jansson with the random bytes that the kernel gives every process.
 * jansson itself would read /dev/urandom, which costs three system calls.
 */
static void cli_seed_tables(void)
{
    const void *random = (const void *)getauxval(AT_RANDOM); /* 16 bytes, not aligned */
    size_t seed = 1;

    if (random)
        memcpy(&seed, random, sizeof(seed));
    json_object_seed(seed | 1);
}

int cli_main(int argc, char **argv)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct cli cli = {0};
    int r;

    cli_seed_tables();
    json_need_memory();
    r = cli_run(&cli, argc, argv, &err);
    if (r < 0) {
        output_error(&err, cli.json);
        r = cli_failure_status(&cli, &err);
    }
    if (cli.client_ready)
        client_done(&cli.client);
    return r;
}
