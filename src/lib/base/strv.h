/*
 * NULL-terminated arrays of owned strings. NULL stands for the empty array everywhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/cleanup.h"

char **strv_free(char **v); /* returns NULL */
size_t strv_len(char *const *v);
char **strv_copy(char *const *v); /* never NULL */
void strv_push(char ***v, char *owned);
void strv_pop(char **v); /* frees the last string, if any */
void strv_add(char ***v, const char *s);
bool strv_contains(char *const *v, const char *s);
bool strv_equal(char *const *a, char *const *b);
char *strv_join(char *const *v, const char *sep);

/* Sets K=V in an environment array: replaces an entry of the same key or adds one. */
void strv_env_set(char ***env, const char *key, const char *value);
const char *strv_env_get(char *const *env, const char *key);

/*
 * The environment that several arrays make together: in the order of first appearance, with the
 * value that came last. Entries without '=' are left out. The array is new (free() it), the strings
 * are borrowed. Each array may be NULL. The time does not depend on the choice of names.
 */
char **strv_env_merge(char *const *const *layers, size_t n);

/* An array that grows. strv_push() counts the array each time, which is too slow for thousands of
 * strings. `v` is NULL or ends with a NULL; the strings are the caller's matter. */
struct strv_list {
    char **v;
    size_t n, room;
};
void strv_list_push(struct strv_list *l, char *s);

/* The candidate nearest to `word` by edit distance, or NULL when no candidate is near enough. */
const char *strv_nearest(const char *word, const char *const *candidates, size_t n);

static inline void strv_freep(char ***v)
{
    *v = strv_free(*v);
}
#define _cleanup_strv_ _cleanup_(strv_freep)
