/*
 * Checks names from the command line before they become part of an API path.
 */
#pragma once

#include "cli/cli.h"
#include "lib/base/json.h"

/* Checks an exec id: "last", or letters, digits, '-' and '_'. */
int exec_parse(const char *s, struct err *err);
/* Fetches the exec in *ret, a new reference. id NULL: the newest exec. */
int exec_lookup(struct cli *cli, const char *sandbox, const char *id, json_t **ret,
                struct err *err);
