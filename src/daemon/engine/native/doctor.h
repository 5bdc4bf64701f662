/*
 * `ripcord doctor`: what this machine can do for the native engine. Each check says what it found
 * and, where that is not enough, what to do. Things are tried for real, in child processes, where
 * looking does not tell.
 *
 * For `ripcordd --doctor` only: it clones namespaces, so the process must have no second thread.
 */
#pragma once

#include "daemon/engine/doctor.h"

/* state_dir: where sandboxes will lie (its file system is what is tried); made when missing. */
void native_doctor(const char *state_dir, struct doctor_report *ret);
