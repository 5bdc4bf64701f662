/*
 * An image of a registry as the OCI layout that ripcord-image imports: documents first, then the
 * layers that are wanted, fetched several at a time into a folder of our own. Nothing here unpacks
 * or believes anything: who reads the archive checks it all again.
 */
#pragma once

#include "image/transfer/settings.h"
#include "lib/base/err.h"

struct pull_fds {
    int archive; /* takes the layout */
    int events;  /* takes JSON lines: how far it is; its reader may go, which ends the pull */
    int folder;  /* for downloads */
};

int pull_run(const struct settings *s, const struct pull_fds *fds, struct err *err);
