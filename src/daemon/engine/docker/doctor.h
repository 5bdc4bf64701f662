/*
 * The Docker engine's part of `ripcord doctor`: whether an engine answers, which limits it can
 * enforce, and whether it has the default image. Blocks for a few seconds at most.
 */
#pragma once

#include "daemon/engine/doctor.h"
#include "daemon/engine/engine-ops.h"

/* engine_ops.doctor. A missing engine is a failure if it is `wanted`, or if the configuration names
 * its address. */
void docker_doctor(struct engine *e, bool wanted, struct doctor_report *ret);
