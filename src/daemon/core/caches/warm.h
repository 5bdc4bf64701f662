/*
 * `cache warm`: fills the shared base of a tool's cache. The tool itself does it, in a hardened
 * throw-away sandbox whose only door is the package registry, which releases nothing that does not
 * match its index; and so that no code of a package runs there (wheels only, no install scripts).
 * What it then has in its cache becomes the base, whole or not at all. Nothing else writes a base.
 *
 * The sandbox is named warm-<hex> and labelled. One that a killed daemon leaves behind goes by its
 * leases: a minute after its command has ended it is stopped, and a minute later removed. All on
 * the loop.
 */
#pragma once

#include "lib/base/json.h"

struct manager;
struct warm;

#define WARM_LABEL "ripcord.warm"

/* result: {"engine","tool","files","bytes"}; borrowed. err NULL: success. */
typedef void (*warm_done_fn)(void *arg, const struct err *err, const json_t *result);

/*
 * request: {"tool", "packages":[…], "requirements":TEXT, "package_lock":TEXT, "engine", "image"}.
 * Returns failure at once for what is wrong with the request itself; done is not called then.
 */
int manager_warm(struct manager *m, const json_t *request, warm_done_fn done, void *arg,
                 struct err *err);

/* At shutdown: whoever waits is told, and nothing more is begun; then, when the sandboxes have gone
 * from memory. */
void warms_end(struct manager *m);
void warms_drop(struct manager *m);
