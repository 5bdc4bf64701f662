/*
 * RUN --mount=type=cache,target=/x,…: the list of options, and what may go together.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum mount_type { MOUNT_BIND, MOUNT_CACHE, MOUNT_TMPFS, MOUNT_SECRET, MOUNT_SSH };

struct dockerfile_mount {
    enum mount_type type;
    char *from, *source, *target, *id; /* owned, not expanded; NULL when not given */
    char *sharing;                     /* owned; shared, private, locked, or NULL */
    char *mode, *uid, *gid, *size;     /* owned, as given: mount_number(); NULL when not */
    char *env;                         /* of a secret */
    bool read_only, required;
    size_t at, end; /* of the flag, in the source */
};

/*
 * The flag's value. A value that holds a variable is checked only when it is expanded: `defer`
 * says that such are to be let through.
 */
int mount_parse(const char *value, bool defer, struct dockerfile_mount *ret, struct err *err);
void mount_done(struct dockerfile_mount *m);
/* A uid, a gid (base 10) or a mode (8) of one that was parsed; NULL: `otherwise`. */
uint32_t mount_number(const char *text, int base, uint32_t otherwise);
const char *mount_type_name(enum mount_type type);
