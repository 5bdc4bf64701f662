/*
 * Authentication of image registries: the value of WWW-Authenticate (RFC 9110, as far as registries
 * use it: one scheme with its parameters), and the answer of a token server. Both are untrusted
 * input.
 */
#pragma once

#include <stddef.h>

#include "lib/base/err.h"

enum challenge_scheme { CHALLENGE_BASIC, CHALLENGE_BEARER };

struct challenge {
    enum challenge_scheme scheme;
    char *realm, *service, *scope; /* owned, may be NULL; Bearer always has a realm */
};

int challenge_parse(const char *text, struct challenge *ret, struct err *err);
void challenge_done(struct challenge *c);

/*
 * Reads {"token"} or {"access_token"}. Only visible ASCII is accepted, because the token goes into
 * a header. The caller frees it.
 */
int challenge_parse_token(const char *text, size_t len, char **ret, struct err *err);
