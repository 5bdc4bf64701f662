/*
 * Option --secret. A value never comes from the command line itself, because every user of the
 * machine can read it there.
 */
#pragma once

#include "cli/options.h"
#include "lib/base/json.h"

/* Forms: NAME=@FILE, NAME=@- (standard input), or NAME (the environment variable NAME). Sets
 * doc["secrets"] if there are any. */
int secrets_from_args(const struct cli_args *a, json_t *doc, struct err *err);

/* Reads a whole file, or standard input for "-". More than max bytes is an error. *ret is
 * NUL-terminated; the caller frees it. */
int input_read(const char *path, size_t max, char **ret, size_t *ret_len, struct err *err);
