/*
 * The daemon and systemd (docs/decisions/035-systemd.md). All of this does nothing where systemd
 * does not run.
 *
 * As the unit ripcord.service, of the system or of a user, the daemon takes the place of one that a
 * command started on demand, and leaves the file <run>/stopped when it is stopped: from then on no
 * command starts a daemon (client/unit.h).
 *
 * On demand, an ordinary user's daemon moves to a scope in that user's service manager, as rootless
 * Podman does: only there may it make cgroups with controllers.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

/* Moves this process to a scope of its own if that gives it cgroups. Before any thread exists. */
void service_enter_scope(void);

/* Whether this process is the main process of ripcord.service. */
bool service_is_unit(void);
/* Ends the daemon that serves this run folder and is not a unit; its sandboxes keep running. */
void service_take_over(int run_dirfd, const char *run_dir);
/* Notes whether the unit was stopped. */
void service_note_stopped(int run_dirfd, bool stopped);
