/*
 * The cache key of a step: a digest of named texts. Each text is hashed with its name and length,
 * so two different lists never give the same bytes.
 */
#pragma once

#include "image/build/plan.h"
#include "image/oci/digest.h"
#include "lib/base/err.h"

struct cache_key {
    struct digest_state *d; /* owned from cache_key_begin() to cache_key_end() */
};

void cache_key_begin(struct cache_key *k, const char *parent);
void cache_key_text(struct cache_key *k, const char *name, const char *value); /* NULL is not "" */
void cache_key_texts(struct cache_key *k, const char *name, char *const *values);
/* Files of the context that a source means: names, modes, contents. dir: the workspace. */
int cache_key_source(struct cache_key *k, int dir, const char *source, struct err *err);
int cache_key_sources(struct cache_key *k, int dir, const struct build_plan_step *s,
                      struct err *err);
/* Call it also after an error: it frees the state. */
void cache_key_end(struct cache_key *k, char ret[static DIGEST_MAX]);
