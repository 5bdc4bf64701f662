/*
 * Project quotas of ext4 and XFS: the file system counts the blocks and inodes of all files with
 * one project id and refuses what exceeds a limit; statfs() below such a folder shows the limit.
 * The mount needs the option `prjquota`, and the caller CAP_SYS_ADMIN in the first user namespace.
 *
 * Nothing here keeps a list of project ids: an id is free if no file has it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/usage.h"

/* Whether the file system of this folder holds limits of projects, and we may set them. *why (may
 * be NULL): the reason why not, static. */
bool quota_possible(int dirfd, const char **why);

/* Gives the folder, which must be empty, a project id that no other file has. New files below it
 * inherit the id. A folder that has a project id keeps it. */
int quota_assign(int dirfd, struct err *err);
/* What is made below this empty folder does not count for the project of its parent. */
int quota_exempt(int dirfd, struct err *err);
/* Such a folder can be renamed within `parent` only after this: it counts itself, its files do
 * not. */
int quota_join(int dirfd, int parent, struct err *err);
bool quota_assigned(int dirfd);

/* The most that the folder's project may have; 0: no limit. */
int quota_limit(int dirfd, const struct disk_usage *most, struct err *err);
/* What the folder's project has. */
int quota_usage(int dirfd, struct disk_usage *ret, struct err *err);
