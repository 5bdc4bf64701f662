/*
 * ripcord-transfer: what talks to registries of images, and to servers of files that a Dockerfile
 * ADDs; started by the daemon for one transfer. It has an unprivileged user of its own when the
 * daemon is root, no capability, a short list of system calls and one folder, for downloads; it
 * never sees the image store. The images that it fetches go to ripcord-image through a pipe, those
 * it sends come from there; a file goes into a descriptor.
 *
 *   ripcord-transfer pull
 *   ripcord-transfer push
 *   ripcord-transfer fetch
 *
 * One line of JSON on stdout: the result, or {"error": …} and exit status 1.
 */
#pragma once

enum {
    TRANSFER_FD_ARCHIVE = 3, /* pull: takes the OCI layout; push: gives it; fetch: takes the file */
    TRANSFER_FD_SETTINGS = 4, /* image/transfer/settings.h */
    TRANSFER_FD_EVENTS = 5,   /* image/transfer/events.h; when its reader goes, this ends at once */
    TRANSFER_FD_FOLDER = 6,   /* pull: of downloads; becomes the user's */
    TRANSFER_FDS = 4,
    TRANSFER_SETTINGS_MAX = 4 << 20,
};
