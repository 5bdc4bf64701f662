/*
 * Drops the rights of ripcord-packages after it has read its configuration and opened its folder.
 * It then runs as an unprivileged user without capabilities, starts no program or process, and may
 * use a short list of system calls: it parses bytes of hostile sandboxes and hostile upstreams.
 */
#pragma once

#include "lib/base/err.h"

struct packages_config;

/* Changes to the configured user, if any, and drops all capabilities. */
int packages_become(const struct packages_config *c, struct err *err);
/* Installs the system call filter. Call it last, before the first thread starts. */
int packages_confine(struct err *err);
