/*
 * What opens the daemon to whoever comes over TCP: 256 bits from the kernel, in hexadecimal, in a
 * file of the state folder that only its owner can read. The daemon and `ripcord token` both go
 * through here.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

enum { TOKEN_LEN = 64 };

struct token {
    char text[TOKEN_LEN + 1];
};
/* Does not leave it in memory that is used again. */
void token_done(struct token *t);
#define _cleanup_token_ __attribute__((cleanup(token_done)))

/* The state folder's token; ERR_NOT_FOUND when there is none. One that others may read or write,
 * or that is anything else but a token, is refused. */
int token_load(const char *state_dir, struct token *ret, struct err *err);
/* A new one, in place of what there was: readers of the file see the old or the new. */
int token_rotate(const char *state_dir, struct token *ret, struct err *err);
/* The token, made when there is none; two who ask at once get the same. */
int token_ensure(const char *state_dir, struct token *ret, struct err *err);

/* Takes as long whatever differs. */
bool token_matches(const struct token *t, const char *text);

/* Something that changes with the file, to tell when it must be read again; 0 without a file. */
uint64_t token_stamp(const char *state_dir);
