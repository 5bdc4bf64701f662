/*
 * The package registry as the configuration wants it.
 */
#pragma once

#include "lib/base/err.h"

struct config;
struct packages_proxy;
struct loop;

/* Where everything is, and who is told of events (proto/packages.h). Borrowed. */
struct packages_config_place {
    struct loop *loop;
    const char *libexec_dir, *state_dir;
    void (*on_event)(void *arg, const char *json);
    void *arg;
};

/* Reads what registry.upstreams names; the process itself starts when it is needed. */
int packages_config_open(const struct config *config, const struct packages_config_place *place,
                         struct packages_proxy **ret, struct err *err);
