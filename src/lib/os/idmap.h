/*
 * User namespaces that exist only to be a mount's id map.
 */
#pragma once

#include "lib/os/ns.h"

/* A descriptor of a new user namespace with these maps; no process stays in it. Needs the right to
 * map those ids (root). */
int idmap_userns(const struct ns_map *uid, const struct ns_map *gid, int *ret, struct err *err);
