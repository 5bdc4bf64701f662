/*
 * Ports of EXPOSE: 80, 80/udp, 8000-8010/tcp, also with the host part of `docker run`.
 */
#pragma once

#include "lib/base/err.h"

/* Appends "PORT/PROTOCOL" for each port that is not in the strv yet. */
int ports_add(const char *spec, char ***ports, struct err *err);
