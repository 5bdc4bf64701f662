/*
 * Where ripcord keeps its things. One function, so that the CLI, the daemon and the tests can never
 * disagree:
 *
 *   --root DIR / RIPCORD_ROOT    DIR/state            DIR/run               DIR/ripcord.yaml
 *   root                         /var/lib/ripcord     /run/ripcord /etc/ripcord/ripcord.yaml
 *   anybody else                 $XDG_DATA_HOME/…     $XDG_RUNTIME_DIR/… $XDG_CONFIG_HOME/ripcord/…
 *
 * Uid 0 without a writable /run (`unshare -r`) counts as anybody else. Without XDG_RUNTIME_DIR the
 * run folder lies in the state folder: never in /tmp, where others could make it first.
 */
#pragma once

#include "lib/base/err.h"

struct path_roots {
    char *root;   /* owned, absolute; NULL without --root */
    char *state;  /* owned */
    char *run;    /* owned */
    char *config; /* owned: the configuration file, which need not exist */
};

#define PATH_ROOTS_INIT                                                                            \
    {                                                                                              \
        0                                                                                          \
    }
#define _cleanup_path_roots_ __attribute__((cleanup(path_roots_done)))

/* root: the value of --root, or NULL, which means RIPCORD_ROOT when that is set and not empty. */
int path_roots_init(struct path_roots *ret, const char *root, struct err *err);
void path_roots_done(struct path_roots *p);
/* Makes both folders, 0700, and refuses one that belongs to somebody else. */
int path_roots_make(const struct path_roots *p, struct err *err);

/* From the working folder, when it is relative; new. Nothing in it is looked up. */
int path_make_absolute(const char *path, char **ret, struct err *err);
