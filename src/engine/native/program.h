/*
 * Runs one of the machine's own programs (nft, newuidmap, mkfs): fixed argv, a clean environment,
 * stdin from text, a deadline. Its last words become the error's reason.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/time.h"

/* Absolute path of a program in the system folders (never the caller's PATH), or NULL; valid until
 * this thread's next call. */
const char *program_find(const char *name);

/* argv[0] is a bare name. input may be NULL. *ret_output (may be NULL) gets stdout and stderr
 * together, at most 16 KiB. A non-zero exit is ERR_SYSTEM. */
int program_run(const char *const *argv, const char *input, const struct deadline *by,
                char **ret_output, struct err *err);

/* What comes on fd until its end; false when the deadline came first. Output beyond the maximum is
 * read and dropped. */
bool program_collect(int fd, struct buf *out, const struct deadline *by);
