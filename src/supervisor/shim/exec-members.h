/*
 * Finds all processes of one exec on machines without usable cgroups. Each exec has a cgroup
 * namespace of its own (enter.h). Children inherit it, also when they lose their parent. No process
 * inside can leave it, because that needs CAP_SYS_ADMIN and the sandbox cannot make user
 * namespaces. So every process in this namespace belongs to this exec.
 *
 * One kind of process is not found: a program of the host that the sandbox may run but not read
 * (mode 0711), because the kernel hides its namespaces from us. It ends with the sandbox.
 */
#pragma once

#include <stdbool.h>

/* Sends SIGKILL to all of them until a scan finds none. False: many scans still found some. `mark`
 * is a descriptor of the namespace. */
bool exec_members_kill(int mark);
