/*
 * Engines that are not on this machine: TCP and TLS. A library of its own, because most are on this
 * machine: a program that is linked with local.c instead (the relay of a unix socket) is static,
 * starts in a tenth of the time and does not carry 460 KiB of libcrypto's relocations for each
 * sandbox.
 *
 * With TLS the server is always verified against ca.pem and the name that was dialled, and we show
 * cert.pem. The rest of the client knows plain sockets only: a connection becomes one end of a
 * socketpair, and a thread of its own pumps between the other end and TLS.
 */
#pragma once

#include "dockerapi/endpoint.h"
#include "lib/base/time.h"

/* TCP, without TLS. */
int docker_net_dial(const struct docker_endpoint *e, const struct deadline *by, int *ret,
                    struct err *err);

/* An SSL_CTX for the endpoint's folder of certificates. */
int docker_tls_new(const struct docker_endpoint *e, void **ret, struct err *err);
void docker_tls_free(void *tls); /* NULL is fine; connections made with it live on */

/*
 * Handshake on fd (taken, also on failure), then the pump. *ret behaves like the connection itself:
 * shutdown(SHUT_WR) becomes close_notify and the other direction goes on; close() ends it all; its
 * end of file is the peer's.
 */
int docker_tls_wrap(void *tls, const struct docker_endpoint *e, int fd, const struct deadline *by,
                    int *ret, struct err *err);
