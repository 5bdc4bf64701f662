/*
 * Pulls an image from a registry and writes it as the OCI layout that ripcord-image imports. The
 * documents come first, then the wanted layers, several at once, through a folder of downloads.
 * Nothing is unpacked here; ripcord-image checks everything again.
 */
#pragma once

#include "image/transfer/settings.h"
#include "lib/base/err.h"

struct pull_fds {
    int archive; /* receives the layout */
    int events;  /* receives progress (events.h); the pull ends when the reader closes it */
    int folder;  /* for downloads */
};

int pull_run(const struct settings *s, const struct pull_fds *fds, struct err *err);
