/*
 * What is to be done to build a target of a Dockerfile: its stages, those that the target needs,
 * and their steps with every variable replaced. Nothing has been touched when it is made, and what
 * the native builder cannot do has been refused by then, with its place: a build does not fail
 * half-way for something that could have been known.
 *
 * Instructions that only change the configuration (ENV, LABEL, CMD, …) are no steps; the plan's
 * configuration is what they come to.
 */
#pragma once

#include <stdbool.h>

#include "image/dockerfile/config.h"
#include "image/dockerfile/dockerfile.h"
#include "lib/base/err.h"

enum build_network { BUILD_NETWORK_DEFAULT, BUILD_NETWORK_NONE };

/* A file that stands in the Dockerfile itself. */
struct build_file {
    char *name, *content; /* owned */
};

/* A file that is fetched. */
struct build_url {
    char *url, *name; /* owned; what it is called in a folder */
};

/* Where files come from: an earlier stage, an image of the store, or the context. */
struct build_from {
    long stage;   /* -1: none */
    char *image;  /* owned, or NULL */
    bool on_host; /* whose /usr is the machine's */
};

/* Not from the context. */
bool build_is_from_elsewhere(const struct build_from *f);

/* Something would be written below /usr of image `host`; what: "COPY to '/usr/x'". */
int build_refuse_usr(const char *what, struct err *err);

struct build_mount {
    struct dockerfile_mount m; /* owned, expanded */
    struct build_from from;
};

struct build_plan_step {
    enum dockerfile_kind kind; /* RUN, COPY, ADD or WORKDIR */
    char *text;                /* owned: the instruction on one line */
    unsigned line;
    struct dockerfile_pos dest_at; /* of COPY, ADD and WORKDIR: where they say where to */
    char *user;                    /* owned: who it is done by; NULL is root */
    char *workdir;                 /* owned, absolute; of WORKDIR the folder to be there */

    /* RUN */
    char **argv, **env;       /* owned */
    struct build_file script; /* at BUILD_SCRIPT_DIR, or without a name */
    enum build_network network;
    struct build_mount *mounts;
    size_t n_mounts;

    /* COPY, ADD */
    char **written;         /* owned: all that is not in the Dockerfile itself, in their order */
    char **sources;         /* owned: of those paths and patterns, */
    struct build_url *urls; /* and addresses */
    size_t n_urls;
    char *checksum; /* owned: of the only one; NULL: any will do */
    char *dest;     /* owned, absolute; ends with '/' where that was written */
    char *chown, *chmod;
    bool parents;   /* the folders on the way to the sources are made, too */
    char **exclude; /* owned: patterns of what is left out */
    struct build_from from;
    struct build_file *files;
    size_t n_files;
    bool unpack;      /* archives among the sources become what is in them, */
    bool unpack_urls; /* and those that are fetched */
};

/* Whether a secret's target is a file right in the folder that they all are in without one. */
bool build_is_secrets_place(const char *target);

#define BUILD_SCRIPT_DIR "/dev/pipes"

/* A line of the image's history (history.h). */
struct build_note {
    char *text; /* owned */
    long step;  /* whose it is, or -1 */
};

struct build_stage {
    bool needed;
    char *name;   /* owned; its number without AS */
    long base;    /* the stage it is built on, or -1 */
    char *image;  /* owned: the image it is built on, or NULL */
    bool on_host; /* at the bottom is image `host`: /usr is the machine's, and read-only */
    struct build_plan_step *steps;
    size_t n_steps;
    struct build_note *notes;
    size_t n_notes;
    char **args; /* owned: names of its ARGs, and of those of the stage it is built on */
};

struct build_plan {
    struct build_stage *stages;
    size_t n_stages, target;
    struct dockerfile_config config; /* of the target */
    size_t noted;                    /* bytes of all notes */
};

/* Configurations of images that are no stages; ERR_NOT_FOUND when there is none. */
typedef int (*build_image_fn)(void *arg, const char *name, struct dockerfile_config *ret,
                              bool *ret_on_host, struct err *err);

/* agents: "ID=…" of those that are there for RUN --mount=type=ssh. */
int build_plan_make(const struct dockerfile *df, const struct config_inputs *inputs,
                    char *const *agents, build_image_fn image, void *arg, struct build_plan *ret,
                    struct err *err);
void build_plan_done(struct build_plan *p);

/* How many steps there are in a stage for people: FROM counts, unless it is another stage. */
size_t build_stage_total(const struct build_stage *s);
