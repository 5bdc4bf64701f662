/*
 * `ripcord cache` for the caches of the tools (pip, npm, …), as opposed to the package cache.
 */
#pragma once

#include "cli/cli.h"
#include "lib/base/json.h"

/* `cache warm --tool TOOL PACKAGE…` */
int cache_tools_warm(struct cli *cli, const struct cli_args *args, struct err *err);
/* *ret: {"caches":[…],"errors":[…]} of all engines. */
int cache_tools_list(struct cli *cli, json_t **ret, struct err *err);
void cache_tools_print(const json_t *doc);
/* Removes the shared base and the shared stores of a tool. */
int cache_tools_prune(struct cli *cli, const char *tool, struct err *err);
