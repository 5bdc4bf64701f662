/*
 * The address of an engine, and how an engine is found. The text form is that of DOCKER_HOST:
 *
 *   unix:///var/run/docker.sock    tcp://host:2375    tls://host:2376?certs=/folder
 *
 * A bare absolute path is a unix socket. `tls` is our own scheme. Docker's CLI uses tcp:// with
 * DOCKER_TLS_VERIFY and DOCKER_CERT_PATH instead, which one string cannot carry to the relay.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

enum docker_transport { DOCKER_UNIX, DOCKER_TCP, DOCKER_TLS };

struct docker_endpoint {
    enum docker_transport transport;
    char *path; /* unix: absolute */
    char *host; /* tcp, tls: name or address, IPv6 without brackets */
    uint16_t port;
    char *certs; /* tls: folder with ca.pem, cert.pem, key.pem */
};

#define _cleanup_endpoint_ __attribute__((cleanup(docker_endpoint_done)))

void docker_endpoint_done(struct docker_endpoint *e);
/* ssh:// and npipe:// are ERR_UNSUPPORTED, with a hint about the alternative. */
int docker_endpoint_parse(const char *text, struct docker_endpoint *ret, struct err *err);
/* Turns tcp into tls with the certificates of that folder. */
void docker_endpoint_use_tls(struct docker_endpoint *e, const char *certs);
char *docker_endpoint_text(const struct docker_endpoint *e); /* parses to the same endpoint */

/* A variable of the caller's environment, or NULL: getenv(), or a table in tests. */
typedef const char *(*docker_env_fn)(const char *name);

/*
 * Finds the engine to use. An explicit setting is taken without a check: `configured` (may be
 * NULL), else DOCKER_HOST (with DOCKER_TLS_VERIFY and DOCKER_CERT_PATH), else CONTAINER_HOST.
 * Without a setting, it is the first of the usual sockets that accepts a connection: system Docker,
 * rootless Docker, system Podman, rootless Podman. If none does, the error lists each with the
 * reason.
 */
int docker_endpoint_find(const char *configured, docker_env_fn env, struct docker_endpoint *ret,
                         struct err *err);
