/*
 * Checks the names of packages, files and versions. Only checked names become part of a path of the
 * cache or a URL of an upstream. Each check lists what it allows and refuses the rest, so "../", NUL
 * bytes, mixed case and encodings cannot pass.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

enum { NAME_MAX_LEN = 214, NAME_SEGMENTS_MAX = 8 };

enum ecosystem { ECO_PYPI, ECO_NPM, ECO_MAX };
const char *ecosystem_name(enum ecosystem e);
int ecosystem_parse(const char *s, enum ecosystem *ret, struct err *err);

/* PEP 503: lower case, runs of "-_." as one "-". False: not a project name. */
bool name_pypi(const char *s, char ret[static NAME_MAX_LEN + 1]);
/* "name" or "@scope/name". */
bool name_npm(const char *s);
/* The name without its scope. */
const char *name_npm_bare(const char *s);
/* A file in an index: one component, [A-Za-z0-9._+!~-], no leading '.' or '-'. */
bool name_file(const char *s);
bool name_version(const char *s);
/* In the pattern, '*' matches any run of characters. */
bool name_matches(const char *pattern, const char *name);
/* The version in a file name of PyPI; "" when it has none. */
void name_pypi_version(const char *filename, char *ret, size_t size);

/* A request's target, in place: the path's segments, each decoded once. Control bytes, "." and ".."
 * (also when encoded) are refused; "" only as the last. An encoded '/' stays inside its segment. */
int name_split_target(char *target, char *segments[static NAME_SEGMENTS_MAX], size_t *n,
                      struct err *err);
/* Whether a Host field may be used in links: a name or address, with an optional port. */
bool name_host(const char *s);
