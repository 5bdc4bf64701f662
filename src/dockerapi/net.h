/*
 * TCP and TLS, for engines on other machines. This is a separate library, because most engines are
 * on this machine. A program that links local.c instead (the relay of a unix socket) is static,
 * starts in a tenth of the time, and saves 460 KiB of libcrypto's relocations per sandbox.
 *
 * With TLS, the server is always verified against ca.pem and the requested name, and we present
 * cert.pem. The rest of the client uses plain sockets only: a connection is one end of a
 * socketpair, and a thread copies between the other end and TLS.
 */
#pragma once

#include "dockerapi/endpoint.h"
#include "lib/base/time.h"

/* TCP, without TLS. */
int docker_net_dial(const struct docker_endpoint *e, const struct deadline *by, int *ret,
                    struct err *err);

/* An SSL_CTX for the endpoint's folder of certificates. */
int docker_tls_new(const struct docker_endpoint *e, void **ret, struct err *err);
void docker_tls_free(void *tls); /* accepts NULL; open connections stay usable */

/*
 * Does the handshake on fd (taken, also on failure) and starts the copying thread. *ret behaves
 * like the connection itself: shutdown(SHUT_WR) becomes close_notify and the other direction
 * continues; close() ends both; the peer's end is the end of file.
 */
int docker_tls_wrap(void *tls, const struct docker_endpoint *e, int fd, const struct deadline *by,
                    int *ret, struct err *err);
