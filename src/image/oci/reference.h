/*
 * Names of images: [REGISTRY/]PATH[:TAG]. The default tag is "latest", and Docker's own registry is
 * left out ("docker.io/library/debian" is "debian:latest").
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

enum { REFERENCE_MAX = 255 };

/* Whether the name stands for the programs of this machine, which are not in the store. */
bool reference_is_host(const char *name);
/* *ret is the normal form of the name, which the store uses; new. */
int reference_parse(const char *name, char **ret, struct err *err);
