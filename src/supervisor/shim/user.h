/*
 * Who a command runs as, from the sandbox's own /etc/passwd and /etc/group. Those files are the
 * sandbox's to write: they are read with a bound, parsed strictly, and never by NSS, which would
 * load the sandbox's libraries into our helper.
 */
#pragma once

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

enum { USER_GROUPS_MAX = 64, USER_ID_MAX = 65535 };

struct user {
    uint32_t uid, gid;
    gid_t groups[USER_GROUPS_MAX]; /* supplementary, without gid */
    size_t n_groups;
    char name[64];       /* "" when passwd does not know the uid */
    char home[PATH_MAX]; /* "/" then */
};

/* `who`: a name, "UID" or "UID:GID". Looks below the caller's root. ERR_INVALID for a name that is
 * not there; never a fallback to another user. */
int user_resolve(const char *who, struct user *ret, struct err *err);

/* The parsers by themselves, on text that is cut up in the process. True when an entry was found.
 */
bool user_from_passwd(char *text, const char *name, uint32_t uid, struct user *ret);
void user_groups_from(char *text, struct user *u);
