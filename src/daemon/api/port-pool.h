/*
 * Connections to services inside sandboxes that have answered a request to its end and wait for the
 * next one, a few seconds at most. One that says anything meanwhile, or ends, is closed at once: so
 * what a service sends without being asked is never taken for an answer. All on the loop.
 */
#pragma once

#include <stdint.h>

struct api;

/* A connection to that port, which is the caller's from then on; -1: there is none, or the sandbox
 * does not run. */
int port_pool_take(struct api *a, const char *sandbox, uint16_t port);
/* Takes fd. */
void port_pool_give(struct api *a, const char *sandbox, uint16_t port, int fd);
/* Before the daemon ends. */
void port_pool_close(void);
