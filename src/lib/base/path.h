/*
 * The folders of ripcord. The CLI, the daemon and the tests all use this function, so they agree:
 *
 *   --root DIR / RIPCORD_ROOT    DIR/state            DIR/run               DIR/ripcord.yaml
 *   root                         /var/lib/ripcord     /run/ripcord /etc/ripcord/ripcord.yaml
 *   other users                  $XDG_DATA_HOME/…     $XDG_RUNTIME_DIR/… $XDG_CONFIG_HOME/ripcord/…
 *
 * Uid 0 to whom /run does not belong (`unshare -r`) counts as another user. Without
 * XDG_RUNTIME_DIR the run folder is in the state folder. It is never in /tmp, where other users
 * could create it first.
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
/* Makes both folders with mode 0700 and refuses a folder of another user. */
int path_roots_make(const struct path_roots *p, struct err *err);

/* A relative path is joined to the working folder. The path need not exist. malloc'd. */
int path_make_absolute(const char *path, char **ret, struct err *err);

/*
 * The folder that has our program `name`: that of the running program, else ../libexec/ripcord next
 * to it, else `installed`. The first two are relative, so that an installed tree can be moved.
 * malloc'd; NULL: it is in none of them.
 */
char *path_of_program(const char *name, const char *installed);
