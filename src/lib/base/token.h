/*
 * The API token, which requests over TCP must carry: 256 random bits in hexadecimal. It is in a
 * file of the state folder that only its owner can read. The daemon and `ripcord token` use these
 * functions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

enum { TOKEN_LEN = 64 };

struct api_token {
    char text[TOKEN_LEN + 1];
};
/* Overwrites the token in memory. */
void token_done(struct api_token *t);
#define _cleanup_token_ __attribute__((cleanup(token_done)))

/* Reads the token; ERR_NOT_FOUND when the file is missing. A file that other users may read or
 * write, or that does not hold a token, is refused. */
int token_load(const char *state_dir, struct api_token *ret, struct err *err);
/* Replaces the token with a new one: readers of the file see the old or the new token. */
int token_rotate(const char *state_dir, struct api_token *ret, struct err *err);
/* Reads the token, or makes it when it is missing. Concurrent callers get the same token. */
int token_ensure(const char *state_dir, struct api_token *ret, struct err *err);

/* Another 256 random bits in the same form, for what the daemon itself gives out. */
int token_random(struct api_token *ret, struct err *err);

/* Compares in constant time. */
bool token_matches(const struct api_token *t, const char *text);

/* A number that changes with the file, so that callers know when to read it again; 0: no file. */
uint64_t token_stamp(const char *state_dir);
