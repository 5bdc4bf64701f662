/*
 * Creates the packages proxy from the daemon's configuration.
 */
#pragma once

#include "lib/base/err.h"

struct daemon_config;
struct packages_proxy;
struct loop;

/* The folders, and the receiver of the package cache's events (proto/packages.h). Borrowed. */
struct packages_config_place {
    struct loop *loop;
    const char *libexec_dir, *state_dir;
    void (*on_event)(void *arg, const char *json);
    void *arg;
};

/* Reads the file of packages.upstreams. The process of the package cache starts on first use. */
int packages_config_open(const struct daemon_config *config,
                         const struct packages_config_place *place, struct packages_proxy **ret,
                         struct err *err);
