/*
 * The folder of one build in the store's tmp/, and what is done in it by confined children: the
 * context is unpacked, files are copied into a root, layers are read and put into their place. The
 * daemon throws it away when the build has ended; what a crash leaves is removed by the store's
 * next collection.
 *
 *   context/      what came with the request
 *   none/         empty: the lowest layer of an image that begins with nothing
 *   root/ src/    where children mount a root, and a stage to copy from
 *   usr/          lies over /usr of a root that is built on `host`, and cannot be written to
 *   <n>/fs        the layer that step n makes; l<n>/, f<n>/, w<n>/, u<n>/: what its mounts need
 *   m<n>/         a folder for a mount, or for files that stand in the Dockerfile
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "image/archive/confined.h"
#include "image/store/images.h"
#include "lib/base/err.h"

struct workspace {
    struct images *store; /* borrowed, as is: */
    const struct confined_ids *ids;
    char *path; /* owned: below the store's folder */
    int dir;
    unsigned n;       /* the last number given */
    bool digest_only; /* of the context files are left out */
    uint64_t began;   /* of the layer that was begun last: time_mono() */
};

#define WORKSPACE_INIT                                                                             \
    {                                                                                              \
        .dir = -1                                                                                  \
    }

int workspace_open(struct images *s, const struct confined_ids *ids, const char *name,
                   struct workspace *ret, struct err *err);
void workspace_done(struct workspace *w);

/* The context: a plain or compressed tar on `fd`, a file; all in it becomes the builder's own.
 * thin: as proto/digest-context.h has it. */
int workspace_unpack_context(struct workspace *w, int fd, bool digest_only, struct err *err);

/* A new folder m<n>, of that mode; its name is owned by the caller. */
int workspace_folder(struct workspace *w, mode_t mode, char **ret, struct err *err);

/* Begins a layer: <n>/fs. */
int workspace_new_layer(struct workspace *w, unsigned *ret, struct err *err);
/* Reads what is in it and puts it into its place. 1: *digest and *bytes are set; 0: it is empty. */
int workspace_commit_layer(struct workspace *w, unsigned n, char digest[static DIGEST_MAX],
                           struct err *err);

/* Runs fn in a child that has the build's folder as its root, with `layers` (bottom first) and
 * layer n above them at "root", and with those of `from`, if there are any, at "src". */
struct workspace_job {
    unsigned n;
    char *const *layers, *const *from;
    bool mount_root;
    int (*fn)(void *arg, int dir, struct err *err);
    /* Instead of fn, where something is to be found out: it fills `out`. */
    int (*find)(void *arg, int dir, void *out, struct err *err);
    void *arg, *out;
    size_t out_len; /* up to CONFINED_OUT_MAX */
};
int workspace_run(struct workspace *w, const struct workspace_job *job, struct err *err);
