/*
 * The systemd unit ripcord.service, of the system for root and of the user's service manager for
 * everybody else. Where it is installed, it owns the daemon of the default folders: commands start
 * the unit and never a daemon beside it, and `systemctl stop` means stopped.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/path.h"
#include "lib/base/time.h"

enum unit_state {
    UNIT_NONE,    /* not installed, no systemd, or other folders: the caller starts the daemon */
    UNIT_STARTED, /* the daemon listens, or did a moment ago */
};

/* No daemon answered: starts the unit, and waits while it is being started or stopped. An enum
 * unit_state; ERR_ENGINE: the unit was stopped on purpose, or does not start. */
int unit_start(const struct path_roots *paths, const struct deadline *by, struct err *err);
