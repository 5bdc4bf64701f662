/*
 * The plan of a build: the stages of a Dockerfile that the target needs, and their steps with all
 * variables expanded. Making a plan changes nothing, and refuses with line and column what the
 * native builder does not support, so that such a build fails before its first step.
 *
 * Instructions that only change the configuration (ENV, LABEL, CMD, …) are not steps; the plan's
 * configuration is their result.
 */
#pragma once

#include <stdbool.h>

#include "image/dockerfile/config.h"
#include "image/dockerfile/dockerfile.h"
#include "lib/base/err.h"

enum build_network { BUILD_NETWORK_DEFAULT, BUILD_NETWORK_NONE };

/* A file whose content is written in the Dockerfile (heredoc). */
struct build_file {
    char *name, *content; /* owned */
};

/* A file that ADD downloads. */
struct build_url {
    char *url;  /* owned */
    char *name; /* owned: the file's name in a folder */
};

/* Where files come from: an earlier stage, an image of the store, or the context. */
struct build_from {
    long stage;   /* -1: not from a stage */
    char *image;  /* owned; NULL: not from an image */
    bool on_host; /* the stage or image is built on `host`, so it does not contain /usr */
};

/* Whether files come from a stage or an image, not from the context. */
bool build_is_from_elsewhere(const struct build_from *f);

/* The error for a write below /usr of image `host`; what: "COPY to '/usr/x'". */
int build_refuse_usr(const char *what, struct err *err);

struct build_mount {
    struct dockerfile_mount m; /* owned, expanded */
    struct build_from from;
};

struct build_plan_step {
    enum dockerfile_kind kind; /* RUN, COPY, ADD or WORKDIR */
    char *text;                /* owned: the instruction on one line */
    unsigned line;
    struct dockerfile_pos dest_at; /* COPY, ADD, WORKDIR: place of the destination word */
    char *user;                    /* owned; NULL is root */
    char *workdir;                 /* owned, absolute; WORKDIR: the folder to make */

    /* RUN */
    char **argv, **env;       /* owned */
    struct build_file script; /* mounted at BUILD_SCRIPT_DIR; without a name: not used */
    enum build_network network;
    struct build_mount *mounts;
    size_t n_mounts;

    /* COPY, ADD */
    char **written;         /* owned: paths, patterns and URLs in their order, without heredocs */
    char **sources;         /* owned: only the paths and patterns */
    struct build_url *urls; /* owned: only the URLs */
    size_t n_urls;
    char *checksum; /* owned: of the only URL; NULL: not checked */
    char *dest;     /* owned, absolute; ends with '/' where that was written */
    char *chown, *chmod;
    bool parents;   /* --parents: keep the folders of the sources' paths */
    char **exclude; /* owned: patterns of --exclude */
    struct build_from from;
    struct build_file *files; /* owned: heredocs */
    size_t n_files;
    bool unpack;      /* unpack archives among the sources */
    bool unpack_urls; /* unpack downloaded archives */
};

/* Whether a secret's target is a file directly in the default folder of secrets. */
bool build_is_secrets_place(const char *target);

#define BUILD_SCRIPT_DIR "/dev/pipes"

/* A line of the image's history (history.h). */
struct build_note {
    char *text; /* owned */
    long step;  /* index of the step that the line describes, or -1 */
};

struct build_stage {
    bool needed;
    char *name;   /* owned; "stage-N" without AS */
    long base;    /* index of the stage it is built on, or -1 */
    char *image;  /* owned: the image it is built on, or NULL */
    bool on_host; /* the lowest layer is image `host`: /usr is the machine's, and read-only */
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

/* Reads the configuration of an image that is not a stage. ERR_NOT_FOUND: no such image. */
typedef int (*build_image_fn)(void *arg, const char *name, struct dockerfile_config *ret,
                              bool *ret_on_host, struct err *err);

/* agents: "ID=…" of the ssh agents that RUN --mount=type=ssh can use. */
int build_plan_make(const struct dockerfile *df, const struct config_inputs *inputs,
                    char *const *agents, build_image_fn image, void *arg, struct build_plan *ret,
                    struct err *err);
void build_plan_done(struct build_plan *p);

/* The number of steps of a stage as shown to users: FROM of an image counts as a step. */
size_t build_stage_total(const struct build_stage *s);
