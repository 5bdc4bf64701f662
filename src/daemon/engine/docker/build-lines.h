/*
 * Where in a Dockerfile the step stands that a builder names by its number. BuildKit counts what
 * makes a layer (and FROM, unless it names a stage), Podman every instruction; both begin anew with
 * each stage.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/cleanup.h"

struct build_lines;
struct build_request;

/* Of the request's Dockerfile, which is looked for in its context; NULL when it cannot be read
 * there: the builder has its own words for that. The context is at its start again. */
struct build_lines *build_lines_new(const struct build_request *req);
void build_lines_free(struct build_lines *l); /* NULL is fine */
DEFINE_CLEANUP(struct build_lines *, build_lines_free);

/* stage: its name or "stage-N"; "": the only one that is built. every: as Podman counts. 0 when it
 * cannot be told, for an image with ONBUILD say, whose steps are counted too. */
unsigned build_lines_find(const struct build_lines *l, const char *stage, unsigned n, unsigned of,
                          bool every);
