/*
 * What is left to the registry once it has read its configuration and opened its folder: an
 * unprivileged user of its own, no capability, no new program or process, and a short list of
 * system calls. It reads what hostile sandboxes and hostile upstreams send.
 */
#pragma once

#include "lib/base/err.h"

struct config;

/* Another user, when told so; in any case one without capabilities. */
int packages_become(const struct config *c, struct err *err);
int packages_confine(struct err *err); /* last, before the first thread */
