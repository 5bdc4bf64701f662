/*
 * Names of images, as people write them: [REGISTRY/]PATH[:TAG]. Without a tag it is ":latest", and
 * Docker's own registry is not spelled out ("docker.io/library/debian" is "debian:latest").
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

enum { REFERENCE_MAX = 255 };

/* The machine's own programs, which are no image of the store. */
bool reference_is_host(const char *name);
/* The one way in which the store writes it; new. */
int reference_parse(const char *name, char **ret, struct err *err);
