/*
 * The folder of one build in the store's tmp/, and the confined children that work in it: they
 * unpack the context, copy files into a root, and read new layers. The daemon deletes the folder
 * after the build; the store's next collection deletes a folder that a crash has left.
 *
 *   context/      files of the build context
 *   none/         empty: the lowest layer of an image that starts from scratch
 *   root/ src/    mount points in children: the root of a step, and the stage to copy from
 *   usr/          read-only cover of /usr in a root that is built on image `host`
 *   <n>/fs        the layer that step n makes
 *   l<n>/ f<n>/ w<n>/ u<n>/ v<n>/   links and folders that the overlay mounts of job n need
 *   m<n>/         a folder for a mount, for files written in the Dockerfile, or for a download
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "image/archive/confined.h"
#include "image/store/images.h"
#include "lib/base/err.h"

struct workspace {
    struct images *store;           /* borrowed */
    const struct confined_ids *ids; /* borrowed */
    char *path;                     /* owned: below the store's folder */
    int dir;                        /* owned */
    unsigned n;                     /* the last number used in a name */
    bool digest_only;               /* the context is digest-only (proto/digest-context.h) */
    uint64_t layer_began;           /* when the newest layer was begun: time_mono() */
};

#define WORKSPACE_INIT                                                                             \
    {                                                                                              \
        .dir = -1                                                                                  \
    }

int workspace_open(struct images *s, const struct confined_ids *ids, const char *name,
                   struct workspace *ret, struct err *err);
void workspace_done(struct workspace *w);

/*
 * Unpacks the context: `fd` is a file with a plain or compressed tar. All files become the
 * builder's own. digest_only: the tar is plain and a digest-only context.
 */
int workspace_unpack_context(struct workspace *w, int fd, bool digest_only, struct err *err);

/* Makes a new folder m<n> with that mode. *ret: its name; the caller frees it. */
int workspace_folder(struct workspace *w, mode_t mode, char **ret, struct err *err);

/* Makes the folders of a new layer. *ret: its number n. */
int workspace_new_layer(struct workspace *w, unsigned *ret, struct err *err);
/* Moves layer n into the store. 1: digest is set; 0: the layer is empty and was not stored. */
int workspace_commit_layer(struct workspace *w, unsigned n, char digest[static DIGEST_MAX],
                           struct err *err);

/*
 * A function for a child whose root is the workspace. With mount_root the child has `layers`
 * (bottom first) with layer n above them at "root"; with `from` it has those layers at "src".
 */
struct workspace_job {
    unsigned n;
    char *const *layers, *const *from;
    bool mount_root;
    int (*fn)(void *arg, int dir, struct err *err);
    /* Replaces fn in a job that returns a value: it fills `out`. */
    int (*find)(void *arg, int dir, void *out, struct err *err);
    void *arg, *out;
    size_t out_len; /* up to CONFINED_OUT_MAX */
};
/* Runs the job and waits for it; its error is ours. */
int workspace_run(struct workspace *w, const struct workspace_job *job, struct err *err);
