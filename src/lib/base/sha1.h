/*
 * SHA-1 (FIPS 180-4), for the opening handshake of WebSocket in programs without a digest library.
 * It protects nothing: use another digest for whatever an attacker must not forge.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA1_LEN = 20 };

void sha1_digest(const void *data, size_t len, uint8_t ret[static SHA1_LEN]);
