/*
 * How a layer says that something of the layers below is gone: in archives by names that begin with
 * ".wh.", on the disk as overlayfs wants it with option userxattr.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "lib/base/err.h"

enum whiteout {
    WHITEOUT_NONE,   /* an ordinary name */
    WHITEOUT_HIDES,  /* ".wh.NAME": *ret_hidden is NAME */
    WHITEOUT_OPAQUE, /* ".wh..wh..opq": the folder hides all that lies below it */
    WHITEOUT_OTHER,  /* ".wh..wh.*": another program's own notes */
    WHITEOUT_BAD,    /* ".wh.", ".wh..", ".wh...": no name at all */
};

enum whiteout whiteout_parse(const char *name, const char **ret_hidden);

/* On the disk. */
bool whiteout_is(const struct stat *st);
int whiteout_make(int dirfd, const char *name, struct err *err);
int whiteout_opaque(int dirfd, struct err *err);
bool whiteout_is_opaque(int dirfd);
