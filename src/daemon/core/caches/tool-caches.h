/*
 * The caches of package tools on all engines. All on the loop.
 */
#pragma once

#include "lib/base/json.h"

struct manager;

/* doc, borrowed: {"caches":[{"engine","kind","tool","owner","bytes","changed_at"}],
 * "errors":[{"engine","code","message"}]}. */
typedef void (*tool_caches_fn)(void *arg, const json_t *doc);

void manager_caches(struct manager *m, tool_caches_fn done, void *arg);
/*
 * Forgets the shared base and the shared stores of a tool, or of "all". Sandboxes that run keep
 * what they have until they stop. ERR_INVALID at once for a tool that there is not.
 */
int manager_caches_drop(struct manager *m, const char *tool, tool_caches_fn done, void *arg,
                        struct err *err);
