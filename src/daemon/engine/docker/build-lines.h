/*
 * Finds the line of a Dockerfile for a step that the builder names by number. BuildKit counts
 * instructions that make a layer (and FROM, unless it names a stage). Podman counts all
 * instructions. Both start again with each stage.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/cleanup.h"

struct build_lines;
struct build_request;

/* Reads the request's Dockerfile from its context, and seeks back to the start of the context.
 * NULL: it cannot be read; the builder then reports that itself. */
struct build_lines *build_lines_new(const struct build_request *req);
void build_lines_free(struct build_lines *l); /* accepts NULL */
DEFINE_CLEANUP(struct build_lines *, build_lines_free);

/* The line of step n of `of`. stage: its name or "stage-N"; "": the target. every: count all
 * instructions, like Podman. 0: unknown, for example because the image has ONBUILD steps, which are
 * counted too. `l` may be NULL. */
unsigned build_lines_find(const struct build_lines *l, const char *stage, unsigned n, unsigned of,
                          bool every);
