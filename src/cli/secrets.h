/*
 * --secret: where its value comes from. Never from the command line itself, which everybody on the
 * machine can read.
 */
#pragma once

#include "cli/options.h"
#include "lib/base/json.h"

/* NAME=@FILE, NAME=@- (standard input), or NAME: the environment variable of that name. */
int secrets_from_args(const struct cli_args *a, json_t *doc, struct err *err);

/* A whole file, or standard input for "-"; at most max bytes. *ret is NUL-terminated. */
int input_read(const char *path, size_t max, char **ret, size_t *ret_len, struct err *err);
