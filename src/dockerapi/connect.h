/*
 * One connection to an engine, as a plain stream socket whatever the transport. What stands in the
 * way is said per symptom, each with its own hint: no socket, nobody behind it, no permission,
 * silence.
 */
#pragma once

#include "dockerapi/endpoint.h"
#include "lib/base/time.h"

struct docker;

/* Unix socket or TCP, no TLS. err->errnum is kept. */
int docker_dial(const struct docker_endpoint *e, const struct deadline *by, int *ret,
                struct err *err);
/* What a failed connect(2) means: code, message and hint; errnum is kept. */
int docker_unreached(const struct docker_endpoint *e, int errnum, struct err *err);
/* With TLS where the endpoint has it: then *ret is one end of a socketpair. */
int docker_connect(const struct docker *d, const struct deadline *by, int *ret, struct err *err);
