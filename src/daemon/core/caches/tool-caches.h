/*
 * The caches of package tools (pip, npm, …) on all engines in use. All on the loop.
 */
#pragma once

#include "lib/base/json.h"

struct manager;

/* doc, borrowed: {"caches":[{"engine","kind","tool","owner","bytes","changed_at"}],
 * "errors":[{"engine","code","message"}]}. */
typedef void (*tool_caches_fn)(void *arg, const json_t *doc);

void manager_caches(struct manager *m, tool_caches_fn done, void *arg);
/*
 * Drops the shared base and the shared stores of a tool, or of "all". Running sandboxes keep theirs
 * until they stop. Returns ERR_INVALID at once for an unknown tool.
 */
int manager_caches_drop(struct manager *m, const char *tool, tool_caches_fn done, void *arg,
                        struct err *err);
