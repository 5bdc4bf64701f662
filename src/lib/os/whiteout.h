/*
 * Whiteouts: a layer marks files of lower layers as removed. In archives a whiteout is a file whose
 * name begins with ".wh.". On disk it has the form that overlayfs uses with the option userxattr.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "lib/base/err.h"

enum whiteout {
    WHITEOUT_NONE,   /* an ordinary name */
    WHITEOUT_HIDES,  /* ".wh.NAME": *ret_hidden is NAME */
    WHITEOUT_OPAQUE, /* ".wh..wh..opq": the folder hides the same folder of lower layers */
    WHITEOUT_OTHER,  /* ".wh..wh.*": private data of another program */
    WHITEOUT_BAD,    /* ".wh.", ".wh..", ".wh...": invalid */
};

enum whiteout whiteout_parse(const char *name, const char **ret_hidden);

/* Whiteouts on disk. */
bool whiteout_is(const struct stat *st);
int whiteout_make(int dirfd, const char *name, struct err *err);
int whiteout_opaque(int dirfd, struct err *err);
bool whiteout_is_opaque(int dirfd);
