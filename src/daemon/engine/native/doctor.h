/*
 * The native engine's part of `ripcord doctor`: settings of the machine that no start of a sandbox
 * shows, because a sandbox works without them and is only less well protected.
 */
#pragma once

#include "daemon/engine/doctor.h"
#include "daemon/engine/engine-ops.h"

/* engine_ops.doctor */
void native_doctor(struct engine *e, bool wanted, struct doctor_report *ret);
