/*
 * Parses argv with the tables of cli.h and reads the values. All strings are borrowed from argv.
 */
#pragma once

#include "cli/cli.h"

struct cli_value {
    const struct cli_option *option;
    const char *value; /* NULL for a flag */
};

struct cli_args {
    struct cli_value *values; /* owned, in the order of the command line */
    size_t n_values;
    char **words; /* owned array of borrowed strings, NULL-terminated: the positionals */
    int n_words;
};

#define CLI_ARGS_INIT                                                                              \
    {                                                                                              \
        0                                                                                          \
    }
#define _cleanup_args_ __attribute__((cleanup(args_done)))

void args_done(struct cli_args *a);

/* argv[0] is the first word after the command's name. Forms: `--opt VALUE`, `--opt=VALUE`,
 * `-o VALUE`, `-oVALUE`, `-it`, `--`. */
int args_parse(const struct cli_command *cmd, int argc, char **argv, struct cli_args *ret,
               struct err *err);

/* For a command with actions, whose options share one table: refuses options of other actions.
 * `options`: the names of the action's options, with a space around each. Global options are always
 * allowed. */
int args_check_action(const struct cli_command *cmd, const char *action, const char *options,
                      const struct cli_args *a, struct err *err);

bool args_has(const struct cli_args *a, const char *name);
/* The last value of the option, or NULL. */
const char *args_get(const struct cli_args *a, const char *name);
/* Iterates over the values in order: for (size_t i = 0; (v = args_next(a, "env", &i));) */
const char *args_next(const struct cli_args *a, const char *name, size_t *iter);

/* Reads the value of an option and checks its range: from min (1ms for a duration) to max. Errors
 * name the option. Without the option, *ret is not changed. */
int args_size(const struct cli_args *a, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
              struct err *err);
int args_duration_ms(const struct cli_args *a, const char *name, uint64_t max, uint64_t *ret,
                     struct err *err);
int args_u64(const struct cli_args *a, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
             struct err *err);
/* Refuses values of the option that are not among the n words, with the nearest one as a hint. */
int args_check_words(const struct cli_args *a, const char *name, const char *const *words, size_t n,
                     struct err *err);

/* The i-th option of a command, with the global options last; NULL past the end. */
const struct cli_option *cli_option_at(const struct cli_command *cmd, size_t i);
