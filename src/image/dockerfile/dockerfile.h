/*
 * The Dockerfile language, as BuildKit's frontend reads it. The parser makes a tree from the text,
 * with the position of every part. It runs nothing and expands nothing: config.h evaluates the tree
 * for a target.
 *
 * All positions are offsets into the source text, so that a tool can edit the text;
 * dockerfile_pos() converts an offset to line and column. The text is untrusted: sizes are limited
 * before memory is allocated, and every error has a position.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "image/dockerfile/line.h"
#include "image/dockerfile/mount.h"
#include "lib/base/cleanup.h"
#include "lib/base/err.h"
#include "lib/base/macro.h"

enum {
    DOCKERFILE_SIZE_MAX = 4 << 20,
    DOCKERFILE_STAGES_MAX = 1000,
    DOCKERFILE_INSTRUCTIONS_MAX = 20000,
};

enum dockerfile_kind {
    DOCKERFILE_ADD,
    DOCKERFILE_ARG,
    DOCKERFILE_CMD,
    DOCKERFILE_COPY,
    DOCKERFILE_ENTRYPOINT,
    DOCKERFILE_ENV,
    DOCKERFILE_EXPOSE,
    DOCKERFILE_FROM,
    DOCKERFILE_HEALTHCHECK,
    DOCKERFILE_LABEL,
    DOCKERFILE_MAINTAINER,
    DOCKERFILE_ONBUILD,
    DOCKERFILE_RUN,
    DOCKERFILE_SHELL,
    DOCKERFILE_STOPSIGNAL,
    DOCKERFILE_USER,
    DOCKERFILE_VOLUME,
    DOCKERFILE_WORKDIR,
};

struct dockerfile_pos {
    unsigned line, column; /* from 1; columns count bytes */
};

/* One argument of an instruction: its value and its position. */
struct dockerfile_word {
    char *text;     /* owned */
    size_t at, end; /* in the source */
};

struct dockerfile_flag {
    char *name;  /* owned, without the dashes */
    char *value; /* owned, quotes removed; NULL without '=' */
    size_t at, end;
};

struct dockerfile_heredoc {
    char *name;     /* owned: the word that terminates it */
    char *content;  /* owned: as written in the file */
    bool expand;    /* variables in it are expanded: the name was not quoted */
    bool chomp;     /* <<-: leading tabs are removed */
    size_t at, end; /* of the content */
};

/*
 * `words` contains, by kind:
 *   ADD COPY           sources, and the destination last
 *   ARG                NAME or NAME=VALUE, each
 *   ENV LABEL          key, value, key, value, …, with their quotes
 *   RUN CMD ENTRYPOINT the command line as one word; the list of the exec form with json
 *   SHELL              likewise, always json
 *   HEALTHCHECK        NONE or CMD, then the command as above
 *   EXPOSE VOLUME FROM the words
 *   the others         their one argument
 */
struct dockerfile_instruction {
    enum dockerfile_kind kind;
    size_t at, end; /* from its first letter to the end of its last line, heredocs included */
    size_t lead; /* start of the comment lines right before it; without comments, the same as at */
    struct dockerfile_line line;
    bool json;   /* the exec form */
    bool legacy; /* ENV NAME VALUE: without '=' */
    struct dockerfile_flag *flags;
    size_t n_flags;
    struct dockerfile_word *words;
    size_t n_words;
    struct dockerfile_heredoc *heredocs;
    size_t n_heredocs;
    struct dockerfile_mount *mounts; /* of RUN */
    size_t n_mounts;
    struct dockerfile_instruction *trigger; /* of ONBUILD; owned */
};

struct dockerfile_stage {
    const struct dockerfile_instruction *from; /* borrowed from the instructions */
    char *name;                                /* owned, lower case; NULL without AS */
    size_t first, last;                        /* its instructions after FROM: first <= i < last */
};

struct dockerfile {
    char *text; /* owned: the source, NUL-terminated */
    size_t len;
    size_t *lines; /* owned: the offset of each line */
    size_t n_lines;
    char escape;          /* '\\' or '`' */
    char *syntax, *check; /* owned: the parser directives' values, or NULL */
    struct dockerfile_instruction *instructions;
    size_t n_instructions;
    size_t n_globals; /* number of ARGs before the first FROM; they come first */
    struct dockerfile_stage *stages;
    size_t n_stages;
};

/* Copies the text. On failure *ret_at is the offset of the error, and the message begins with
 * "line L, column C: "; ret_at can be NULL. */
int dockerfile_parse(const char *text, size_t len, struct dockerfile **ret, size_t *ret_at,
                     struct err *err);
void dockerfile_free(struct dockerfile *df); /* df can be NULL */
DEFINE_CLEANUP(struct dockerfile *, dockerfile_free);

struct dockerfile_pos dockerfile_pos(const struct dockerfile *df, size_t at);
const char *dockerfile_kind_name(enum dockerfile_kind kind); /* "RUN" */
/* The last value of a flag; "" for a flag without a value, NULL if the flag is absent. */
const char *dockerfile_flag(const struct dockerfile_instruction *in, const char *name);
/* The stage with this name or index before stage `before`; -1: no such stage. */
long dockerfile_find_stage(const struct dockerfile *df, const char *name, size_t before);
