/*
 * ripcord-hub: what talks to registries of images, started by the daemon for one transfer. It has
 * an unprivileged user of its own when the daemon is root, no capability, a short list of system
 * calls and one folder, for downloads; it never sees the image store. What it fetches goes to
 * ripcord-image through a pipe, what it sends comes from there.
 *
 *   ripcord-hub pull
 *   ripcord-hub push
 *
 * One line of JSON on stdout: the result, or {"error": …} and exit status 1.
 */
#pragma once

enum {
    HUB_FD_ARCHIVE = 3,  /* pull: takes the OCI layout; push: gives it */
    HUB_FD_SETTINGS = 4, /* hub/settings.h */
    HUB_FD_EVENTS = 5,   /* hub/events.h */
    HUB_FD_FOLDER = 6,   /* pull: of downloads; becomes the user's */
    HUB_FDS = 4,
    HUB_SETTINGS_MAX = 4 << 20,
};

int hub_main(int argc, char **argv);
