/*
 * Opens one connection to an engine. The result is a plain stream socket for every transport. Each
 * cause of failure has its own message and hint: no socket, no listener, no permission, no answer.
 */
#pragma once

#include "dockerapi/endpoint.h"
#include "lib/base/time.h"

struct docker;

/* Unix socket or TCP, without TLS. err->errnum has the errno. */
int docker_dial(const struct docker_endpoint *e, const struct deadline *by, int *ret,
                struct err *err);
/* Fills err for a failed connect(2): code, message, hint and errnum. */
int docker_unreached(const struct docker_endpoint *e, int errnum, struct err *err);
/* Uses TLS if the endpoint has it; *ret is then one end of a socketpair. */
int docker_connect(const struct docker *d, const struct deadline *by, int *ret, struct err *err);
