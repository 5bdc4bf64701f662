/*
 * The common part of run, exec and shell: from options to a followed stream.
 */
#pragma once

#include "cli/options.h"
#include "lib/base/json.h"

enum execute_kind { EXECUTE_EXEC, EXECUTE_RUN };

/* Makes the EXECSPEC from the options and adds the size and TERM of the terminal. argv is
 * NULL-terminated. */
int execute_spec(const struct cli_args *args, char *const *argv, json_t **ret, struct err *err);
/* Sends the request and follows the command, or leaves it running with --detach. Returns the exit
 * status. */
int execute(struct cli *cli, const struct cli_args *args, const char *target, const json_t *body,
            enum execute_kind kind, struct err *err);
