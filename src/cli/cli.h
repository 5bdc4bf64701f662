/*
 * The command line. One table of commands with their option groups (cli.c) is the source of
 * parsing, --help, manual pages and shell completions. Each command is a file cmd-*.c.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/client.h"
#include "lib/base/err.h"

struct cli_option {
    const char *name; /* long name without the dashes; NULL ends a group */
    char letter;      /* short name, or 0 */
    const char *arg;  /* placeholder of the value; NULL for a flag */
    const char *help;
    const char *values; /* for completion: words separated by blanks, "@file", "@dir", "@image";
                           or NULL */
};

struct cli_group {
    const char *title; /* "Limits" */
    const struct cli_option *options;
};

struct cli_args; /* options.h */
struct cli;

enum cli_flags {
    CLI_RUNS_COMMAND = 1 << 0, /* exit status of the user's command; our own failures are 125 */
    CLI_PASS_THROUGH = 1 << 1, /* arguments belong to another program and are not parsed */
};

enum { CLI_ANY = 1 << 20 }; /* max_args without a limit */

/* An action of a command, e.g. `pull` of `ripcord image`. */
struct cli_action {
    const char *name;    /* NULL ends the table */
    int max_words;       /* words allowed after the action */
    const char *options; /* its options, with a space around each */
    int (*run)(struct cli *cli, const struct cli_args *args, struct err *err);
};

struct cli_command {
    const char *name;
    const char *summary;                   /* one line, no full stop */
    const char *usage;                     /* after "ripcord "; alternatives between " | " */
    const char *details;                   /* paragraphs separated by "\n\n"; may be NULL */
    const char *examples;                  /* lines "command\tcomment"; may be NULL */
    const struct cli_group *const *groups; /* NULL-terminated, without the global group */
    const char *complete; /* kind of each positional: sandbox exec image command topic path word;
                             "+" after the last kind repeats it */
    const struct cli_action *actions; /* the first positional is one of them; or NULL */
    const char *words; /* allowed values of the first positional, e.g. "ls show"; NULL: any */
    int min_args, max_args;
    int stop_after; /* options end after this many positionals; -1: never */
    unsigned flags;
    /* Returns the exit status, or -ERR_X with *err filled. */
    int (*run)(struct cli *cli, const struct cli_args *args, struct err *err);
};

struct cli {
    const struct cli_command *command;
    const char *root; /* --root; borrowed from argv */
    const char *host; /* --host; borrowed from argv */
    bool json;
    bool no_start;   /* --no-start */
    bool own_status; /* set by a command with CLI_RUNS_COMMAND that runs none this time */
    bool client_ready;
    struct client client; /* valid when client_ready; use cli_client() */
};

extern const struct cli_group cli_global_group;
extern const struct cli_command *const cli_commands[]; /* NULL-terminated, in the order of help */

int cli_main(int argc, char **argv);
const struct cli_command *cli_find_command(const char *name);
/* The action of this name, or of a name that other tools have for it; or NULL. */
const struct cli_action *cli_find_action(const struct cli_command *cmd, const char *name);
/* Runs the action that the first word names. */
int cli_run_action(struct cli *cli, const struct cli_args *args, struct err *err);
/* Sets ERR_INVALID with such a command as a hint. */
int cli_unknown_command(const char *name, struct err *err);

/* Applies the global options among args. */
void cli_take_globals(struct cli *cli, const struct cli_args *args);

/* Returns the client, which is created on the first call. The cli owns it. */
int cli_client(struct cli *cli, struct client **ret, struct err *err);
/* Sends one request. *ret is the response, a new reference. */
int cli_call(struct cli *cli, const char *method, const char *target, const json_t *body,
             json_t **ret, struct err *err);

#define CLI_EXIT_OURS 125

extern const struct cli_command cmd_run, cmd_up, cmd_exec, cmd_session, cmd_sessions, cmd_shell,
    cmd_attach, cmd_ls, cmd_show, cmd_ps, cmd_logs, cmd_wait, cmd_kill, cmd_stop, cmd_pause,
    cmd_resume, cmd_lease, cmd_rm, cmd_cp, cmd_port, cmd_ssh_config, cmd_cache, cmd_image,
    cmd_reconcile, cmd_events, cmd_doctor, cmd_daemon, cmd_config, cmd_token, cmd_version, cmd_help;
