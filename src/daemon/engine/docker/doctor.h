/*
 * The Docker engine's part of `ripcord doctor`: whether there is one, what it can do, and whether
 * it has the image that sandboxes get. Blocks for seconds at most.
 */
#pragma once

#include <stdbool.h>

#include "daemon/engine/doctor.h"
#include "daemon/engine/engine-config.h"

/* wanted: somebody has set it up, so that one that is missing is a failure. Adds to *ret. */
void docker_doctor(const struct engine_docker_config *config, bool wanted,
                   struct doctor_report *ret);
