/*
 * The part of `ripcord cache` that is about the tools' own caches, not about the registry.
 */
#pragma once

#include "cli/cli.h"
#include "lib/base/json.h"

/* `cache warm --tool TOOL …`; the words behind it are packages. */
int cache_tools_warm(struct cli *cli, const struct cli_args *args, struct err *err);
/* {"caches":[…],"errors":[…]} of all engines. */
int cache_tools_list(struct cli *cli, json_t **ret, struct err *err);
void cache_tools_print(const json_t *doc);
/* Forgets the base and the shared stores of a tool. */
int cache_tools_prune(struct cli *cli, const char *tool, struct err *err);
