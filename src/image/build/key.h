/*
 * The key of a step: a digest over named texts, each with its length, so that no two lists of them
 * look alike.
 */
#pragma once

#include "image/build/plan.h"
#include "image/oci/digest.h"
#include "lib/base/err.h"

struct key {
    struct digest_state *d;
};

void key_begin(struct key *k, const char *parent);
void key_text(struct key *k, const char *name, const char *value); /* NULL is not "" */
void key_texts(struct key *k, const char *name, char *const *values);
/* Files of the context that a source means: names, modes, contents; of the build's folder `dir`. */
int key_source(struct key *k, int dir, const char *source, struct err *err);
int key_sources(struct key *k, int dir, const struct build_step *s, struct err *err);
/* Frees what it holds. */
void key_end(struct key *k, char ret[static DIGEST_MAX]);
