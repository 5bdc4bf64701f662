/*
 * What the daemon tells the registry at start: one JSON document. Fields that are left out have
 * defaults; unknown ones are refused.
 *
 *  {"folder": "/…/registry",       made if missing; nobody else writes there
 *   "uid": 60001, "gid": 60001,    to become, when started as root; absent: stays who it is
 *   "budget": bytes,               of stored files, default 20 GiB; "artifact_max", default 2 GiB
 *   "metadata_life": seconds,      default 300; "metadata_max": bytes, default 64 MiB;
 *   "metadata_budget": bytes,      of index pages, default 2 GiB
 *   "offline": "auto",             auto: what is kept when the upstream is down; always: never ask
 * it; never: no stale answer "min_age": seconds, "deny": ["name", "npm:name==1.0", …],
 *   "connections_max": 64,         per sandbox; "requests_per_second": 200, with a burst of ten
 * times that "connect_timeout": 10, "stall_timeout": 30,      seconds "upstreams": [{"name":
 * "pypi", "type": "pypi", "url": "https://…/simple/", "names": ["corp-*"],       only these, and
 * these from nowhere else; absent: all others "private": false,          may have a private
 * address; "http": false, without TLS "hosts": ["files.corp:443"],        further hosts of the same
 * owner "user": …, "password": …, or "token": …,   never shown to a sandbox "ca_file": …}]}
 *
 * Without upstreams: the public PyPI and npm.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "registry/policy.h"

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
