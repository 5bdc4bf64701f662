/* The copying thread of a TLS connection; only tls.c uses it. */
#pragma once

#include <openssl/ssl.h>

#include "lib/base/err.h"

/* Takes the connection after its handshake and its non-blocking socket, also on failure. *ret is
 * the caller's end. */
int docker_tls_pump(SSL *ssl, int sock, int *ret, struct err *err);
