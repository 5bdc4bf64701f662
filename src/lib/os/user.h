/*
 * The user of a command or a copy, from the sandbox's own /etc/passwd and /etc/group. The sandbox
 * can write these files, so we read them with a size limit and parse them strictly. We never use
 * NSS, which would load the sandbox's libraries into our helper.
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

/* `who`: a name, "UID" or "UID:GID". Reads files below the caller's root. An unknown name is
 * ERR_INVALID; there is no fallback to another user. */
int user_resolve(const char *who, struct user *ret, struct err *err);

/* The owner of files that the caller will write. ERR_DENIED unless the caller is that user or may
 * give files away. */
int user_resolve_owner(const char *who, struct user *ret, struct err *err);

/* The parsers, for tests. They change `text`. True if an entry was found. */
bool user_from_passwd(char *text, const char *name, uint32_t uid, struct user *ret);
void user_groups_from(char *text, struct user *u);
