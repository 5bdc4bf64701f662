/*
 * Where an engine listens, and how it is found. The text form is what people write in DOCKER_HOST:
 *
 *   unix:///var/run/docker.sock    tcp://host:2375    tls://host:2376?certs=/folder
 *
 * A bare absolute path is a unix socket. `tls` is ours: the CLI's way to say it is tcp:// with
 * DOCKER_TLS_VERIFY and DOCKER_CERT_PATH beside it, which one string cannot carry to the relay.
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
/* ssh:// and npipe:// are ERR_UNSUPPORTED with what to do instead. */
int docker_endpoint_parse(const char *text, struct docker_endpoint *ret, struct err *err);
/* Turns tcp into tls with the certificates of that folder. */
void docker_endpoint_use_tls(struct docker_endpoint *e, const char *certs);
char *docker_endpoint_text(const struct docker_endpoint *e); /* parses to the same again */

/* A variable of the caller's environment, or NULL: getenv(), or a table in tests. */
typedef const char *(*docker_env_fn)(const char *name);

/*
 * Which engine is meant. `configured` (may be NULL), else DOCKER_HOST (with DOCKER_TLS_VERIFY and
 * DOCKER_CERT_PATH), else CONTAINER_HOST: what somebody asked for is taken as it is. Else the first
 * of the usual sockets that accepts a connection: system Docker, rootless Docker, system Podman,
 * rootless Podman; when none does, the error lists each with its reason.
 */
int docker_endpoint_find(const char *configured, docker_env_fn env, struct docker_endpoint *ret,
                         struct err *err);
