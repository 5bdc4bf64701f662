/*
 * The options of RUN --mount=type=cache,target=/x,… and their allowed combinations.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum mount_type { MOUNT_BIND, MOUNT_CACHE, MOUNT_TMPFS, MOUNT_SECRET, MOUNT_SSH };

struct dockerfile_mount {
    enum mount_type type;
    char *from, *source, *target, *id; /* owned, not expanded; NULL: not given */
    char *sharing;                     /* owned; shared, private, locked, or NULL */
    char *mode, *uid, *gid, *size;     /* owned, as given; NULL: not given. See mount_number(). */
    char *env;                         /* owned: of a secret, or NULL */
    bool read_only, required;
    size_t at, end; /* of the flag, in the source */
};

/*
 * Parses the value of the flag. With `defer`, an option with a variable in its value is accepted
 * without a check, because it can be checked only after expansion.
 */
int mount_parse(const char *value, bool defer, struct dockerfile_mount *ret, struct err *err);
void mount_done(struct dockerfile_mount *m);
/* The number of a uid or gid (base 10) or mode (base 8) of a parsed mount. NULL: `otherwise`. */
uint32_t mount_number(const char *text, int base, uint32_t otherwise);
const char *mount_type_name(enum mount_type type);
