/*
 * What run, exec and shell share: from options to a followed stream.
 */
#pragma once

#include "cli/options.h"
#include "lib/base/json.h"

enum execute_kind { EXECUTE_EXEC, EXECUTE_RUN };

/* The EXECSPEC with what the terminal adds: its size and TERM. argv is NULL-terminated. */
int execute_spec(const struct cli_args *args, char *const *argv, json_t **ret, struct err *err);
/* Sends the request and follows it, or starts it and leaves with --detach. The exit status. */
int execute(struct cli *cli, const struct cli_args *args, const char *target, const json_t *body,
            enum execute_kind kind, struct err *err);
