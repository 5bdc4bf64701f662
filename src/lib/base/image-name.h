/*
 * Names of images as people write them, for those who must agree on the registry that one is of:
 * whoever pulls it, and whoever has the credentials.
 */
#pragma once

/* Without "docker.io/" and "docker.io/library/", as often as they stand there; within `name`. */
const char *image_name_short(const char *name);

/* Which registry it is of: its first part, when that looks like one, else "docker.io"; new. */
char *image_name_registry(const char *name);
