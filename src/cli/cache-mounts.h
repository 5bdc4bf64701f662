/*
 * `ripcord cache` for the cache mounts of builds.
 */
#pragma once

#include "cli/cli.h"
#include "lib/base/json.h"

/* *ret: {"mounts":[…],"bytes","budget"}. */
int cache_mounts_list(struct cli *cli, json_t **ret, struct err *err);
void cache_mounts_print(const json_t *doc);
/* One line of `cache show`. */
void cache_mounts_print_sum(const json_t *doc);
/* `cache rm ID…` */
int cache_mounts_rm(struct cli *cli, const struct cli_args *args, struct err *err);
/* body: {"keep", "unused_ms"}, both optional. */
int cache_mounts_prune(struct cli *cli, const json_t *body, json_t **ret, struct err *err);
void cache_mounts_print_pruned(const json_t *doc);
