/*
 * The Docker engine's part of `ripcord doctor`: whether an engine answers, which limits it can
 * enforce, and whether it has the default image. Blocks for a few seconds at most.
 */
#pragma once

#include <stdbool.h>

#include "daemon/engine/doctor.h"
#include "daemon/engine/engine-config.h"

/* Adds lines to *ret. wanted: the configuration asks for Docker, so a missing engine is a
 * failure. */
void docker_doctor(const struct engine_docker_config *config, bool wanted,
                   struct doctor_report *ret);
