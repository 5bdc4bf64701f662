/*
 * `cache warm`: fills the shared base of a tool's cache. The tool itself runs in a hardened
 * throw-away sandbox whose only network is the package cache, which serves only files that match
 * their index. No code of a package runs there: wheels only, no install scripts. The tool's cache
 * then becomes the new base, whole or not at all. Nothing else writes a base.
 *
 * The sandbox is named warm-<hex> and has the label below. If the daemon is killed, leases remove
 * the sandbox: it is stopped a minute after its command has ended, and removed a minute later. All
 * on the loop.
 */
#pragma once

#include "lib/base/json.h"

struct manager;
struct warm;

#define WARM_LABEL "ripcord.warm"

/* result: {"engine","tool","files","bytes"}, borrowed; NULL on failure. err NULL: success. */
typedef void (*warm_done_fn)(void *arg, const struct err *err, const json_t *result);

/*
 * request: {"tool", "packages":[…], "requirements":TEXT, "package_lock":TEXT, "engine", "image"}.
 * Returns a failure at once when the request itself is wrong; done is not called then.
 */
int manager_warm(struct manager *m, const json_t *request, warm_done_fn done, void *arg,
                 struct err *err);

/* At shutdown. warms_end() fails all requests and begins nothing new. warms_drop() frees them
 * when the sandboxes are freed. */
void warms_end(struct manager *m);
void warms_drop(struct manager *m);
