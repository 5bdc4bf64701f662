/*
 * The package registry as the configuration wants it.
 */
#pragma once

#include "base/err.h"

struct config;
struct keeper;
struct loop;

/* Reads what registry.upstreams names; the process itself starts when it is needed. */
int registry_open(const struct config *config, struct loop *loop, const char *libexec_dir,
                  const char *state_dir, struct keeper **ret, struct err *err);
