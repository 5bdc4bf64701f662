/*
 * What the daemon tells the registry at start: one JSON document. Fields that are left out have
 * defaults; unknown ones are refused. Times are in seconds, sizes in bytes.
 *
 * - "folder": made if missing; nobody else writes there
 * - "uid", "gid": to become, when started as root; absent: stays who it is
 * - "budget": of stored files (20 GiB); "artifact_max": of one of them (2 GiB)
 * - "metadata_life": of index pages (300); "metadata_max": one page's size (64 MiB);
 *   "metadata_budget": that of all pages (2 GiB)
 * - "offline": "auto": what is kept when the upstream is down; "always": never ask it; "never": no
 *   stale answer
 * - "min_age", "deny": ["name", "npm:name==1.0", …]
 * - "connections_max": per sandbox (64); "requests_per_second": per sandbox (200), with a burst of
 *   ten times that
 * - "connect_timeout" (10), "stall_timeout" (30)
 * - "upstreams": a list; without it the public PyPI and npm. Of each:
 *   - "name", "type": "pypi" or "npm", "url": "https://…/simple/"
 *   - "names": ["corp-*"]: only these, and these from nowhere else; absent: all others
 *   - "private": true: may have a private address; "http": true: without TLS
 *   - "hosts": ["files.corp:443"]: further hosts of the same owner
 *   - "user" and "password", or "token": never shown to a sandbox
 *   - "ca_file"
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "packages/policy.h"

struct fetcher;

enum offline { OFFLINE_AUTO, OFFLINE_ALWAYS, OFFLINE_NEVER };

enum { UPSTREAMS_MAX = 32 };

struct upstream {
    char *name, *url; /* owned; the url ends with '/' */
    enum ecosystem eco;
    char **names;                 /* owned patterns; NULL: all that no other one claims */
    char **hosts;                 /* owned */
    char *authorization, *ca_pem; /* owned, may be NULL */
    bool private_ok, http_ok;
    struct fetcher *fetcher; /* owned */
    /* of the loop */
    bool down;
    uint64_t down_until;
};

struct config {
    char *folder; /* owned */
    bool change_user;
    uint32_t uid, gid;
    uint64_t budget, artifact_max, metadata_max, metadata_budget;
    uint64_t metadata_life; /* seconds */
    enum offline offline;
    struct policy policy;
    uint64_t connections_max, requests_per_second;
    uint64_t connect_timeout, stall_timeout; /* usec */
    struct upstream upstreams[UPSTREAMS_MAX];
    size_t n_upstreams;
};

/* Reads files that the document names (certificates), so it comes before privileges are dropped. */
int config_parse(const char *text, size_t len, struct config *ret, struct err *err);
void config_done(struct config *c);
/* The one that a name belongs to; NULL when there is none of that kind. */
struct upstream *config_route(struct config *c, enum ecosystem eco, const char *name);
