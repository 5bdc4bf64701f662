/*
 * The package caches of tools: one table says where a tool's cache is in a sandbox and which
 * variables make the tool use it. Also the modes by name. Each backend implements the modes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/engine/sandbox-spec.h"
#include "lib/base/err.h"

/* The folder of all caches, except those of tools whose path is fixed. */
#define CACHE_ROOT "/cache"
/* In a spec: all tools that are not named. */
#define CACHE_ALL "all"

struct cache_tool {
    const char *name;
    const char *target; /* where it is mounted */
    const char *env[5]; /* K=V, NULL-terminated; make the tool use `target` */
};

/* The i-th tool of the table; NULL past the end. */
const struct cache_tool *cache_tool_at(size_t i);
/* ERR_INVALID, with the nearest name as hint, for an unknown tool. */
int cache_tool_find(const char *name, const struct cache_tool **ret, struct err *err);

const char *cache_mode_name(enum spec_cache_mode m);
int cache_mode_parse(const char *name, enum spec_cache_mode *ret, struct err *err);
/* "off, private", from 1 << enum spec_cache_mode bits. Owned by the caller. */
char *cache_mode_list(uint32_t bits);

/*
 * K=V for the commands of a sandbox with network `packages`: the address of the package cache for
 * each tool, which is `port` on 127.0.0.1. Variables that the spec sets itself, in upper or lower
 * case, are left out. A new strv; empty with other networks.
 */
char **packages_variables(const struct sandbox_spec *spec, uint16_t port);

/*
 * The mode of a tool in the spec: by the tool's name, else the mode for all (only for tools below
 * CACHE_ROOT, which cost nothing).
 */
enum spec_cache_mode cache_mode_of(const struct sandbox_spec *spec, const struct cache_tool *t);
/* The trust group of a tool in mode `shared`; "": the group without a name. */
const char *cache_group_of(const struct sandbox_spec *spec, const struct cache_tool *t);
/* The id, inside the sandbox, of the caches' owner: tools refuse a cache that belongs to another
 * user. */
uint32_t cache_owner(const struct sandbox_spec *spec);
bool cache_is_below_root(const struct cache_tool *t);

/*
 * Adds K=V to *env that make the tools use their caches, for each tool that `there` accepts.
 * Variables that the spec sets itself, in upper or lower case, are left out.
 */
typedef bool (*cache_there_fn)(const void *arg, const struct cache_tool *t,
                               enum spec_cache_mode mode);
void cache_variables(const struct sandbox_spec *spec, cache_there_fn there, const void *arg,
                     char ***env);
