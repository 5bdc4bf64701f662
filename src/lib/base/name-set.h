/*
 * A set of names that only grows and keeps eight bytes per name: a keyed hash. So two names can be
 * taken for the same one, with a probability of 2^-64 for each pair; a caller must be able to live
 * with that. The key is random, so that an author of names cannot choose such pairs.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct name_set {
    uint64_t *slots; /* owned; 0: free */
    size_t cap;      /* a power of two or 0 */
    size_t used;
    uint64_t key[2]; /* set with the first name */
};

#define NAME_SET_INIT                                                                              \
    {                                                                                              \
        0                                                                                          \
    }

void name_set_done(struct name_set *s);
/* The caller limits the number of names (used). */
void name_set_add(struct name_set *s, const char *name);
bool name_set_has(const struct name_set *s, const char *name);
