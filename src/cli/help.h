/*
 * Help texts, manual pages and shell completions from the tables of cli.h. All functions write to
 * stdout.
 */
#pragma once

#include "cli/cli.h"

void help_overview(void);
void help_command(const struct cli_command *cmd);
/* Only one action of the command, if `word` (may be NULL) names one. */
void help_command_or_action(const struct cli_command *cmd, const char *word);
void help_json_overview(void);
void help_json_command(const struct cli_command *cmd);
void help_man_overview(void);
void help_man_command(const struct cli_command *cmd);
void help_bash(void);
void help_zsh(void);
void help_fish(void);

/* The next alternative of a usage text, which separates them with " | ", or NULL. Advances
 * *usage. */
const char *help_usage_next(const char **usage, size_t *ret_len);

/* Texts of the overview and of ripcord(1). */
extern const char help_about[];
struct help_entry {
    const char *name, *text;
};
extern const struct help_entry help_statuses[];    /* NULL-terminated */
extern const struct help_entry help_environment[]; /* NULL-terminated */
extern const struct help_entry help_files[];       /* NULL-terminated */
extern const struct help_entry help_limits[];      /* NULL-terminated; only in ripcord(1) */
