/*
 * Names of images, as people write them: [REGISTRY/]PATH[:TAG]. Without a tag it is ":latest", and
 * Docker's own registry is not spelled out ("docker.io/library/debian" is "debian:latest").
 */
#pragma once

#include "base/err.h"

enum { REFERENCE_MAX = 255 };

/* The one way in which the store writes it; new. */
int reference_parse(const char *name, char **ret, struct err *err);
