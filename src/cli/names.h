/*
 * Naming things of the API on the command line: checked before they become part of a path.
 */
#pragma once

#include "cli/cli.h"
#include "lib/base/json.h"

/* "last" or an id: letters, digits, '-' and '_'. */
int exec_parse(const char *s, struct err *err);
/* Fetches EXEC; id may be NULL for the last one. */
int exec_lookup(struct cli *cli, const char *sandbox, const char *id, json_t **ret,
                struct err *err);
