/*
 * User namespaces that serve only as the id map of a mount.
 */
#pragma once

#include "lib/os/ns.h"

/* A descriptor of a new user namespace with these maps, without a process in it. The caller must be
 * allowed to map these ids (root). */
int idmap_userns(const struct ns_map *uid, const struct ns_map *gid, int *ret, struct err *err);
