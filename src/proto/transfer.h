/*
 * ripcord-transfer: exchanges images with image registries, and downloads files that a Dockerfile
 * ADDs. The daemon starts it for one transfer. It has an unprivileged user of its own (if the
 * daemon is root), no capabilities, a short list of system calls and one folder for downloads. It
 * never sees the image store: images come from or go to ripcord-image through a pipe, and a file
 * goes into a descriptor.
 *
 *   ripcord-transfer pull
 *   ripcord-transfer push
 *   ripcord-transfer fetch
 *
 * One line of JSON on stdout: the result, or {"error": …} and exit status 1.
 */
#pragma once

enum {
    TRANSFER_FD_ARCHIVE = 3, /* pull: OCI layout, out; push: OCI layout, in; fetch: the file, out */
    TRANSFER_FD_SETTINGS = 4, /* image/transfer/settings.h */
    TRANSFER_FD_EVENTS = 5,   /* image/transfer/events.h; the program ends when its reader closes */
    TRANSFER_FD_FOLDER = 6,   /* pull: folder for downloads; gets the program's user as owner */
    TRANSFER_FDS = 4,
    TRANSFER_SETTINGS_MAX = 4 << 20,
};
