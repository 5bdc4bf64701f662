/*
 * The settings of ripcord-transfer: one JSON document on a descriptor, because it may hold
 * credentials.
 *
 *  {"uid": 60996,                      user to become, if started as root; absent: no change
 *   "name": "ghcr.io/team/tool:1",     as the store writes it (image/oci/reference.h); fetch: a URL
 *   "digest": "sha256:…",              pull: only this image
 *   "platform": "linux/arm64/v8",      pull; absent: this machine's
 *   "plain_http": true,                without TLS; always allowed for loopback addresses
 *   "username": …, "password": …,
 *   "mirrors": ["docker.io=https://…"],  pull: tried first
 *   "ca_file": …,                      certificates (PEM) instead of the system's
 *   "have": ["sha256:…"],              pull: layers (diff ids) that are not needed
 *   "etag": …,                         fetch: of the known version; absent: unknown
 *   "hosts": ["host:port"],            fetch: hosts that may have private addresses
 *   "size_max": 1000000}               fetch: bytes
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/json.h"

struct settings {
    bool change_user;
    uint32_t uid;
    char *name, *digest, *platform, *username, *password, *ca_pem, *etag; /* owned, may be NULL */
    bool plain_http;
    char **mirrors, **have, **hosts; /* owned */
    uint64_t size_max;
};

/* Also reads ca_file, so call it before privileges are dropped. */
int settings_parse(const char *text, size_t len, struct settings *ret, struct err *err);
void settings_done(struct settings *s);
