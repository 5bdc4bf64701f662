/*
 * EXPOSE's ports: 80, 80/udp, 8000-8010/tcp, and with the host's part that docker run knows.
 */
#pragma once

#include "lib/base/err.h"

/* Appends "PORT/PROTOCOL" for each to the strv, once. */
int ports_add(const char *spec, char ***ports, struct err *err);
