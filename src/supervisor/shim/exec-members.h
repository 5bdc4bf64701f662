/*
 * All processes of one exec where there are no cgroups to hold them together. Each exec is given a
 * cgroup namespace of its own (enter.h): children inherit it, whoever their parent becomes, and
 * nobody inside can leave it, as that takes CAP_SYS_ADMIN and the sandbox can make no user
 * namespaces. So who has this namespace is of this exec.
 *
 * One kind is not found: a program of the host that the sandbox may run but not read (mode 0711):
 * the kernel hides its namespaces from us. It ends with the sandbox.
 */
#pragma once

#include <stdbool.h>

/* SIGKILL to all of them, again until a look finds none; false when some are still being found
 * after many looks. `mark` is a descriptor of the namespace. */
bool exec_members_kill(int mark);
