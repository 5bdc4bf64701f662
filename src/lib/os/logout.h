/*
 * Whether processes of this user's service manager end with the user's last session: systemd stops
 * the manager then, unless the user lingers.
 */
#pragma once

#include <stdbool.h>

/* Whether this process will end at the logout. False where that cannot be determined. */
bool logout_ends_us(void);
