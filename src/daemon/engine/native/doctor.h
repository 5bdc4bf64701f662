/*
 * The native engine's part of `ripcord doctor`. Each check reports what it found and, where that is
 * not enough, what to do. Where a look at /proc is not reliable, a child process really uses the
 * feature (kernel-probe.h).
 *
 * Only for `ripcordd --doctor`: it clones namespaces, so the process must have no second thread.
 */
#pragma once

#include "daemon/engine/doctor.h"

/* state_dir: the folder of the sandboxes, whose file system is probed; made when missing. */
void native_doctor(const char *state_dir, struct doctor_report *ret);
