/*
 * Package caches: the one table of tools, where their cache lies in a sandbox and which variables
 * make a tool use it, and the modes by name. How a mode is carried out is each backend's own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/engine/sandbox-spec.h"
#include "lib/base/err.h"

/* Where caches are, but for those of tools that cannot be told so. */
#define CACHE_ROOT "/cache"
/* In a spec: every tool that is not named. */
#define CACHE_ALL "all"

struct cache_tool {
    const char *name;
    const char *target; /* where it is mounted */
    const char *env[5]; /* K=V, NULL-terminated; what makes the tool look there */
};

/* The i-th of them in the order of the table; NULL past the end. */
const struct cache_tool *cache_tool_at(size_t i);
/* ERR_INVALID with the nearest name when there is none. */
int cache_tool_find(const char *name, const struct cache_tool **ret, struct err *err);

const char *cache_mode_name(enum spec_cache_mode m);
int cache_mode_parse(const char *name, enum spec_cache_mode *ret, struct err *err);
/* "off, private": of 1 << enum spec_cache_mode bits. Owned by the caller. */
char *cache_mode_list(uint32_t bits);

/*
 * K=V for the commands of a sandbox with network `packages`: where each tool finds the package
 * registry. Those that the spec sets itself, in whatever case, are left out. A new strv; empty with
 * other networks.
 */
char **packages_variables(const struct sandbox_spec *spec);

/*
 * What the spec says of a tool: by its name, else (of those below CACHE_ROOT, which cost nothing)
 * for all of them.
 */
enum spec_cache_mode cache_mode_of(const struct sandbox_spec *spec, const struct cache_tool *t);
/* The trust group of a tool in mode `shared`; "" when none is named. */
const char *cache_group_of(const struct sandbox_spec *spec, const struct cache_tool *t);
/* Whose the caches are, as an id inside: tools do not use a cache that is not their user's. */
uint32_t cache_owner(const struct sandbox_spec *spec);
bool cache_is_below_root(const struct cache_tool *t);

/*
 * K=V that make the tools use what they have: of those for which `there` says so. Those that the
 * spec sets itself, in whatever case, are left out. Added to *env.
 */
typedef bool (*cache_there_fn)(const void *arg, const struct cache_tool *t,
                               enum spec_cache_mode mode);
void cache_variables(const struct sandbox_spec *spec, cache_there_fn there, const void *arg,
                     char ***env);
