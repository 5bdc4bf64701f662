/*
 * The systemd unit ripcord.service, of the system for root and of the user's service manager for
 * everybody else. Where it is installed, it owns the daemon of the default folders: commands start
 * the unit and never a daemon beside it, and `systemctl stop` means stopped.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/path.h"
#include "lib/base/time.h"

enum unit_state {
    UNIT_NONE,    /* not installed, no systemd, or other folders: the caller starts the daemon */
    UNIT_STARTED, /* the daemon listens, or did a moment ago */
};

/* What systemd says about the unit. */
struct unit_info {
    bool owns;    /* it is installed, not masked, and owns the daemon of these folders */
    bool active;  /* its daemon runs, or is about to */
    bool stopped; /* it was stopped on purpose */
};
struct unit_info unit_look(const struct path_roots *paths, const struct deadline *by);
/* Runs `systemctl VERB ripcord`. */
int unit_run(const char *verb, const struct deadline *by, struct err *err);
/* "systemctl" or "systemctl --user", for messages. */
const char *unit_command(void);

/* No daemon answered: starts the unit, and waits while it is being started or stopped. An enum
 * unit_state; ERR_ENGINE: the unit was stopped on purpose, or does not start. */
int unit_start(const struct path_roots *paths, const struct deadline *by, struct err *err);
