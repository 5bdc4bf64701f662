/*
 * The configuration of ripcord-packages: one JSON document that the daemon passes at start. Absent
 * fields have defaults (in parentheses); unknown fields are refused. Times are in seconds, sizes in
 * bytes.
 *
 * - "folder": the cache; created if missing. Only this program writes there.
 * - "uid", "gid": the user to become, when started as root. Absent: the user does not change.
 * - "budget": size of all stored files (20 GiB); "artifact_max": size of one file (2 GiB)
 * - "metadata_life": age up to which an index page is fresh (300); "metadata_max": size of one page
 *   (64 MiB); "metadata_budget": size of all pages (2 GiB)
 * - "offline": "auto": use old pages while the upstream is down; "always": never ask an upstream;
 *   "never": never use an old page
 * - "min_age", "deny": ["name", "npm:name==1.0", …]: see policy.h
 * - "connections_max": per sandbox (64); "requests_per_second": per sandbox (200), with bursts of
 *   ten times that number
 * - "connect_timeout" (10), "stall_timeout" (30)
 * - "upstreams": a list (the public PyPI and npm). Each has:
 *   - "name", "type": "pypi" or "npm", "url": "https://…/simple/"
 *   - "names": ["corp-*"]: this upstream serves exactly these packages, and no other upstream does.
 *     Absent: it serves all packages that no other upstream claims.
 *   - "private": true: the upstream may have a private address; "http": true: without TLS
 *   - "hosts": ["files.corp:443"]: more hosts of the same owner
 *   - "user" and "password", or "token": sandboxes never see them
 *   - "ca_file": certificates of the authority that signed the upstream's certificate
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
    char **names;                 /* owned patterns; NULL: all that no other upstream claims */
    char **hosts;                 /* owned */
    char *authorization, *ca_pem; /* owned, may be NULL */
    bool private_ok, http_ok;
    struct fetcher *fetcher; /* owned */
    /* Only the loop uses the rest. */
    bool down;
    uint64_t down_until;
};

struct packages_config {
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

/* Also reads the certificate files, so it must run before privileges are dropped. */
int config_parse(const char *text, size_t len, struct packages_config *ret, struct err *err);
void config_done(struct packages_config *c);
/* The upstream that serves this name, or NULL. */
struct upstream *config_route(struct packages_config *c, enum ecosystem eco, const char *name);
