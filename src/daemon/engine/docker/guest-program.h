/*
 * ripcord-guest inside a container: copied into it when it is created, and again before it starts
 * when another version of ripcord has been installed since. A file in the sandbox's folder says
 * which program the container has.
 */
#pragma once

#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/body.h"

int guest_program_install(struct docker_engine *d, const struct body_parts *p,
                          const char *container, const struct deadline *by, struct err *err);
/* The container must not run. */
int guest_program_renew(struct docker_engine *d, const struct sandbox_request *req,
                        const char *container, const struct deadline *by, struct err *err);
