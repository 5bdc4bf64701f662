/*
 * The list of the package caches that an engine keeps. caches.h has the table of the tools that use
 * them. The list owns its strings. Any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum engine_cache_kind { ENGINE_CACHE_BASE, ENGINE_CACHE_SHARED, ENGINE_CACHE_PRIVATE };

struct engine_cache {
    enum engine_cache_kind kind;
    char *tool;       /* owned; "": one entry for all caches of a sandbox */
    char *owner;      /* owned; SHARED: the trust group or "", PRIVATE: the sandbox's id */
    uint64_t bytes;   /* UINT64_MAX: unknown */
    uint64_t changed; /* usec, wall clock; 0: unknown */
};

struct engine_caches {
    struct engine_cache *items;
    size_t n;
};

/* Adds one and returns it; the strings are copied. */
struct engine_cache *engine_caches_add(struct engine_caches *c, enum engine_cache_kind kind,
                                       const char *tool, const char *owner);
void engine_caches_done(struct engine_caches *c);
