/*
 * `ripcord doctor`: finds out by doing what works here. It starts throw-away sandboxes through the
 * manager, as the daemon does for `run` and `up`: first a plain one, then one for each feature, all
 * at the same time. So it sees what a start sees (the daemon's rights, its unit, its container, its
 * cgroup) and a failure is the one that a user would get, with the same hint. The engines add what
 * no start shows.
 *
 * Sandboxes of runs go with their command. The one that is kept for a while is named doctor-<hex>;
 * if the daemon is killed, a lease removes it. All on the loop.
 */
#pragma once

#include "lib/base/json.h"

struct doctor;
struct manager;

/* report: {"ok","checks":[{"name","status","detail","fix"}]}, borrowed; NULL on failure. */
typedef void (*doctor_done_fn)(void *arg, const struct err *err, const json_t *report);

/* folder: tried as a mount of the user, absolute; NULL: none is tried. */
int manager_doctor(struct manager *m, const char *folder, doctor_done_fn done, void *arg,
                   struct err *err);

/* At shutdown, as warms_end() and warms_drop(). */
void doctors_end(struct manager *m);
void doctors_drop(struct manager *m);
