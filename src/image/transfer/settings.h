/*
 * What ripcord-transfer is told: one JSON document on a descriptor, as it may hold credentials.
 *
 *  {"uid": 60996,                      to become, when started as root; absent: stays who it is
 *   "name": "ghcr.io/team/tool:1",     as the store writes it (image/oci/reference.h); fetch: a URL
 *   "digest": "sha256:…",              pull: this one and no other
 *   "platform": "linux/arm64/v8",      pull; absent: this machine's
 *   "plain_http": true,                without TLS; for loopback addresses always allowed
 *   "username": …, "password": …,
 *   "mirrors": ["docker.io=https://…"],  pull: asked first
 *   "ca_file": …,                      certificates (PEM) instead of the system's
 *   "have": ["sha256:…"],              pull: layers (diff ids) that need not be fetched
 *   "etag": …,                         fetch: of what is known; absent: nothing is
 *   "hosts": ["host:port"],            fetch: those that may have private addresses
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

/* Reads ca_file: before privileges go. */
int settings_parse(const char *text, size_t len, struct settings *ret, struct err *err);
void settings_done(struct settings *s);
