/*
 * What a registry of images asks for: the value of WWW-Authenticate (RFC 9110, as far as registries
 * use it: one scheme with its parameters), and the answer of a token server. Both come from
 * outside.
 */
#pragma once

#include <stddef.h>

#include "lib/base/err.h"

enum challenge_scheme { CHALLENGE_BASIC, CHALLENGE_BEARER };

struct challenge {
    enum challenge_scheme scheme;
    char *realm, *service, *scope; /* owned, may be NULL; a Bearer one has its realm */
};

int challenge_parse(const char *text, struct challenge *ret, struct err *err);
void challenge_done(struct challenge *c);

/* {"token"} or {"access_token"}: visible ASCII only, as it goes into a header. New. */
int challenge_parse_token(const char *text, size_t len, char **ret, struct err *err);
