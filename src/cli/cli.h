/*
 * The command line: one table of commands (cli.c), each with its option groups, from which parsing,
 * --help, the manual pages and the shell completions come. One command per file, cmd-*.c.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/client.h"
#include "lib/base/err.h"

struct cli_option {
    const char *name; /* long, without the dashes; NULL ends a group */
    char letter;      /* or 0 */
    const char *arg;  /* placeholder of its value; NULL for a flag */
    const char *help;
    const char *values; /* for completion: words separated by blanks, "@file", "@dir"; or NULL */
};

struct cli_group {
    const char *title; /* "Limits" */
    const struct cli_option *options;
};

struct cli_args; /* options.h */
struct cli;

enum cli_flags {
    CLI_RUNS_COMMAND = 1 << 0, /* exit statuses are the command's; our own failures are 125 */
    CLI_PASS_THROUGH = 1 << 1, /* arguments belong to another program: none are parsed */
};

enum { CLI_ANY = 1 << 20 }; /* as max_args: no limit */

struct cli_command {
    const char *name;
    const char *summary;                   /* one line, no full stop */
    const char *usage;                     /* what follows "ripcord " */
    const char *details;                   /* paragraphs separated by "\n\n"; may be NULL */
    const char *examples;                  /* lines "command\tcomment"; may be NULL */
    const struct cli_group *const *groups; /* NULL-terminated, without the global group */
    const char *complete; /* one word per positional: sandbox exec command topic path; the last
                             one repeats with a "+" */
    const char *words;    /* what the first positional can be, e.g. "ls show"; NULL: anything */
    int min_args, max_args;
    int stop_after; /* a positional after this many ends option parsing; -1 never */
    unsigned flags;
    /* The exit status, or -ERR_X and *err. */
    int (*run)(struct cli *cli, const struct cli_args *args, struct err *err);
};

struct cli {
    const struct cli_command *command;
    const char *root; /* --root; borrowed from argv */
    const char *host; /* --host; likewise */
    bool json;
    bool client_ready;
    struct client client; /* through cli_client() */
};

extern const struct cli_group cli_global_group;
extern const struct cli_command *const cli_commands[]; /* NULL-terminated, in the order of help */

int cli_main(int argc, char **argv);
const struct cli_command *cli_find_command(const char *name);
/* ERR_INVALID with the nearest command as its hint. */
int cli_unknown_command(const char *name, struct err *err);

/* The client, made on first use. */
int cli_client(struct cli *cli, struct client **ret, struct err *err);
/* One request; *ret is the answer. */
int cli_call(struct cli *cli, const char *method, const char *target, const json_t *body,
             json_t **ret, struct err *err);

#define CLI_EXIT_OURS 125

extern const struct cli_command cmd_run, cmd_up, cmd_exec, cmd_session, cmd_sessions, cmd_shell,
    cmd_attach, cmd_ls, cmd_show, cmd_ps, cmd_logs, cmd_kill, cmd_stop, cmd_pause, cmd_resume,
    cmd_lease, cmd_rm, cmd_cp, cmd_port, cmd_cache, cmd_image, cmd_reconcile, cmd_events,
    cmd_doctor, cmd_daemon, cmd_config, cmd_token, cmd_version, cmd_help;
